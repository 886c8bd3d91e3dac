"""Guards of what teams share: who they are, what they may do, their quotas, and the queues."""

from collections.abc import Mapping
from itertools import product

from megatron_eks.catalog import kueue
from megatron_eks.catalog.pins import TEAM_LABEL, UID_LABEL, group_of
from megatron_eks.catalog.workloads import WITH_PODS, WORKLOADS
from megatron_eks.config.load import Json
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.components import DEFINITION
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.node_types import EFA, GPU, share_of_a_node
from megatron_eks.guards.pods import POOL, tolerates_pool
from megatron_eks.guards.rights import granted, lacking
from megatron_eks.guards.values import Found, Row, Value, report, same

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
_OWN = [(e.group, e.plural, _WRITE) for e in WORKLOADS.values()]
_OWN += [(e.group, f"{e.runtime.lower()}s", _WRITE) for e in WORKLOADS.values() if e.runtime]
_QUEUES = tuple((kueue.GROUP, each, _READ) for each in ("localqueues", "workloads"))
_CLASS: Row = (kueue.PRIORITY_LABEL, (), "it comes after all that name a class")
_CLASSES = ("training", "validation")
_SPACE, _GROUPS = "kubernetes.io/metadata.name", "resourceGroups"
_JOBS, _FLAVORS = tuple(WORKLOADS), "spec resourceGroups * flavors * "
_CHECKS = "spec admissionChecksStrategy admissionChecks * "
# What names another object: by what, and of which kind. Jobs need no label, all others a name.
_NAMES = (
    (_JOBS, f"metadata labels {kueue.QUEUE_LABEL}", "LocalQueue"),
    (_JOBS, f"metadata labels {kueue.PRIORITY_LABEL}", "WorkloadPriorityClass"),
    (("LocalQueue",), "spec clusterQueue", "ClusterQueue"),
    (("ClusterQueue", "Cohort"), f"{_FLAVORS}name", "ResourceFlavor"),
    (("ClusterQueue",), f"{_CHECKS}name", "AdmissionCheck"),
    (("ClusterQueue",), f"{_CHECKS}onFlavors *", "ResourceFlavor"),
    (("ResourceFlavor",), "spec topologyName", "Topology"),
)
_QUEUE = (
    ("resourceGroups", (), "it has no nodes, and jobs wait for ever"),
    ("preemption withinClusterQueue", ("LowerPriority",), "no class of jobs comes before another"),
    ("preemption reclaimWithinCohort", ("Any",), "a team waits for nodes that it has lent"),
)


@manifest_guard
def users(manifests: Manifests) -> Found:
    """Hold pods to the user of their team's namespace ("Validating Admission Policy")."""
    code, bindings = Rule.TEAM_USER, manifests.of(f"{_POLICY}Binding")
    policies = [e for e in manifests.of(_POLICY) if "runAsUser" in str(e["spec"].raw)]
    for space in _teams(manifests) if bindings and not policies else ():
        found, remedy = f"no policy holds its pods to its user: {_LOOSE}", "apply 13-teams too"
        yield space.labels[UID_LABEL].finding(code, found, remedy)
    for space in _teams(manifests):
        yield from space.labels.must_hold(code, (UID_LABEL, (), f"it has no user: {_LOOSE}"))
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
    own = (*_OWN, *(_QUEUES if manifests.of("LocalQueue") else ()))
    rights += [(space.name, *each) for each in own if space.name in entering]
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


def _teams(manifests: Manifests) -> list[Object]:
    return [e for e in manifests.of("Namespace") if e.labels[TEAM_LABEL]]


def _group(space: Object) -> str:
    return group_of(space.labels[TEAM_LABEL].text)


