"""Checks of nodes: what each offers against what its instance type has."""

from collections.abc import Iterator
from enum import StrEnum

from megatron_eks.catalog.instances import HUGEPAGES_REQUEST_MIB
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.ops.checks import in_kubernetes
from megatron_eks.ops.cluster.inside.facts import Live
from megatron_eks.ops.jobs.room import NodeRoom
from megatron_eks.plan.cluster.pools import POOL_LABEL, PoolPlan

_TYPE = "node.kubernetes.io/instance-type"
_ZONE = "topology.kubernetes.io/zone"
_MIB = 2**20


def _pairs(live: Live) -> Iterator[tuple[NodeRoom, PoolPlan]]:
    pools = {pool.name: pool for pool in live.plan.pools}
    for node in live.nodes:
        pool = pools.get(node.labels.get(POOL_LABEL, ""))
        if pool is not None:
            yield node, pool


def _path(node: NodeRoom, field: str) -> Path:
    return (f"Node/{node.name}", field)


def state(live: Live) -> Iterator[Finding]:
    """Ask for nodes that are ready and take pods."""
    for node in live.nodes:
        path = _path(node, "status")
        if not node.ready:
            remedy = f"kubectl describe node {node.name}; if it stays so, give it back"
            yield in_kubernetes(Code.NODE_STATE, path, "it is not ready", remedy)
        elif node.cordoned:
            remedy = f"if nobody means it: kubectl uncordon {node.name}"
            found = "it is cordoned and takes no pods"
            yield in_kubernetes(Code.NODE_STATE, path, found, remedy, Level.WARNING)


def types(live: Live) -> Iterator[Finding]:
    """Compare type and zone with the pool's: resources of jobs are computed for them."""
    for node, pool in _pairs(live):
        for label, wanted in ((_TYPE, pool.instance.name), (_ZONE, pool.zone)):
            found = node.labels.get(label)
            if found != wanted:
                text = f"{found}, and pool {pool.name} says {wanted}"
                remedy = "meks deploy, then take the nodes again"
                yield in_kubernetes(Code.NODE_TYPE, _path(node, label), text, remedy)


def gpus(live: Live) -> Iterator[Finding]:
    """Compare GPUs with the catalogue."""
    for node, pool in _pairs(live):
        yield from _device(node, "nvidia.com/gpu", pool.instance.gpus, Code.NODE_GPUS)


def efa(live: Live) -> Iterator[Finding]:
    """Compare EFA interfaces with the catalogue."""
    for node, pool in _pairs(live):
        wanted = pool.instance.efa_interfaces
        yield from _device(node, "vpc.amazonaws.com/efa", wanted, Code.NODE_EFA)


def _device(node: NodeRoom, device: str, wanted: int, code: StrEnum) -> Iterator[Finding]:
    # A node whose kubelet is silent offers nothing new.
    offered = int(node.allocatable.get(device, 0))
    if node.ready and offered < wanted:
        text = f"{offered} of {wanted} {device}"
        remedy = f"start its device plugin again: meks fix {code}; else replace the node"
        yield in_kubernetes(code, _path(node, "status.allocatable"), text, remedy)
    elif offered > wanted:
        text = f"{offered} {device}, and its type has {wanted}"
        remedy = "look for a plugin that shares devices; jobs expect whole ones"
        yield in_kubernetes(code, _path(node, "status.allocatable"), text, remedy, Level.WARNING)


def huge_pages(live: Live) -> Iterator[Finding]:
    """Ask for the huge pages that a pod with EFA takes."""
    for node, pool in _pairs(live):
        if not (pool.instance.efa_interfaces and node.ready):
            continue
        offered = int(node.allocatable.get("hugepages-2Mi", 0)) // _MIB
        if offered < HUGEPAGES_REQUEST_MIB:
            text = f"{offered} MiB of hugepages-2Mi, and a pod asks for {HUGEPAGES_REQUEST_MIB}"
            remedy = "use an EKS AMI with the EFA driver, and replace the node"
            path = _path(node, "status.allocatable")
            yield in_kubernetes(Code.NODE_HUGE_PAGES, path, text, remedy)


def taints(live: Live) -> Iterator[Finding]:
    """Ask for the taint that keeps pods without GPUs away."""
    key = live.plan.platform.gpu_taint
    for node, _ in _pairs(live):
        if not any(taint["key"] == key for taint in node.taints):
            text = f"no taint {key}, so any pod may fill it"
            remedy = f"put it back: meks fix {Code.NODE_TAINT}"
            yield in_kubernetes(Code.NODE_TAINT, _path(node, "spec.taints"), text, remedy)
