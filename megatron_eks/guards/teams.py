"""Guards of teams: what their people may do, what they share, and as whom their pods run.

Where a team is let into another's namespace, or its pods run as another's user, nothing tells.
"""

from collections.abc import Mapping
from itertools import product

from megatron_eks.catalog import kueue
from megatron_eks.catalog.pins import TEAM_LABEL, UID_LABEL, group_of
from megatron_eks.catalog.workloads import WITH_PODS, WORKLOADS
from megatron_eks.config.load import Json
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.pods import share_of_a_node
from megatron_eks.guards.rights import granted, lacking
from megatron_eks.guards.values import Found, Row, report, same

_POLICY, _READ = "ValidatingAdmissionPolicy", "get list watch"
_WRITE, _GPUS = f"{_READ} create delete patch", "requests.nvidia.com/gpu"
_LOOSE = "pods of a team can run as another's user, and read its files"
_WHICH = "matchConstraints namespaceSelector matchExpressions 0 "
_RULE, _INTO = "matchConstraints resourceRules", "pods/ephemeralcontainers"
_USERS: tuple[Row, ...] = (
    ("failurePolicy", ("Fail", None), _LOOSE),
    *same(_WHICH, "it holds for other namespaces", {"key": UID_LABEL, "operator": "Exists"}),
    *same(f"{_RULE} 0 ", _LOOSE, {"resources": ["pods"], "operations": ["CREATE"]}),
    *same(f"{_RULE} 1 ", _LOOSE, {"resources": [_INTO], "operations": ["UPDATE"]}),
)
_BOUND = same("", _LOOSE, {"validationActions": ["Deny"], "matchResources": None})
_HELD = ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "initContainers", "ephemeral")
_CARDS = "requests.vpc.amazonaws.com/efa"
_OTHERS = ("pods", "services.loadbalancers", "services.nodeports")
_CRITICAL: Json = ["system-cluster-critical", "system-node-critical"]
_CROWDED = "the team's pods take the place of the platform's, or none is created"
_SYSTEM: Row = ("scopeSelector matchExpressions 0 values", (_CRITICAL,), _CROWDED)
_IN_CLUSTER = (("", "nodes", _READ), ("scheduling.k8s.io", "priorityclasses", _READ))
_QUEUES = tuple((kueue.GROUP, each, _READ) for each in ("localqueues", "workloads"))


@manifest_guard
def users(manifests: Manifests) -> Found:
    """Hold pods to the user of their team's namespace ("Validating Admission Policy")."""
    code, bindings = Rule.TEAM_USER, manifests.of(f"{_POLICY}Binding")
    policies = [e for e in manifests.of(_POLICY) if "runAsUser" in str(e["spec"].raw)]
    for space in _teams(manifests) if bindings and not policies else ():
        found, remedy = f"no policy holds its pods to its user: {_LOOSE}", "apply 13-teams too"
        yield space.labels[UID_LABEL].finding(code, found, remedy)
    for policy in policies:
        yield from policy["spec"].must_hold(code, *_USERS)
        tests = policy["spec"]["validations"][0]["expression"]
        for word in (each for each in _HELD if each not in tests.text):
            yield tests.finding(code, f"it does not look at {word}: {_LOOSE}", f"check {word} too")
        own = [each for each in bindings if each["spec"]["policyName"].text == policy.name]
        place, found = policy["metadata"]["name"], f"no binding of {policy.name}: {_LOOSE}"
        yield from report(code, not own, place, found, "add one that denies")
        yield from (found for each in own for found in each["spec"].must_hold(code, *_BOUND))


@manifest_guard
def people(manifests: Manifests) -> Found:
    """Let a team do all with its jobs, and nothing elsewhere ("Using RBAC Authorization")."""
    code, groups = Rule.TEAM_RIGHTS, {e.name: _group(e) for e in _teams(manifests)}
    entering: dict[str, set[str]] = {}
    for binding in manifests.of("RoleBinding", "ClusterRoleBinding"):
        space, role = binding.namespace, binding["roleRef"]["name"]
        names = [e["name"] for e in binding["subjects"] if e["name"].text.startswith(group_of(""))]
        for name in (each for each in names if each.text != groups.get(space, each.text)):
            found = f"{name.text} works in the namespace of {groups[space]}, with its files"
            yield name.finding(code, found, f"name {groups[space]}")
        own = manifests.named(binding["roleRef"]["kind"].text, role.text, space)
        given = {verb for rule in own["rules"] for verb in rule["verbs"].texts} if own else set()
        wide = space in groups and role.text in {"edit", "view"}
        right = (own and "*" not in given) if space in groups else given <= {*_READ.split()}
        found = f"{role.text} gives a team more than its jobs, or there is no such role"
        wrong = names and not wide and not (own and right)
        yield from report(code, wrong, role, found, "name the role of the teams, or edit")
        entering.setdefault(space, set()).update(each.text for each in names if wide or space == "")
    for quota in (e for e in manifests.of("ResourceQuota") if e["spec"]["hard"]["pods"].raw == 0):
        yield from quota["spec"].must_hold(Rule.TEAM_SHARE, _SYSTEM)
    for team in _teams(manifests) if manifests.of(_POLICY, f"{_POLICY}Binding") else ():
        yield from _what_a_team_has(manifests, team, entering)


