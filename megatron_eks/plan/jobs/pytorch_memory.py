"""Memory and speed of FSDP and DDP, and what would make a run fit."""

from collections.abc import Callable, Iterator

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.cluster import GpuPool
from megatron_eks.config.job import TorchRun
from megatron_eks.plan.jobs.memory import capacity_bytes, fits, hardware
from megatron_eks.plan.jobs.resources import gpus_per_node
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.memory import GIB, MemoryEstimate
from megatron_eks.predict.replicas import estimate_copied, estimate_sharded
from megatron_eks.predict.throughput import Speed, fsdp_speed


def fsdp_memory(job: TorchRun, model: ModelShape, instance: InstanceType) -> MemoryEstimate:
    """Estimate the memory of a rank that holds a share of the model."""
    per_node = gpus_per_node(job, instance)
    shards = per_node if job.training.sharding == "hybrid" else per_node * job.nodes
    return estimate_sharded(
        model, _batch(job), capacity_bytes(instance), shards=shards, loss="pieces"
    )


def ddp_memory(job: TorchRun, model: ModelShape, instance: InstanceType) -> MemoryEstimate:
    """Estimate the memory of a rank that holds the whole model."""
    return estimate_copied(model, _batch(job), capacity_bytes(instance), loss="pieces")


def _batch(job: TorchRun) -> Batch:
    training = job.training
    return Batch(
        micro_batch_size=training.train_batch_size,
        sequence_length=training.sequence_length,
        microbatches=1,
        recompute="full" if training.activation_checkpointing else "none",
    )


def torch_speed(job: TorchRun, model: ModelShape, instance: InstanceType) -> Speed | None:
    """Predict the steps of a run; None where the GPU's peak is unknown."""
    layout, found = replicas_layout(job.nodes * gpus_per_node(job, instance)), hardware(instance)
    # DDP reduces fp32 gradients once, which travels as far as what FSDP gathers and reduces.
    return fsdp_speed(model, layout, _batch(job), found) if found else None


def replicas_layout(gpus: int) -> Layout:
    """Return the layout of a run that divides only its data."""
    return Layout(tensor=1, pipeline=1, context=1, data=gpus, sequence_parallel=False)


Memory = Callable[[TorchRun, ModelShape, InstanceType], MemoryEstimate]


# What takes less memory, cheapest in speed first.
_CHANGES: tuple[tuple[str, dict[str, object]], ...] = (
    ("training.train_batch_size: 1", {"train_batch_size": 1}),
    ("training.sharding: full", {"sharding": "full"}),
    ("training.activation_checkpointing: true", {"activation_checkpointing": True}),
)
# So many times the nodes are doubled in search of a number that fits.
_DOUBLINGS = 6


def smaller(job: TorchRun, model: ModelShape, pool: GpuPool, memory: Memory) -> str:
    """Name the single changes that would fit, cheapest in speed first; or the fewest nodes."""
    instance = INSTANCES[pool.instance_type]
    needed = memory(job, model, instance).per_gpu_bytes
    found = [(name, memory(_changed(job, change), model, instance)) for name, change in _CHANGES]
    fitting = [f"{name} ({_less(needed, option)})" for name, option in found if fits(option)]
    if fitting:
        return f"use {' or '.join(fitting)}"
    for words, option in _divided(job):
        for nodes in (option.nodes << power for power in range(_DOUBLINGS)):
            more = option.model_copy(update={"nodes": nodes})
            sharded = fsdp_memory(more, model, instance)
            if fits(sharded):
                count = [_nodes(job, nodes)] if nodes > job.nodes else []
                remedy = f"use {' and '.join([*words, *count])} ({_less(needed, sharded)})"
                if nodes > pool.max_nodes:
                    remedy += f", for which pool {pool.name!r} needs max_nodes: {nodes}"
                return f"{remedy}, or a larger type" if count else remedy
    words, option = list(_divided(job))[-1]
    for length in (job.training.sequence_length >> power for power in range(1, _DOUBLINGS)):
        sharded = fsdp_memory(_changed(option, {"sequence_length": length}), model, instance)
        if fits(sharded):
            shorter = [*words, f"training.sequence_length: {length}"]
            return f"use {' and '.join(shorter)} ({_less(needed, sharded)}), or a larger type"
    return "use a shorter training.sequence_length, or a larger type"


def _divided(job: TorchRun) -> Iterator[tuple[list[str], TorchRun]]:
    """Yield what more nodes hold less of, as it is, and with every other saving; and its words."""
    training = job.training
    # DDP has copies everywhere, and hybrid sharding as many inside a node on any number of nodes.
    words = ["kind: fsdp"] if job.kind == "ddp" else []
    if job.kind == "fsdp" and training.sharding == "hybrid":
        words.append("training.sharding: full")
    option = _changed(job, {"sharding": "full"})
    yield words, option
    for name, change in _CHANGES:
        smaller = _changed(option, change)
        words, option = (words if smaller == option else [*words, name]), smaller
    yield words, option


def _nodes(job: TorchRun, nodes: int) -> str:
    return f"runtime.elastic.min_nodes: {nodes}" if job.runtime.elastic else f"{nodes} nodes"


def _less(needed: int, option: MemoryEstimate) -> str:
    return f"{(needed - option.per_gpu_bytes) / GIB:.1f} less"


def _changed(job: TorchRun, change: dict[str, object]) -> TorchRun:
    return job.model_copy(update={"training": job.training.model_copy(update=change)})
