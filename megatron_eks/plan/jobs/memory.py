"""Whether the ranks of a run have room in their GPUs and hosts."""

from collections.abc import Callable, Iterator

from megatron_eks.catalog.instances import INSTANCES, MIB_PER_GIB, InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.cluster import GpuPool
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.job import Elastic, MegatronRun, TorchRun
from megatron_eks.plan.jobs.resources import gpus_per_node, job_memory_mib
from megatron_eks.plan.jobs.training import changed, job_memory, sharded_memory
from megatron_eks.predict.memory import GIB, MemoryEstimate

# Above this share of a GPU's memory, fragmentation decides whether a run survives.
TIGHT = 0.92


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
    limit = job_memory_mib(job, instance) * MIB_PER_GIB**2
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
    if memory.surely_too_large:
        missing = gib(memory.per_gpu_bytes - memory.capacity_bytes)
        found = f"{found}: {missing} are missing ({_breakdown(memory)})"
        yield Finding(Code.DOES_NOT_FIT, path, found, remedy())
    elif share > TIGHT:
        found = f"{found} ({_breakdown(memory)})"
        yield warning(Code.FITS_TIGHTLY, path, found, remedy())


def fits(memory: MemoryEstimate) -> bool:
    """Tell whether a rank fits with room to spare."""
    return memory.per_gpu_bytes <= memory.capacity_bytes * TIGHT


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


# What takes less memory, cheapest in speed first.
_CHANGES: tuple[tuple[str, dict[str, object]], ...] = (
    ("training.train_batch_size: 1", {"train_batch_size": 1}),
    ("training.sharding: full", {"sharding": "full"}),
    ("training.activation_checkpointing: true", {"activation_checkpointing": True}),
)
# So many times the nodes are doubled in search of a number that fits.
_DOUBLINGS = 6


def smaller(job: TorchRun, model: ModelShape, pool: GpuPool) -> str:
    """Name the single changes that would fit, cheapest in speed first; or the fewest nodes."""
    instance = INSTANCES[pool.instance_type]
    needed = job_memory(job, model, instance).per_gpu_bytes
    found = [
        (name, job_memory(changed(job, "training", **change), model, instance))
        for name, change in _CHANGES
    ]
    fitting = [f"{name} ({_less(needed, option)})" for name, option in found if fits(option)]
    if fitting:
        return f"use {' or '.join(fitting)}"
    for words, option in _divided(job):
        for nodes in (option.nodes << power for power in range(_DOUBLINGS)):
            more = option.model_copy(update={"nodes": nodes})
            sharded = sharded_memory(more, model, instance)
            if fits(sharded):
                count = [_nodes(job, nodes)] if nodes > job.nodes else []
                remedy = f"use {' and '.join([*words, *count])} ({_less(needed, sharded)})"
                if nodes > pool.max_nodes:
                    remedy += f", for which pool {pool.name!r} needs max_nodes: {nodes}"
                return f"{remedy}, or a larger type" if count else remedy
    words, option = list(_divided(job))[-1]
    for length in (job.training.sequence_length >> power for power in range(1, _DOUBLINGS)):
        shorter = changed(option, "training", sequence_length=length)
        sharded = sharded_memory(shorter, model, instance)
        if fits(sharded):
            words = [*words, f"training.sequence_length: {length}"]
            return f"use {' and '.join(words)} ({_less(needed, sharded)}), or a larger type"
    return "use a shorter training.sequence_length, or a larger type"


def _divided(job: TorchRun) -> Iterator[tuple[list[str], TorchRun]]:
    """Yield what more nodes hold less of, as it is, and with every other saving; and its words."""
    training = job.training
    # DDP has copies everywhere, and hybrid sharding as many inside a node on any number of nodes.
    words = ["kind: fsdp"] if job.kind == "ddp" else []
    if job.kind == "fsdp" and training.sharding == "hybrid":
        words.append("training.sharding: full")
    option = changed(job, "training", sharding="full")
    yield words, option
    for name, change in _CHANGES:
        smaller = changed(option, "training", **change)
        words, option = (words if smaller == option else [*words, name]), smaller
    yield words, option


def _nodes(job: TorchRun, nodes: int) -> str:
    return f"runtime.elastic.min_nodes: {nodes}" if job.runtime.elastic else f"{nodes} nodes"


def _less(needed: int, option: MemoryEstimate) -> str:
    return f"{gib(needed - option.per_gpu_bytes)} less"
