"""What the ranks of a run take of GPUs and hosts, and how fast they are."""

from collections.abc import Callable, Iterator

from megatron_eks.catalog.instances import MIB_PER_GIB, InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.job import Elastic, MegatronRun, TorchRun
from megatron_eks.plan.jobs.job import MIB
from megatron_eks.plan.jobs.layout import arguments, job_batch
from megatron_eks.plan.jobs.resources import gpus_per_node, memory_limit_mib
from megatron_eks.predict.hardware import Hardware
from megatron_eks.predict.layout import Layout, megatron_states
from megatron_eks.predict.memory import GIB, MemoryEstimate, estimate, tensor_capacity_bytes
from megatron_eks.predict.throughput import Speed, megatron_speed

_BITS = 8


def job_memory(
    job: MegatronRun, model: ModelShape, layout: Layout, instance: InstanceType
) -> MemoryEstimate:
    """Estimate the memory of the job's ranks on its pool's GPUs."""
    states, batch = megatron_states(arguments(job)), job_batch(job, layout)
    return estimate(model, layout, batch, capacity_bytes(instance), states)


def job_speed(
    job: MegatronRun, model: ModelShape, layout: Layout, instance: InstanceType
) -> Speed | None:
    """Predict the steps of a job on its pool; None where the GPU's peak is unknown."""
    found = hardware(instance)
    return megatron_speed(model, layout, job_batch(job, layout), found) if found else None


def hardware(instance: InstanceType) -> Hardware | None:
    """Return what predictions need of an instance type; None where a GPU's peak is unknown."""
    gpu = instance.gpu
    if gpu.tflops_bf16 is None:
        return None
    return Hardware(
        gpu=gpu.name,
        tflops_bf16=gpu.tflops_bf16,
        tflops_fp8=gpu.tflops_fp8,
        nvlink_gb_s=instance.nvlink_gb_s,
        network_gb_s_per_gpu=instance.network_gbps / _BITS / instance.gpus,
        gpus_per_node=instance.gpus,
    )


def capacity_bytes(instance: InstanceType) -> int:
    """Return what tensors can have of each GPU."""
    return tensor_capacity_bytes(instance.gpu.usable_memory_mib * MIB)


# Above this share of a GPU's memory, fragmentation decides whether a run survives.
_TIGHT = 0.92


# A process of torch with CUDA, NCCL and its libraries, and one that loads data: both in memory.
_RANK_BYTES, _WORKER_BYTES = 3 * GIB, GIB // 2


def check_host(
    job: MegatronRun | TorchRun, instance: InstanceType, staged: int, offloaded: int = 0
) -> Iterator[Finding]:
    """Compare what a save and the optimizer put into a host's memory with the pod's limit.

    An asynchronous save copies every shard to the host before it is written: torch,
    `distributed/checkpoint/staging.py`, and Megatron-LM, `filesystem_async.py`.
    """
    gpus = gpus_per_node(job, instance)
    limit = memory_limit_mib(instance, gpus) * MIB_PER_GIB**2
    staged = staged if job.checkpoint.async_save else 0
    processes = gpus * (_RANK_BYTES + job.data.num_workers * _WORKER_BYTES)
    surely, total = staged + offloaded, staged + offloaded + processes
    if total <= limit or not surely:
        return
    takes = {"a save stages": staged, "the offloaded optimizer has": offloaded}
    parts = "".join(f" {what} {gib(size)}," for what, size in takes.items() if size)
    found = (
        f"a pod may have {gib(limit)} GiB of host memory, and{parts} ranks and data workers have "
        f"about {gib(processes)}"
    )
    remedy = "use a type with more memory"
    if processes < limit:
        nodes = -(-job.nodes * surely // (limit - processes))
        remedy = f"use nodes: {nodes} or more, or a type with more memory"
    if surely > limit:
        yield Finding(Code.DOES_NOT_FIT, ("nodes",), found, remedy)
    else:
        yield warning(Code.FITS_TIGHTLY, ("nodes",), found, remedy)


def verdict(
    memory: MemoryEstimate,
    instance: InstanceType,
    path: Path,
    remedy: Callable[[], str],
    elastic: Elastic | None = None,
) -> Iterator[Finding]:
    """Compare what a rank takes with what its GPU has; a remedy is looked for if one is needed."""
    where = f" at runtime.elastic.min_nodes {elastic.min_nodes}" if elastic else ""
    found = (
        f"{gib(memory.per_gpu_bytes)} GiB a GPU{where}, and {instance.gpu.name} has "
        f"{gib(memory.capacity_bytes)} for tensors"
    )
    share = memory.per_gpu_bytes / memory.capacity_bytes
    if share > 1:
        missing = gib(memory.per_gpu_bytes - memory.capacity_bytes)
        found = f"{found}: {missing} are missing ({_breakdown(memory)})"
        yield Finding(Code.DOES_NOT_FIT, path, found, remedy())
    elif share > _TIGHT:
        found = f"{found} ({_breakdown(memory)})"
        yield warning(Code.FITS_TIGHTLY, path, found, remedy())


def fits(memory: MemoryEstimate) -> bool:
    """Tell whether a rank fits with room to spare."""
    return memory.per_gpu_bytes <= memory.capacity_bytes * _TIGHT


def _breakdown(memory: MemoryEstimate) -> str:
    worst = memory.fullest
    return (
        f"weights and gradients {gib(worst.weights_bytes)}, "
        f"optimizer {gib(worst.optimizer_bytes)}, "
        f"activations {gib(worst.activations_bytes)}, logits {gib(worst.logits_bytes)}, "
        f"workspace {gib(worst.workspace_bytes)}"
    )


def gib(count: int) -> str:
    """Write bytes in GiB."""
    return f"{count / GIB:.1f}"