def _what_a_team_has(
    manifests: Manifests, space: Object, entering: Mapping[str, set[str]]
) -> Found:
    code, group, place = Rule.TEAM_RIGHTS, _group(space), space.labels[TEAM_LABEL]
    bound = granted(manifests, {"kind": "Group", "name": group})
    rights = [("", *each) for each in _IN_CLUSTER]
    rights += [(space.name, *e) for e in _rights(manifests) if space.name in entering]
    for where, kind, resource, verbs in rights:
        roles = [rules for at, rules in bound if at == where]
        lost = lacking(roles, (kind, resource, verbs))
        found = f"{group} may not {lost} {resource}: its people cannot work with their jobs"
        remedy = f"bind a role with {verbs} for {resource} ({kind!r}) to it"
        yield from report(code, lost, roles[0] if roles else place, found, remedy)
    no_edit = space.name in entering and group not in entering[space.name]
    found = f"{group} lacks the role edit: its people see no pod, and no log"
    yield from report(code, no_edit, place, found, "bind ClusterRole edit to it")
    quotas = [each for each in manifests.of("ResourceQuota") if each.namespace == space.name]
    hard = {key: value for each in quotas for key, value in each["spec"]["hard"].items()}
    efa = any("efa" in each.name for each in manifests.of("DaemonSet"))
    for name in (e for e in (_GPUS, *[_CARDS] * efa, *_OTHERS) if quotas and e not in hard):
        found = f"no quota of {name}: this team can take those of all others"
        yield place.finding(Rule.TEAM_SHARE, found, f"add one of {name}")
    if efa and {_GPUS, _CARDS} <= hard.keys():
        yield from share_of_a_node(Rule.TEAM_SHARE, hard[_GPUS], hard[_CARDS])


def _rights(manifests: Manifests) -> list[tuple[str, str, str]]:
    kinds = [(e.group, e.plural, _WRITE) for e in WORKLOADS.values()]
    kinds += [(e.group, f"{e.runtime.lower()}s", _WRITE) for e in WORKLOADS.values() if e.runtime]
    return [*kinds, *(_QUEUES if manifests.of("LocalQueue") else ())]


def _teams(manifests: Manifests) -> list[Object]:
    return [e for e in manifests.of("Namespace") if e.labels[TEAM_LABEL]]


def _group(space: Object) -> str:
    return group_of(space.labels[TEAM_LABEL].text)


@manifest_guard
def quotas(manifests: Manifests) -> Found:
    """Have room for each job (Kubernetes, "Resource Quotas")."""
    for quota, job in product(manifests.of("ResourceQuota"), manifests.of(*WITH_PODS)):
        if job.namespace == quota.namespace and job.main_pod:
            yield from _room(quota, job, job.main_pod)


def _room(quota: Object, job: Object, pod: Pod) -> Found:
    scope = quota["spec"]["scopeSelector"]["matchExpressions"][0]
    own = pod.spec["priorityClassName"].text in scope["values"].texts
    if scope and own != (scope["operator"].text == "In"):
        return
    for name, limit in quota["spec"]["hard"].items():
        asked = pod.main["resources"]["requests"][name.removeprefix("requests.")].quantity or 0
        uncounted = "/" in name and not name.startswith(("requests.", "count/"))
        row = (limit, f"nobody counts {name}: pods take more", f"call it requests.{name}")
        yield from report(Rule.ABOVE_QUOTA, uncounted, *row)
        amount = job.wanted * (1 if name == "pods" else asked)
        found = f"{amount} of {name}, but quota {quota.name} allows {limit.raw}: no pod is created"
        wrong = limit.quantity is not None and amount > limit.quantity
        remedy = f"use fewer nodes, or raise {name} to {amount}"
        yield from report(Rule.ABOVE_QUOTA, wrong, job["spec"], found, remedy)
