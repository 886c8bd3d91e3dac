"""Guards of queues: from a job's label down to the network above its nodes.

Where a name leads to nothing, Kueue lets jobs wait for ever, and says so in an object's status.
"""

from itertools import product

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.components import DEFINITION
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.pods import EFA, GPU, POOL, share_of_a_node, tolerates_pool
from megatron_eks.guards.values import Found, Row, Value, report

_CLASS: Row = (kueue.PRIORITY_LABEL, (), "it comes after all that name a class")
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
        networks = [each["spec"]["levels"] for each in manifests.of("Topology")]
        levels = [level["nodeLabel"].text for each in networks for level in each]
        for pod in manifests.pods:
            near = pod.metadata["annotations"][kueue.PREFERRED_ANNOTATION]
            if pod.of_job and pod.owner.wanted > 1 and pod.asks(GPU) and levels:
                yield from near.must_be(Rule.QUEUE_SHARE, *levels, why="ranks start far apart")
        for job in manifests.of(*WORKLOADS):
            if job.labels[kueue.QUEUE_LABEL]:
                yield from job.labels.must_hold(Rule.QUEUE_SHARE, _CLASS)
            elif job.name in devices:
                found = "a job with GPUs in no queue takes the nodes of those that wait"
                yield job["metadata"].finding(Rule.MISSING_OBJECT, found, "add its label")


@manifest_guard
def shares(manifests: Manifests) -> Found:
    """Count what nodes have, for pods that may start there (Kueue, "Cluster Queue", "Flavors")."""
    code, efa = Rule.QUEUE_SHARE, any("efa" in each.name for each in manifests.of("DaemonSet"))
    for flavor in manifests.of("ResourceFlavor"):
        pool, listed = flavor["spec"]["nodeLabels"][POOL], flavor["spec"]["tolerations"]
        yield from pool.must_be(Rule.FLAVOR, flavor.name, why="its jobs start on other nodes")
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
            yield from _waiting(queue, label, pod, resource) if queue else ()


def _waiting(queue: Object, label: Value, pod: Pod, resource: str) -> Found:
    wanted = pod.owner.wanted * (pod.main["resources"]["limits"][resource].quantity or 0)
    own = [e.at(f"name={resource}") for e in queue.body.every(f"{_FLAVORS}resources")]
    most = sum(each["nominalQuota"].quantity or 0 for each in own)
    limited = own and all(each["borrowingLimit"].quantity == 0 for each in own)
    found = f"{wanted} of {resource}, but queue {queue.name} has {most}: it waits for ever"
    lost, remedy = limited and wanted > most, "use fewer nodes, or raise the quota"
    yield from report(Rule.ABOVE_QUOTA, lost, label, found, remedy)


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