@manifest_guard
def quotas(manifests: Manifests) -> Found:
    """Have room for each job, and runs before checks ("Resource Quotas"; "Pod Priority")."""
    runs, checks = (manifests.named("PriorityClass", f"megatron-{each}") for each in _CLASSES)
    if runs and checks:
        high, low = (each["value"].number or 0 for each in (runs, checks))
        found, remedy = f"not above the {low} of checks, which evict training", "write a higher one"
        yield from report(Rule.MANIFEST_VALUE, high <= low, runs["value"], found, remedy)
        why = "a check that waits would evict others"
        yield from checks["preemptionPolicy"].must_be(Rule.MANIFEST_VALUE, "Never", why=why)
    for quota, job in product(manifests.of("ResourceQuota"), manifests.of(*WITH_PODS)):
        pod = job.main_pod
        if job.namespace != quota.namespace or not pod:
            continue
        scope = quota["spec"]["scopeSelector"]["matchExpressions"][0]
        own = pod.spec["priorityClassName"].text in scope["values"].texts
        if scope and own != (scope["operator"].text == "In"):
            continue
        for name, limit in quota["spec"]["hard"].items():
            asked = pod.main["resources"]["requests"][name.removeprefix("requests.")].quantity or 0
            uncounted = "/" in name and not name.startswith(("requests.", "count/"))
            row = (limit, f"nobody counts {name}: pods take more", f"call it requests.{name}")
            yield from report(Rule.ABOVE_QUOTA, uncounted, *row)
            amount = job.wanted * (1 if name == "pods" else asked)
            found = f"{amount} of {name}, but quota {quota.name} has {limit.raw}: no pod is created"
            wrong = limit.quantity is not None and amount > limit.quantity
            remedy = f"use fewer nodes, or raise {name} to {amount}"
            yield from report(Rule.ABOVE_QUOTA, wrong, job["spec"], found, remedy)


@manifest_guard
def queues(manifests: Manifests) -> Found:
    """Let every queue lead to nodes, and every job with a queue have one."""
    for by, path, kind in _NAMES:
        for each, value in ((e, value) for e in manifests.of(*by) for value in e.body.every(path)):
            known = [e.name for e in manifests.of(kind) if e.namespace in {"", each.namespace}]
            missing = known and value.text not in known and (value or by != _JOBS)
            found, remedy = f"no {kind} {value.text!r}: jobs wait for ever", ", ".join(known)
            yield from report(Rule.MISSING_OBJECT, missing, value, found, f"use one of {remedy}")
    for queue in manifests.of("ClusterQueue"):
        spec, uses = queue["spec"], manifests.of("LocalQueue")
        spaces = [e.namespace for e in uses if e["spec"]["clusterQueue"].text == queue.name]
        chosen, why = spec["namespaceSelector"]["matchLabels"][_SPACE], "no job of it ever starts"
        yield from chosen.must_be(Rule.MISSING_OBJECT, *spaces, why=why) if spaces else ()
        yield from spec.must_hold(Rule.MISSING_OBJECT, *_QUEUE)
    if any(manifests.of("LocalQueue")):
        # The pods of a TrainJob stand in the runtime of its name.
        devices = {each.owner.name for each in manifests.pods if each.asks("nvidia.com/gpu")}
        for pod in manifests.pods:
            near = pod.metadata["annotations"][kueue.PREFERRED_ANNOTATION]
            levels = _levels(manifests, pod) if pod.of_job and pod.asks(GPU) else []
            if levels[1:] and pod.owner.wanted > 1:  # the last is the node itself
                yield from near.must_be(Rule.QUEUE_SHARE, *levels, why="ranks start far apart")
        for job in manifests.of(*WORKLOADS):
            if job.labels[kueue.QUEUE_LABEL]:
                yield from job.labels.must_hold(Rule.QUEUE_SHARE, _CLASS)
            elif job.name in devices:
                found = "a job with GPUs in no queue takes the nodes of those that wait"
                yield job["metadata"].finding(Rule.MISSING_OBJECT, found, "add its label")


def _levels(manifests: Manifests, pod: Pod) -> list[str]:
    """Return what names the parts of the network that the nodes of a pod's pool are in."""
    flavor = manifests.named("ResourceFlavor", pod.spec["nodeSelector"][POOL].text, "")
    name = flavor["spec"]["topologyName"].text if flavor else ""
    network = manifests.named("Topology", name, "")
    return [e["nodeLabel"].text for e in network["spec"]["levels"]] if network else []


