"""The namespaces of jobs and of this project's own chores, each with its Pod Security level.

And who the pods of jobs are.
"""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog.pins import TEAM_LABEL, UID_LABEL
from megatron_eks.charts.pods import CA_BUNDLE, count
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.egress import CA_FILE
from megatron_eks.plan.cluster.platform import PlatformPlan, QuotaPlan


class Namespaces(cdk8s.Chart):
    """The namespaces that other charts put objects into."""

    def __init__(self, scope: Construct, chart_id: str, *, plan: ClusterPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        platform = plan.platform
        version = f"v{plan.kubernetes_version}"
        # A relaxed namespace still reports each pod that would not need it.
        self._namespace(
            platform.namespace, platform.pod_security, "restricted", version, **_whose(platform)
        )
        if platform.first:
            # The set-up Job is root with three capabilities of the baseline; a warning at every
            # `kubectl apply` that nobody can act on would only teach people to ignore warnings.
            self._namespace(platform.system_namespace, "baseline", "baseline", version)
        # A name that a role of AWS is bound to; it has no rights in Kubernetes, and no token.
        account = platform.service_account
        k8s.KubeServiceAccount(
            self,
            "account",
            metadata=k8s.ObjectMeta(name=account, namespace=platform.namespace),
            automount_service_account_token=False,
        )

    def _namespace(self, name: str, enforce: str, warn: str, version: str, **more: str) -> None:
        levels = {"enforce": enforce, "audit": "restricted", "warn": warn}
        labels: dict[str, str] = {**more}
        for mode, level in levels.items():
            labels[f"pod-security.kubernetes.io/{mode}"] = level
            # Without a version the rules change under running jobs when the cluster is upgraded.
            labels[f"pod-security.kubernetes.io/{mode}-version"] = version
        k8s.KubeNamespace(self, name, metadata=k8s.ObjectMeta(name=name, labels=labels))


def _whose(platform: PlatformPlan) -> dict[str, str]:
    """Return the labels of a team's namespace, by which its pods are held to its user."""
    if platform.team is None:
        return {}
    return {TEAM_LABEL: platform.team, UID_LABEL: str(platform.pod_uid)}


class Certificates(cdk8s.Chart):
    """A ConfigMap in the namespace of the jobs."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        k8s.KubeConfigMap(
            self,
            CA_BUNDLE,
            metadata=k8s.ObjectMeta(name=CA_BUNDLE, namespace=platform.namespace),
            data={CA_FILE: platform.egress.ca_bundle or ""},
        )


class Quotas(cdk8s.Chart):
    """Who comes first on a full node, and the most that all jobs together may hold."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        for priority in platform.priority_classes if platform.first else ():
            k8s.KubePriorityClass(
                self,
                priority.name,
                metadata=k8s.ObjectMeta(name=priority.name),
                value=priority.value,
                preemption_policy="PreemptLowerPriority" if priority.preempts else "Never",
                description=priority.description,
            )
        for quota in platform.quotas:
            self._quota(quota, platform.namespace)

    def _quota(self, plan: QuotaPlan, namespace: str) -> None:
        scope = k8s.ScopedResourceSelectorRequirement(
            scope_name="PriorityClass", operator=plan.operator, values=list(plan.classes)
        )
        selector = k8s.ScopeSelector(match_expressions=[scope]) if plan.classes else None
        k8s.KubeResourceQuota(
            self,
            f"quota-{plan.name}",
            metadata=k8s.ObjectMeta(name=plan.name, namespace=namespace),
            spec=k8s.ResourceQuotaSpec(
                hard={resource: count(limit) for resource, limit in plan.hard},
                scope_selector=selector,
            ),
        )
