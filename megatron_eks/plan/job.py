"""The plan of a job: ranks, resources, arguments and environment, each computed once."""

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from megatron_eks.catalog.instances import (
    HUGEPAGES_REQUEST_MIB,
    MIB_PER_GIB,
    InstanceType,
)
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.job import MegatronJob
from megatron_eks.config.outputs import Image, is_digest
from megatron_eks.plan.arguments import megatron_arguments
from megatron_eks.plan.environment import job_environment
from megatron_eks.plan.quotas import TRAINING_PRIORITY
from megatron_eks.predict.memory import (
    CHECKPOINT_BYTES_PER_PARAMETER,
    Batch,
    Layout,
    MemoryEstimate,
    estimate,
    parameters,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from megatron_eks.plan.cluster import ClusterPlan
    from megatron_eks.plan.pools import PoolPlan

MIB = 1024**2

PROGRAMS = "/opt/megatron-eks/programs"

TRAINING_APP = "megatron-training"
"""Value of the label `app` on every training pod."""

# DaemonSets of a GPU node (CNI, kube-proxy, device plugins, CSI, monitoring), with room to spare.
_DAEMONSET_CPU_MILLIS = 2000
_DAEMONSET_MEMORY_MIB = 6 * MIB_PER_GIB

# Karpenter's allocatable sizes are estimates; a pod that asks for too much stays Pending for ever.
_MEMORY_MARGIN = 0.95
_MEMORY_STEP_MIB = 8 * MIB_PER_GIB
_SMALL_NODE_MIB = 64 * MIB_PER_GIB

_SCRATCH_GIB = 200

# A checkpoint write reaches about half of what the file system is sized for.
_WRITE_EFFICIENCY = 0.5
_GRACE_FLOOR_SECONDS = 120


@dataclass(frozen=True)
class Resources:
    """What one pod requests, and may use at most."""

    cpu_millis: int
    memory_mib: int
    gpus: int
    efa: int
    hugepages_mib: int
    shm_mib: int
    """Size of /dev/shm; a memory file system counts against the memory limit."""
    scratch_gib: int
    """Size of /tmp on the node's NVMe."""


@dataclass(frozen=True)
class JobPlan:
    """One training job."""

    name: str
    kind: str
    pool: "PoolPlan"
    nodes: int
    processes_per_node: int
    image: Image
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: "Mapping[str, str]"
    resources: Resources
    log_directory: str
    backoff_limit: int
    """Container restarts, summed over all pods, that end the job."""
    ttl_seconds: int
    grace_seconds: int
    """Time between SIGTERM and SIGKILL: long enough for a last checkpoint."""
    host_network: bool
    ipc_lock: bool
    priority_class: str
    model: ModelShape
    layout: Layout
    memory: MemoryEstimate
    checkpoint_bytes: int
    tokens: int
    """Tokens of the whole run."""

    @property
    def gpus(self) -> int:
        """Processes of the job, one for each GPU."""
        return self.nodes * self.processes_per_node

    @property
    def workers(self) -> int:
        """Nodes besides the master's."""
        return self.nodes - 1


def model_shape(model: str | ModelSpec) -> ModelShape:
    """Resolve a preset's name, a preset with changes, or a whole mapping.

    Raises KeyError for an unknown preset and TypeError for an incomplete mapping; the checks of
    `plan.job_checks` come first and say both in words.
    """
    if isinstance(model, str):
        return PRESETS[model]
    names = {field.name for field in fields(ModelShape)}
    changes = {
        name: value for name, value in model.model_dump(exclude_none=True).items() if name in names
    }
    return replace(PRESETS[model.preset], **changes) if model.preset else ModelShape(**changes)


def job_layout(job: MegatronJob, processes: int) -> Layout:
    """Return the layout over all processes; data parallel size is what remains."""
    parallelism = job.parallelism
    inner = parallelism.tensor * parallelism.pipeline * parallelism.context
    return Layout(
        tensor=parallelism.tensor,
        pipeline=parallelism.pipeline,
        context=parallelism.context,
        data=processes // inner,
        virtual_pipeline=parallelism.virtual_pipeline or 1,
        # Megatron switches it off by itself where there is nothing to shard.
        sequence_parallel=parallelism.sequence_parallel and parallelism.tensor > 1,
        distributed_optimizer=parallelism.distributed_optimizer,
    )


def job_memory(
    job: MegatronJob, model: ModelShape, layout: Layout, instance: InstanceType
) -> MemoryEstimate:
    """Estimate the memory of the job's ranks on its pool's GPUs."""
    training = job.training
    batch = Batch(
        micro_batch_size=training.micro_batch_size,
        sequence_length=training.sequence_length,
        microbatches=training.global_batch_size // (training.micro_batch_size * layout.data),
        recompute=training.recompute,
        recompute_method=training.recompute_method,
        recompute_layers=training.recompute_layers or 1,
    )
    return estimate(model, layout, batch, instance.gpu.usable_memory_mib * MIB)


def plan_job(job: MegatronJob, cluster: "ClusterPlan", images: "Mapping[str, Image]") -> JobPlan:
    """Plan a job that has passed the checks."""
    pool = cluster.pool(job.pool)
    processes_per_node = job.gpus_per_node or pool.instance.gpus
    model = model_shape(job.model)
    layout = job_layout(job, job.nodes * processes_per_node)
    checkpoint_bytes = parameters(model) * CHECKPOINT_BYTES_PER_PARAMETER
    log_directory = f"{cluster.storage.lustre.mount_path}/logs/{job.name}"
    write_mb_s = cluster.storage.lustre.throughput_mb_s * _WRITE_EFFICIENCY
    save_seconds = checkpoint_bytes / 1e6 / write_mb_s
    return JobPlan(
        name=job.name,
        kind=job.kind,
        pool=pool,
        nodes=job.nodes,
        processes_per_node=processes_per_node,
        image=Image(job.image, preview=False) if is_digest(job.image) else images[job.image],
        command=(job.runtime.torchrun_path, f"{PROGRAMS}/train_megatron.py"),
        args=(
            "--log-dir",
            log_directory,
            "--keep-last",
            str(job.checkpoint.keep_last),
            "--",
            *megatron_arguments(job, model, layout, log_directory),
        ),
        env=job_environment(job, layout, pool.instance, log_directory),
        resources=pod_resources(pool.instance, job.runtime.shm_gib),
        log_directory=log_directory,
        # The operator sums the restarts of all containers and fails the job when the sum reaches
        # the limit (kubeflow/trainer v1.9.4, pkg/core/job.go); one gang restart restarts every pod.
        backoff_limit=job.runtime.gang_restarts * job.nodes + 1,
        ttl_seconds=job.runtime.keep_days * 24 * 3600,
        grace_seconds=max(_GRACE_FLOOR_SECONDS, math.ceil(save_seconds / 60 + 1) * 60),
        host_network=job.runtime.host_network,
        ipc_lock=job.runtime.ipc_lock,
        priority_class=job.runtime.priority_class or TRAINING_PRIORITY,
        model=model,
        layout=layout,
        memory=job_memory(job, model, layout, pool.instance),
        checkpoint_bytes=checkpoint_bytes,
        tokens=job.training.train_iters
        * job.training.global_batch_size
        * job.training.sequence_length,
    )


def pod_resources(instance: InstanceType, shm_gib: int) -> Resources:
    """Give a pod its whole node, less what DaemonSets and huge pages take."""
    return Resources(
        cpu_millis=cpu_limit_millis(instance),
        memory_mib=memory_limit_mib(instance),
        gpus=instance.gpus,
        efa=instance.efa_interfaces,
        hugepages_mib=HUGEPAGES_REQUEST_MIB if instance.efa_interfaces else 0,
        shm_mib=shm_gib * MIB_PER_GIB,
        scratch_gib=_SCRATCH_GIB,
    )


def cpu_limit_millis(instance: InstanceType) -> int:
    """Return the CPU of a pod in whole cores, in thousandths."""
    return (instance.allocatable_cpu_millis - _DAEMONSET_CPU_MILLIS) // 1000 * 1000


def memory_limit_mib(instance: InstanceType) -> int:
    """Return the memory of a pod; preallocated huge pages are gone from the kubelet's sum."""
    left = instance.allocatable_memory_mib - instance.hugepages_mib - _DAEMONSET_MEMORY_MIB
    step = _MEMORY_STEP_MIB if left > _SMALL_NODE_MIB else MIB_PER_GIB
    return int(left * _MEMORY_MARGIN) // step * step
