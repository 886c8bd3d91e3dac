"""Which instance types the nodes of pods have, and what these offer."""

from collections.abc import Iterator
from enum import StrEnum

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.guards.manifests import Manifests, Object, Pod
from megatron_eks.guards.values import Found, Value, report

GPU, EFA, MIB = "nvidia.com/gpu", "vpc.amazonaws.com/efa", 1024**2
_NEEDED = "requiredDuringSchedulingIgnoredDuringExecution nodeSelectorTerms *"


def share_of_a_node(code: StrEnum, gpus: Value, cards: Value) -> Found:
    """Report so many EFA devices for so many GPUs as no type of nodes has."""
    wanted = gpus.quantity or 0
    right = (-(-wanted * e.efa_interfaces // e.gpus) == cards.quantity for e in INSTANCES.values())
    found = f"{gpus.raw} GPUs with {cards.raw} EFA devices are no share of any node"
    yield from report(code, not any(right), cards, found, "count both of the same nodes")


def type_values(daemon: Object) -> Iterator[Value]:
    """Return the instance types that a DaemonSet's affinity lists."""
    for pod in daemon.pods:
        for each in pod.spec.every(f"affinity nodeAffinity {_NEEDED} matchExpressions *"):
            yield from each["values"] if "instance-type" in each["key"].text else ()


def left_out(manifests: Manifests) -> str:
    """Return what the types that the EFA plugin names lack: a pool's, or that of all jobs."""
    plugins = [each for each in manifests.of("DaemonSet") if "efa" in each.name]
    named = {value.text for each in plugins for value in type_values(each)}
    for pool, kind in sorted(manifests.pools.items()) if named else ():
        if kind not in named and kind in INSTANCES and INSTANCES[kind].efa_interfaces:
            return f"{kind}, the type of pool {pool}"
    asking = [each for each in manifests.pods if each.of_job and each.asks(EFA)]
    alone = len({each.owner.name for each in asking}) < 2  # noqa: PLR2004 -- then the job is wrong
    nowhere = not alone and named and not any(node_types(manifests, each) for each in asking)
    return "a type with what jobs ask for" if nowhere else ""


def node_types(manifests: Manifests, pod: Pod) -> list[InstanceType]:
    """Return the types that a pod's nodes may have: those of the EFA plugin, or the smallest."""
    asked = pod.main["resources"]["limits"]
    gpus, efa, size = (int(asked[e].quantity or 0) for e in (GPU, EFA, "memory"))
    plugins = [each for each in manifests.of("DaemonSet") if "efa" in each.name and efa]
    named = sorted({value.text for each in plugins for value in type_values(each)})
    known = [INSTANCES[each] for each in named if each in INSTANCES]
    # A pod has the EFA devices beside its GPUs; one that asks for no GPU takes all of them.
    wide = [each for each in known or INSTANCES.values() if each.gpus >= max(gpus, 1)]
    fitting = [each for each in wide if efa in (0, each.efa_beside(gpus or each.gpus))]
    large = [e.memory_mib for e in fitting if e.memory_mib - e.hugepages_mib > size / MIB]
    return [each for each in fitting if known or each.memory_mib == min(large, default=0)]
