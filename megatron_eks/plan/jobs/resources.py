"""What a pod gets of its node: all of it, its GPUs' share, or a part of a system node."""

from dataclasses import dataclass, replace

from megatron_eks.catalog.instances import (
    HUGEPAGES_REQUEST_MIB,
    INSTANCES,
    MIB_PER_GIB,
    InstanceType,
    system_node_size,
)
from megatron_eks.config.cluster import ClusterConfig, GpuPool
from megatron_eks.config.job import GpuJob, Job
from megatron_eks.config.runtime import Runtime
from megatron_eks.plan.cluster.cluster import ClusterPlan

# DaemonSets of a GPU node (CNI, kube-proxy, device plugins, CSI, monitoring), with room to spare.
_DAEMONSET_CPU_MILLIS = 2000
_DAEMONSET_MEMORY_MIB = 6 * MIB_PER_GIB

# Karpenter's allocatable sizes are estimates; a pod that asks for too much stays Pending for ever.
_MEMORY_MARGIN = 0.95
_MEMORY_STEP_MIB = 8 * MIB_PER_GIB
_SMALL_NODE_MIB = 64 * MIB_PER_GIB

_SCRATCH_GIB = 200
# A system node has one small volume for images and all pods.
_SYSTEM_SCRATCH_GIB = 10

# What torch's data loaders of a whole node share; the source guide's size.
_SHM_GIB = 128

# The other half of a system node is for add-ons and operators.
_SYSTEM_SHARE = 2

_HUGEPAGE_MIB = 2


@dataclass(frozen=True)
class Resources:
    """What one pod requests, and may use at most."""

    cpu_millis: int
    memory_mib: int
    gpus: int = 0
    efa: int = 0
    hugepages_mib: int = 0
    shm_mib: int = 0
    """Size of /dev/shm; a memory file system counts against the memory limit."""
    scratch_gib: int = _SCRATCH_GIB
    """Size of /tmp on the node's NVMe."""


def gpu_resources(
    instance: InstanceType, gpus: int, *, nodes: int, shm_gib: int | None
) -> Resources:
    """Give a pod its GPUs' share of a node, less what DaemonSets and huge pages take.

    The share of a node that runs its job alone needs no network card; several nodes need one each.
    """
    efa = instance.efa_beside(gpus) if nodes > 1 or gpus == instance.gpus else 0
    hugepages = HUGEPAGES_REQUEST_MIB * gpus // instance.gpus
    memory = memory_limit_mib(instance, gpus)
    usual_shm = min(_SHM_GIB * MIB_PER_GIB * gpus // instance.gpus, memory // 2)
    return Resources(
        cpu_millis=cpu_limit_millis(instance, gpus),
        memory_mib=memory,
        gpus=gpus,
        efa=efa,
        hugepages_mib=hugepages // _HUGEPAGE_MIB * _HUGEPAGE_MIB if efa else 0,
        shm_mib=usual_shm if shm_gib is None else shm_gib * MIB_PER_GIB,
    )


def cpu_limit_millis(instance: InstanceType, gpus: int) -> int:
    """Return the CPU of a pod in whole cores, in thousandths."""
    left = (instance.allocatable_cpu_millis - _DAEMONSET_CPU_MILLIS) * gpus // instance.gpus
    left = max(1000, left)
    return left // 1000 * 1000


def memory_limit_mib(instance: InstanceType, gpus: int) -> int:
    """Return the memory of a pod; preallocated huge pages are gone from the kubelet's sum."""
    left = instance.allocatable_memory_mib - instance.hugepages_mib - _DAEMONSET_MEMORY_MIB
    step = _MEMORY_STEP_MIB if left > _SMALL_NODE_MIB else MIB_PER_GIB
    whole = int(left * _MEMORY_MARGIN) // step * step
    return whole * gpus // instance.gpus // MIB_PER_GIB * MIB_PER_GIB


def wished(resources: Resources, runtime: Runtime) -> Resources:
    """Give a pod the cores and the memory that its job file asks for, where it does."""
    cpu = runtime.cpu * 1000 if runtime.cpu else resources.cpu_millis
    memory = runtime.memory_gib * MIB_PER_GIB if runtime.memory_gib else resources.memory_mib
    shm = resources.shm_mib if runtime.shm_gib else min(resources.shm_mib, memory // 2)
    return replace(resources, cpu_millis=cpu, memory_mib=memory, shm_mib=shm)


def job_memory_mib(job: GpuJob, instance: InstanceType) -> int:
    """Return the memory of a job's pods."""
    wish = job.runtime.memory_gib
    gpus = min(gpus_per_node(job, instance), instance.gpus)
    return wish * MIB_PER_GIB if wish else memory_limit_mib(instance, gpus)


def system_resources(instance_type: str) -> Resources:
    """Give a pod half of a system node, so that two of them, or the add-ons, fit beside it."""
    vcpus, memory_mib = system_node_size(instance_type)
    return Resources(
        cpu_millis=vcpus * 1000 // _SYSTEM_SHARE,
        memory_mib=memory_mib // _SYSTEM_SHARE,
        scratch_gib=_SYSTEM_SCRATCH_GIB,
    )


def gpus_per_node(job: GpuJob, instance: InstanceType) -> int:
    """Return how many GPUs of each node a job takes."""
    return job.gpus_per_node or instance.gpus


def job_gpus(job: GpuJob, instance: InstanceType) -> int:
    """Return how many GPUs a job takes, of all its nodes."""
    return job.nodes * gpus_per_node(job, instance)


def gpu_pool(job: Job, cluster: ClusterConfig) -> GpuPool | None:
    """Return the pool of a job, if there is one and its type is known."""
    named = (pool for pool in cluster.gpu_pools if pool.name == job.pool)
    return next((pool for pool in named if pool.instance_type in INSTANCES), None)


def gpu_instance(job: Job, cluster: ClusterConfig) -> InstanceType | None:
    """Return the type of a job's nodes, if it has a pool and its type is known."""
    pool = gpu_pool(job, cluster)
    return INSTANCES[pool.instance_type] if pool is not None else None


def task_node(job: Job, cluster: ClusterPlan) -> Resources:
    """Return all that a pod without GPUs can have: of a GPU node, or half of a system node."""
    half = system_resources(cluster.system_nodes.instance_type)
    whole = whole_node(cluster.pool(job.pool).instance) if job.pool else half
    return wished(whole, job.runtime)


def whole_node(instance: InstanceType) -> Resources:
    """Give a pod without GPUs what all GPUs of a node would bring along."""
    gpus = instance.gpus
    return Resources(cpu_limit_millis(instance, gpus), memory_limit_mib(instance, gpus))
