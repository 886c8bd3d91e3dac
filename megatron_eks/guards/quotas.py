"""Guards of quotas, and which nodes a pod may have."""

from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.values import Value, report

GPU, EFA, HUGE_PAGES = "nvidia.com/gpu", "vpc.amazonaws.com/efa", "hugepages-2Mi"
JOBS, MIB = ("Job", "PyTorchJob"), 1024**2
_GPUS = f"requests.{GPU}"
_NEEDED = "requiredDuringSchedulingIgnoredDuringExecution"


@manifest_guard
def quotas(manifests: Manifests) -> Iterator[Finding]:
    """Count devices of all classes that exist, in whole nodes, with room for each job (Quotas)."""
    named = {v.text for e in manifests.of("DaemonSet") if "efa" in e.name for v in type_values(e)}
    types = [INSTANCES[each] for each in named & INSTANCES.keys()]
    classes = " or ".join(sorted(e.name for e in manifests.of("PriorityClass")))
    for quota in manifests.of("ResourceQuota"):
        hard, scope = quota["spec"]["hard"], _scope(quota)
        for each in scope["values"]:
            found = f"no priority class {each.text!r}: the quota counts nothing for it"
            if manifests.lacks("PriorityClass", each.text) and not each.text.startswith("system-"):
                yield each.finding(Code.MISSING_OBJECT, found, f"name {classes}")
        gpus, efa = (hard[f"requests.{each}"].quantity or 0 for each in (GPU, EFA))
        counting = [e for e in manifests.of("ResourceQuota") if e["spec"]["hard"][_GPUS]]
        others = [_scope(e) for e in counting if e.namespace == quota.namespace and e is not quota]
        wanted = {"In": "NotIn", "NotIn": "In"}.get(scope["operator"].text, "In or NotIn")
        pair = [e["operator"].text for e in others if e["values"].raw == scope["values"].raw]
        lost = hard[_GPUS] and wanted not in pair and (scope or others)
        found = "no second quota for all other classes: their pods take GPUs without a limit"
        yield from report(Code.QUOTA_NAME, (lost, scope, found, f"add one with operator {wanted}"))
        for node in types if len(types) == 1 else ():
            wrong = gpus % node.gpus or gpus * node.efa_interfaces != efa * node.gpus
            found = f"{gpus} GPUs and {efa} EFA devices are no whole nodes: the last is never used"
            remedy = f"write {node.gpus} and {node.efa_interfaces} for each {node.name}"
            yield from report(Code.ABOVE_QUOTA, (wrong, hard, found, remedy))
        for job in manifests.of("PyTorchJob", "Job"):
            if job.namespace == quota.namespace and job.main_pod:
                yield from _room(quota, job, job.main_pod)


def _room(quota: Object, job: Object, pod: Pod) -> Iterator[Finding]:
    scope, own = _scope(quota), pod.spec["priorityClassName"].text
    if scope and (own in scope["values"].texts) != (scope["operator"].text == "In"):
        return
    roles = [e["replicas"] for _, e in job["spec"]["pytorchReplicaSpecs"].items()]
    pods = int(sum(e.number or 0 for e in roles or [job["spec"]["parallelism"]])) or 1
    for name, limit in quota["spec"]["hard"].items():
        asked = pod.main["resources"]["requests"][name.removeprefix("requests.")].quantity or 0
        amount = pods * (1 if name == "pods" else asked)
        found = f"{amount} of {name}, and quota {quota.name} ends at {limit.raw}: pods are not made"
        wrong = limit.quantity is not None and amount > limit.quantity
        row = (wrong, job["spec"], found, f"use fewer nodes, or set {name} to {amount}")
        yield from report(Code.ABOVE_QUOTA, row)


def type_values(daemon: Object) -> Iterator[Value]:
    """Return the instance types that a DaemonSet's affinity lists."""
    for pod in daemon.pods:
        for term in pod.spec["affinity"]["nodeAffinity"][_NEEDED]["nodeSelectorTerms"]:
            for each in term["matchExpressions"]:
                yield from each["values"] if "instance-type" in each["key"].text else ()


def node_types(manifests: Manifests, pod: Pod) -> list[InstanceType]:
    """Return the types that a pod's nodes may have: those of the EFA plugin, or the smallest."""
    asked = pod.main["resources"]["limits"]
    gpus, efa, size = (int(asked[e].quantity or 0) for e in (GPU, EFA, "memory"))
    plugins = [each for each in manifests.of("DaemonSet") if "efa" in each.name and efa]
    named = sorted({value.text for each in plugins for value in type_values(each)})
    known = [INSTANCES[each] for each in named if each in INSTANCES]
    # A pod has the EFA devices beside its GPUs; one that asks for no GPU takes all of them.
    fitting = [
        each
        for each in known or INSTANCES.values()
        if each.gpus >= max(gpus, 1) and (not efa or efa == _share(each, gpus))
    ]
    large = [e.memory_mib for e in fitting if e.memory_mib - e.hugepages_mib > size / MIB]
    return [each for each in fitting if known or each.memory_mib == min(large, default=0)]


def _share(node: InstanceType, gpus: int) -> int:
    whole = node.efa_interfaces
    return max(whole * (gpus or node.gpus) // node.gpus, min(whole, 1))


def _scope(quota: Object) -> Value:
    return quota["spec"]["scopeSelector"]["matchExpressions"][0]
