"""Whether a layout divides the world and the model, and whether it fits into memory.

The rules are those that Megatron-LM's `validate_args`, `TransformerConfig` and
`ParallelState` apply at start-up (core_v0.19), applied before any GPU is rented.
"""

from typing import TYPE_CHECKING

from megatron_eks.config.errors import Code, Finding, Level
from megatron_eks.plan.job import MIB, job_layout, job_memory
from megatron_eks.predict.memory import (
    CHECKPOINT_BYTES_PER_PARAMETER,
    GIB,
    OVERHEAD_BYTES,
    parameters,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.catalog.instances import InstanceType
    from megatron_eks.catalog.models import ModelShape
    from megatron_eks.config.cluster import ClusterConfig
    from megatron_eks.config.job import MegatronJob
    from megatron_eks.predict.memory import MemoryEstimate

# Above this share of a GPU's memory, fragmentation decides whether a run survives.
_TIGHT = 0.92
# bf16 weights of the base model, kept beside the run's own checkpoints.
_BASE_BYTES_PER_PARAMETER = 2

_MOST_LISTED = 10_000

# Flash attention's kernels (Dao-AILab/flash-attention, README, "head dimensions up to 256").
_HEAD_STEP, _LARGEST_HEAD = 8, 256


def check_layout(
    job: "MegatronJob", model: "ModelShape", instance: "InstanceType"
) -> "Iterator[Finding]":
    """Yield what keeps the layout from starting."""
    yield from _world(job, instance)
    yield from _tensor(job, model)
    yield from _pipeline(job, model, instance)
    yield from _sequence(job)


def _world(job: "MegatronJob", instance: "InstanceType") -> "Iterator[Finding]":
    parallelism, training = job.parallelism, job.training
    per_node = job.gpus_per_node or instance.gpus
    world = job.nodes * per_node
    inner = parallelism.tensor * parallelism.pipeline * parallelism.context
    tensor = parallelism.tensor
    product = f"tensor {tensor} x pipeline {parallelism.pipeline} x context {parallelism.context}"
    if parallelism.tensor > per_node:
        found = f"tensor parallel size {parallelism.tensor} spans nodes of {per_node} GPUs"
        remedy = f"use at most {per_node}: every layer waits for it, and only NVLink is fast enough"
        yield Finding(Code.TENSOR_PARALLEL_ACROSS_NODES, ("parallelism", "tensor"), found, remedy)
    elif per_node % parallelism.tensor:
        found = f"tensor parallel size {tensor} does not divide the {per_node} GPUs of a node"
        remedy = f"use one of {_divisors(per_node)}, so that no group spans nodes"
        yield Finding(Code.TENSOR_PARALLEL_ACROSS_NODES, ("parallelism", "tensor"), found, remedy)
    if world % inner:
        found = f"{product} = {inner} does not divide {world} GPUs"
        remedy = f"choose sizes whose product is one of {_divisors(world)}"
        yield Finding(Code.LAYOUT_WORLD, ("parallelism",), found, remedy)
        return
    data = world // inner
    step = training.micro_batch_size * data
    if training.global_batch_size % step:
        found = (
            f"{training.global_batch_size} is no multiple of "
            f"micro_batch_size {training.micro_batch_size} x data parallel size {data}"
        )
        below = training.global_batch_size // step * step
        near = f"{below} or {below + step}" if below else str(step)
        yield Finding(Code.LAYOUT_BATCH, ("training", "global_batch_size"), found, f"use {near}")


def _tensor(job: "MegatronJob", model: "ModelShape") -> "Iterator[Finding]":
    tensor = job.parallelism.tensor
    path = ("parallelism", "tensor")
    if model.num_attention_heads % tensor:
        found = f"{tensor} does not divide {model.num_attention_heads} attention heads"
        remedy = f"use one of {_divisors(model.num_attention_heads)}"
        yield Finding(Code.LAYOUT_HEADS, path, found, remedy)
    groups = model.num_query_groups
    if groups % tensor and tensor % groups:
        found = f"{tensor} is neither a divisor nor a multiple of {groups} query groups"
        yield Finding(
            Code.LAYOUT_HEADS,
            path,
            found,
            f"use one of {_divisors(groups)}, or a multiple of {groups}",
        )
    if model.num_attention_heads % groups:
        found = f"{groups} query groups do not divide {model.num_attention_heads} attention heads"
        remedy = f"use one of {_divisors(model.num_attention_heads)}"
        yield Finding(Code.LAYOUT_HEADS, ("model", "num_query_groups"), found, remedy)
    if model.kv_channels % _HEAD_STEP or model.kv_channels > _LARGEST_HEAD:
        found = f"attention heads of {model.kv_channels} channels do not suit flash attention"
        remedy = f"use a multiple of {_HEAD_STEP}, at most {_LARGEST_HEAD}"
        yield Finding(Code.LAYOUT_HEADS, ("model", "kv_channels"), found, remedy)
    if model.ffn_hidden_size % tensor:
        found = f"{tensor} does not divide ffn_hidden_size {model.ffn_hidden_size}"
        yield Finding(Code.LAYOUT_HEADS, path, found, "use a divisor of it")


def _pipeline(
    job: "MegatronJob", model: "ModelShape", instance: "InstanceType"
) -> "Iterator[Finding]":
    parallelism = job.parallelism
    pipeline, chunks = parallelism.pipeline, parallelism.virtual_pipeline
    if model.num_layers % pipeline:
        found = f"{pipeline} does not divide {model.num_layers} layers"
        remedy = f"use one of {_divisors(model.num_layers)}"
        yield Finding(Code.LAYOUT_LAYERS, ("parallelism", "pipeline"), found, remedy)
        return
    layers = model.num_layers // pipeline
    if (job.training.recompute_layers or 1) > layers:
        found = f"{job.training.recompute_layers} layers, and a pipeline stage has {layers}"
        yield Finding(
            Code.RECOMPUTE, ("training", "recompute_layers"), found, f"use at most {layers}"
        )
    if chunks is None or chunks == 1:  # Megatron takes one chunk for none
        return
    path = ("parallelism", "virtual_pipeline")
    if pipeline == 1:
        found = "interleaving needs a pipeline of two stages or more"
        yield Finding(Code.LAYOUT_LAYERS, path, found, "remove it, or raise parallelism.pipeline")
    elif layers % chunks:
        found = f"{chunks} chunks do not divide the {layers} layers of a stage"
        yield Finding(Code.LAYOUT_LAYERS, path, found, f"use one of {_divisors(layers)}")
    else:
        yield from _interleaving(job, instance)


def _interleaving(job: "MegatronJob", instance: "InstanceType") -> "Iterator[Finding]":
    """Megatron's interleaved schedule runs microbatches in groups of the pipeline size."""
    parallelism, training = job.parallelism, job.training
    inner = parallelism.tensor * parallelism.pipeline * parallelism.context
    data = max(1, job.nodes * (job.gpus_per_node or instance.gpus) // inner)
    microbatches = training.global_batch_size // (training.micro_batch_size * data)
    if microbatches % parallelism.pipeline:
        found = (
            f"{microbatches} microbatches are no multiple of {parallelism.pipeline} pipeline stages"
        )
        remedy = "change global_batch_size, or remove virtual_pipeline"
        yield Finding(Code.LAYOUT_BATCH, ("parallelism", "virtual_pipeline"), found, remedy)


def _sequence(job: "MegatronJob") -> "Iterator[Finding]":
    length = job.training.sequence_length
    path = ("training", "sequence_length")
    context, tensor = job.parallelism.context, job.parallelism.tensor
    # Each context parallel rank takes two chunks, one from each end, to balance causal attention.
    if context > 1 and length % (2 * context):
        found = f"{length} is no multiple of 2 x context parallel size {context}"
        yield Finding(Code.LAYOUT_SEQUENCE, path, found, f"use {_round_up(length, 2 * context)}")
    if job.parallelism.sequence_parallel and length % (tensor * context):
        found = f"{length} is no multiple of tensor x context parallel size {tensor * context}"
        remedy = f"use {_round_up(length, tensor * context)}: sequence parallelism splits it"
        yield Finding(Code.SEQUENCE_PARALLEL, path, found, remedy)


def check_memory(
    job: "MegatronJob", model: "ModelShape", instance: "InstanceType", cluster: "ClusterConfig"
) -> "Iterator[Finding]":
    """Yield whether ranks fit into their GPUs, and checkpoints onto the file system."""
    per_node = job.gpus_per_node or instance.gpus
    memory = job_memory(job, model, job_layout(job, job.nodes * per_node), instance)
    share = memory.per_gpu_bytes / memory.capacity_bytes
    found = (
        f"{_gib(memory.per_gpu_bytes)} GiB a GPU, and {instance.gpu.name} has "
        f"{_gib(memory.capacity_bytes)} ({_breakdown(memory)})"
    )
    path = ("parallelism",)
    if share > 1:
        yield Finding(Code.DOES_NOT_FIT, path, found, _smaller(job, instance, model))
    elif share > _TIGHT:
        yield Finding(Code.FITS_TIGHTLY, path, found, _smaller(job, instance, model), Level.WARNING)
    yield from _disk(job, model, cluster)


def _breakdown(memory: "MemoryEstimate") -> str:
    worst = max(memory.stages, key=lambda stage: stage.total_bytes)
    return (
        f"weights and gradients {_gib(worst.weights_bytes)}, "
        f"optimizer {_gib(worst.optimizer_bytes)}, "
        f"activations {_gib(worst.activations_bytes)}, logits {_gib(worst.logits_bytes)}, "
        f"other {_gib(OVERHEAD_BYTES)}"
    )


def _smaller(job: "MegatronJob", instance: "InstanceType", model: "ModelShape") -> str:
    """Name the single changes that would fit, cheapest in speed first."""
    parallelism, training = job.parallelism, job.training
    options: list[tuple[str, MegatronJob]] = []
    if training.micro_batch_size > 1:
        smaller = training.model_copy(update={"micro_batch_size": 1})
        options.append(
            ("training.micro_batch_size: 1", job.model_copy(update={"training": smaller}))
        )
    if not parallelism.distributed_optimizer:
        changed = parallelism.model_copy(update={"distributed_optimizer": True})
        options.append(
            ("distributed_optimizer: true", job.model_copy(update={"parallelism": changed}))
        )
    tensor = parallelism.tensor * 2
    while tensor <= instance.gpus:
        changed = parallelism.model_copy(update={"tensor": tensor, "sequence_parallel": True})
        options.append(
            (f"parallelism.tensor: {tensor}", job.model_copy(update={"parallelism": changed}))
        )
        tensor *= 2
    if training.recompute != "full":
        changed_training = training.model_copy(update={"recompute": "full"})
        options.append(
            ("training.recompute: full", job.model_copy(update={"training": changed_training}))
        )
    fitting = [name for name, option in options if _fits(option, model, instance)]
    return (
        f"use {' or '.join(fitting[:3])}"
        if fitting
        else "use more GPUs, a larger type, or pipeline stages"
    )


def _fits(job: "MegatronJob", model: "ModelShape", instance: "InstanceType") -> bool:
    if any(True for _ in check_layout(job, model, instance)):
        return False
    layout = job_layout(job, job.nodes * (job.gpus_per_node or instance.gpus))
    return (
        job_memory(job, model, layout, instance).per_gpu_bytes
        <= instance.gpu.usable_memory_mib * MIB * _TIGHT
    )


def _disk(job: "MegatronJob", model: "ModelShape", cluster: "ClusterConfig") -> "Iterator[Finding]":
    """Demand room for one more: a new checkpoint is complete before the oldest goes."""
    checkpoint = parameters(model) * CHECKPOINT_BYTES_PER_PARAMETER
    base = parameters(model) * _BASE_BYTES_PER_PARAMETER if job.checkpoint.pretrained else 0
    needed = (job.checkpoint.keep_last + 1) * checkpoint + base
    capacity = cluster.storage.lustre.capacity_gib * GIB
    if needed > capacity:
        found = (
            f"{job.checkpoint.keep_last} checkpoints of {checkpoint / 1e9:.0f} GB, one more "
            f"being written and the base weights take {_gib(needed)} GiB "
            f"of {cluster.storage.lustre.capacity_gib}"
        )
        remedy = "keep fewer, or raise storage.lustre.capacity_gib"
        yield Finding(Code.CHECKPOINTS_FILL_DISK, ("checkpoint", "keep_last"), found, remedy)


def _gib(count: int) -> str:
    return f"{count / GIB:.1f}"


def _divisors(number: int) -> str:
    if number > _MOST_LISTED:
        return f"its divisors: {number}"
    return ", ".join(str(value) for value in range(1, number + 1) if number % value == 0)


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step
