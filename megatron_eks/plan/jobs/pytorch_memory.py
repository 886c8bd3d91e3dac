"""What would make a run of FSDP or DDP fit its GPUs."""

from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.cluster import GpuPool
from megatron_eks.config.job import TorchRun
from megatron_eks.plan.jobs.memory import fits, gib
from megatron_eks.plan.jobs.training import changed, job_memory, sharded_memory
from megatron_eks.predict.memory import MemoryEstimate

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
