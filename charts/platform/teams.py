"""What people of a team may do, and as whom its pods run.

Roles reach the cluster as groups of Kubernetes, by EKS's access entries without a policy: EKS's own
policies know no kinds of jobs (EKS User Guide, "Review access policy permissions").
"""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog.pins import UID_LABEL
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.platform.operator_access import RBAC, READ, add_role, rule
from megatron_eks.charts.pods import add_object
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.teams import TeamPlan

_NAME = "megatron-eks-team"
_WRITE = ("create", "delete", "deletecollection", "patch", "update")


class TeamAccess(cdk8s.Chart):
    """What people of one team may do: everything with jobs, in their namespace alone."""

    def __init__(self, scope: Construct, chart_id: str, *, team: TeamPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        kinds: dict[str, list[str]] = {}
        for each in WORKLOADS.values():
            more = [f"{each.runtime.lower()}s"] if each.runtime else []
            kinds.setdefault(each.group, []).extend([each.plural, *more])
        rules = [rule(group, plurals, *READ, *_WRITE) for group, plurals in kinds.items()]
        rules.append(rule("kueue.x-k8s.io", ["localqueues", "workloads"], *READ))
        add_role(self, _NAME, team.namespace, rules, [_subject(team)])
        # Pods, logs, commands, Secrets and what jobs bring along: no quota, right or volume.
        k8s.KubeRoleBinding(
            self,
            "edit",
            metadata=k8s.ObjectMeta(name=f"{_NAME}-edit", namespace=team.namespace),
            role_ref=k8s.RoleRef(api_group=RBAC, kind="ClusterRole", name="edit"),
            subjects=[_subject(team)],
        )


class Teams(cdk8s.Chart):
    """What holds for all teams."""

    def __init__(self, scope: Construct, chart_id: str, *, plan: ClusterPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        # Whether there is room for a job, and why none runs; nodes hold nothing of a team.
        rules = [rule("", ["nodes"], *READ), rule("scheduling.k8s.io", ["priorityclasses"], *READ)]
        if plan.platform.kueue:
            # How much of each share is used, and not by whom.
            rules.append(rule("kueue.x-k8s.io", ["clusterqueues", "cohorts"], *READ))
        add_role(self, _NAME, "", rules, [_subject(each) for each in plan.teams])
        self._users()

    def _users(self) -> None:
        """Refuse pods of another user: files on a volume know people by their number alone."""
        named = cdk8s.ApiObjectMetadata(name=_POLICY)
        for kind, spec in (("Policy", _policy()), ("PolicyBinding", _BINDING)):
            title = f"ValidatingAdmission{kind}"
            add_object(self, title, "admissionregistration.k8s.io/v1", title, named, spec=spec)


_POLICY = "megatron-eks-users"
_BINDING = {"policyName": _POLICY, "validationActions": ["Deny"]}


def _policy() -> dict[str, object]:
    """Return the policy: users and groups of a pod are the number that its namespace says."""
    of_pod, uid, more = "object.spec.securityContext", "variables.uid", "supplementalGroups"
    own = [f"has({of_pod}.{key}) && {of_pod}.{key} == {uid}" for key in ("runAsUser", "runAsGroup")]
    rest = [
        f"(!has({of_pod}.fsGroup) || {of_pod}.fsGroup == {uid})",
        f"(!has({of_pod}.{more}) || {of_pod}.{more}.all(each, each == {uid}))",
    ]
    at = "each.securityContext"
    inner = " && ".join(
        f"(!has({at}.{key}) || {at}.{key} == {uid})" for key in ("runAsUser", "runAsGroup")
    )
    containers = [
        f"(!has(object.spec.{kind}) || object.spec.{kind}.all(each, !has({at}) || ({inner})))"
        for kind in ("containers", "initContainers", "ephemeralContainers")
    ]
    said = f"'pods of this namespace run as user and group ' + string({uid})"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchExpressions": [{"key": UID_LABEL, "operator": "Exists"}]},
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": operations,
                    "resources": [resource],
                }
                for resource, operations in {
                    "pods": ["CREATE"],
                    "pods/ephemeralcontainers": ["UPDATE"],
                }.items()
            ],
        },
        "variables": [
            {"name": "uid", "expression": f"int(namespaceObject.metadata.labels['{UID_LABEL}'])"}
        ],
        "validations": [
            {
                "expression": " && ".join((f"has({of_pod})", *own, *rest, *containers)),
                "messageExpression": said,
                "reason": "Forbidden",
            }
        ],
    }


def _subject(team: TeamPlan) -> k8s.Subject:
    return k8s.Subject(kind="Group", api_group=RBAC, name=team.group)
