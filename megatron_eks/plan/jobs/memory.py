"""Whether the ranks of a run have room in their GPUs and hosts."""

from collections.abc import Callable, Iterator

from megatron_eks.catalog.instances import MIB_PER_GIB, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.job import Elastic, MegatronRun, TorchRun
from megatron_eks.plan.jobs.resources import gpus_per_node, memory_limit_mib
from megatron_eks.predict.memory import GIB, MemoryEstimate

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