@manifest_guard
def shares(manifests: Manifests) -> Found:
    """Count what nodes have, for pods that may start there (Kueue, "Cluster Queue", "Flavors")."""
    code, efa = Rule.QUEUE_SHARE, any("efa" in each.name for each in manifests.of("DaemonSet"))
    for flavor in manifests.of("ResourceFlavor"):
        pool, listed = flavor["spec"]["nodeLabels"][POOL], flavor["spec"]["tolerations"]
        yield from pool.must_be(Rule.FLAVOR, flavor.name, why="it fits no job of this pool")
        refused, remedy = not any(map(tolerates_pool, listed)), f"tolerate {GPU} with NoSchedule"
        found = "it does not tolerate the taint of its nodes: Kueue finds no room for any job"
        yield from report(Rule.FLAVOR, refused, listed, found, remedy)
    for group in (g for e in manifests.of("ClusterQueue", "Cohort") for g in e["spec"][_GROUPS]):
        covered = group["coveredResources"]
        for name in (each for each in (GPU, *[EFA] * efa) if each not in covered.texts):
            found = f"{name} is not counted: jobs start for which there is no node"
            yield covered.finding(code, found, f"add {name}, and its quotas")
        for share in (flavor["resources"] for flavor in group["flavors"]):
            other = [each["name"].text for each in share] != covered.texts
            found = "not the covered resources in their order: Kueue refuses the queue"
            yield from report(code, other, share, found, f"name {covered.texts}")
            gpus, cards = (share.at(f"name={each}")["nominalQuota"] for each in (GPU, EFA))
            yield from share_of_a_node(code, gpus, cards) if efa and cards else ()
    for job in manifests.of(*WORKLOADS):
        label, space = job.labels[kueue.QUEUE_LABEL], job.namespace
        local = manifests.named("LocalQueue", label.text, space)
        queue = manifests.named("ClusterQueue", local["spec"]["clusterQueue"].text if local else "")
        runtime = manifests.named("TrainingRuntime", job.name, space)
        pods = [*job.pods, *(runtime.pods if runtime else ())]
        for pod, resource in product(pods[:1], (GPU, EFA)):
            wanted = pod.owner.wanted * (pod.main["resources"]["limits"][resource].quantity or 0)
            own = _quotas([queue] if queue else [], resource)
            alone = all(each["borrowingLimit"].quantity == 0 for each in own)
            # It borrows from its own cohort: all queues are never less.
            lenders = own if alone else _quotas(manifests.of("ClusterQueue", "Cohort"), resource)
            most = sum(each["nominalQuota"].quantity or 0 for each in lenders)
            whose = "its queue has" if alone else "all queues together have"
            found = f"{wanted} of {resource}, but {whose} {most}: it waits for ever"
            lost, remedy = own and wanted > most, "use fewer nodes, or raise the quota"
            yield from report(Rule.ABOVE_QUOTA, lost, label, found, remedy)


def _quotas(queues: list[Object], resource: str) -> list[Value]:
    shares = [share for each in queues for share in each.body.every(f"{_FLAVORS}resources")]
    return [own for each in shares if (own := each.at(f"name={resource}"))]


@manifest_guard
def asked(manifests: Manifests) -> Found:
    """Let Kueue hold back every kind of job that there is, or those pass all that wait."""
    code = Rule.UNQUEUED
    for each in (e for e in manifests.of("ConfigMap") if e.namespace == kueue.NAMESPACE):
        settings = each["data"]["configuration.json"].parsed
        frameworks = settings["integrations"]["frameworks"]
        hooks = [e for e in manifests.of("MutatingWebhookConfiguration") if "kueue" in e.name]
        rules = [e for hook in hooks for e in hook.body.every("webhooks * rules * resources")]
        plurals = {text for each in rules for text in each.texts}
        for kind, known in WORKLOADS.items():
            defined = manifests.named(DEFINITION, f"{known.plural}.{known.group}")
            there, name = defined or known.controller is None, kueue.FRAMEWORKS[kind]
            missing, found = there and name not in frameworks.texts, f"{name} is missing: a {kind}"
            place, remedy = frameworks or each["data"], "add it to integrations.frameworks"
            yield from report(code, missing, place, f"{found} waits for no turn", remedy)
            for hook in hooks[:1] if there and known.plural not in plurals else ():
                found = f"Kueue is not asked about {known.plural}: they wait for no turn"
                yield hook["webhooks"].finding(code, found, "add the webhook of them")
        row = ("resources quotaCheckStrategy", ("IgnoreUndeclared",), "jobs wait for CPUs for ever")
        yield from settings.must_hold(code, row)
