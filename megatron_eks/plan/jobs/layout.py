"""How a Megatron run lies over GPUs, and whether its sizes divide the world and the model.

The rules are those that Megatron-LM's `validate_args`, `TransformerConfig` and `ParallelState`
apply at start-up (core_v0.19), applied before any GPU is rented.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, warning
from megatron_eks.config.job import MegatronRun
from megatron_eks.config.training import MegatronTraining, Parallelism
from megatron_eks.plan.jobs.models import counted_layers, divisors, listed_divisors
from megatron_eks.plan.jobs.resources import gpus_per_node, job_gpus
from megatron_eks.plan.jobs.training import check_elastic, copies

# Flash attention's kernels (Dao-AILab/flash-attention, README, "head dimensions up to 256").
_HEAD_STEP, _LARGEST_HEAD = 8, 256


MOST_IDLE = 1 / 3
"""Above this a pipeline wastes more than interleaving or a larger batch would cost."""


@dataclass(frozen=True)
class Sizes:
    """What the rules of a layout ask about: a job's, or those of a file of `meks predict`."""

    parallelism: Parallelism
    training: MegatronTraining
    gpus: int
    per_node: int
    """GPUs of a node that the run takes."""
    layers: int | None
    """Layers that stages divide evenly; None where something says which each has."""
    all_per_node: int = 0
    """GPUs that a node has, as far as known."""


def check_layout(job: MegatronRun, model: ModelShape, instance: InstanceType) -> Findings:
    """Yield what keeps the layout from starting."""
    sizes = Sizes(
        parallelism=job.parallelism,
        training=job.training,
        gpus=job_gpus(job, instance),
        per_node=gpus_per_node(job, instance),
        layers=counted_layers(job, model),
        all_per_node=instance.gpus,
    )
    yield from check_sizes(sizes, model)
    yield from check_elastic(job, instance)


def check_sizes(sizes: Sizes, model: ModelShape) -> Findings:
    """Yield what Megatron would refuse of a layout, whatever it runs on."""
    yield from _world(sizes)
    yield from _tensor(sizes, model)
    yield from _pipeline(sizes, model)
    yield from _idle_stages(sizes)
    yield from _sequence(sizes)
    for place, found, remedy in _experts(sizes, model):
        yield Finding(Code.LAYOUT_EXPERTS, place, found, remedy)


def _world(sizes: Sizes) -> Findings:
    parallelism, training = sizes.parallelism, sizes.training
    per_node, tensor, path = sizes.per_node, parallelism.tensor, ("parallelism",)
    if tensor > per_node:
        found = f"tensor parallel size {tensor} spans nodes of {per_node} GPUs"
        remedy = f"use at most {per_node}: every layer waits for it, and only NVLink is fast enough"
        whole = sizes.all_per_node
        if tensor <= whole and not whole % tensor:
            remedy = f"use at most {per_node}, or set gpus_per_node: {whole}, all of a node"
        yield Finding(Code.TENSOR_PARALLEL_ACROSS_NODES, (*path, "tensor"), found, remedy)
    elif per_node % tensor:
        found = f"tensor parallel size {tensor} does not divide the {per_node} GPUs of a node"
        remedy = f"use one of {listed_divisors(per_node)}, so that no group spans nodes"
        yield Finding(Code.TENSOR_PARALLEL_ACROSS_NODES, (*path, "tensor"), found, remedy)
    world = sizes.gpus
    data = copies(parallelism, world)
    if data is None:
        product = f"tensor {tensor} x pipeline {parallelism.pipeline} x context "
        product += f"{parallelism.context} = {parallelism.model_gpus}"
        remedy = f"choose sizes whose product is one of {listed_divisors(world)}"
        yield Finding(Code.LAYOUT_WORLD, path, f"{product} does not divide {world} GPUs", remedy)
        return
    step = training.micro_batch_size * data
    if training.global_batch_size % step:
        found = f"{training.global_batch_size} is no multiple of micro_batch_size "
        found += f"{training.micro_batch_size} x data parallel size {data}"
        below = training.global_batch_size // step * step
        near = f"{below} or {below + step}" if below else str(step)
        yield Finding(Code.LAYOUT_BATCH, ("training", "global_batch_size"), found, f"use {near}")


def splits(model: ModelShape, tensor: int) -> bool:
    """Tell whether so many ranks can share a layer."""
    groups = model.num_query_groups
    whole = not model.num_attention_heads % tensor and not model.ffn_hidden_size % tensor
    return whole and not (groups % tensor and tensor % groups)


def _tensor(sizes: Sizes, model: ModelShape) -> Findings:
    tensor, path = sizes.parallelism.tensor, ("parallelism", "tensor")
    heads, groups = model.num_attention_heads, model.num_query_groups
    # What a node, the job's GPUs and the model all take.
    rest = sizes.parallelism.model_gpus // tensor
    of_node = (each for each in divisors(sizes.per_node) if splits(model, each))
    fitting = ", ".join(str(each) for each in of_node if not sizes.gpus % (each * rest))
    fits = f"use {fitting}" if fitting == "1" else f"use one of {fitting}"
    if heads % tensor:
        remedy = fits if fitting else f"use one of {listed_divisors(heads)}"
        yield Finding(Code.LAYOUT_HEADS, path, f"{tensor} does not divide {heads} heads", remedy)
    if groups % tensor and tensor % groups:
        found = f"{tensor} is neither a divisor nor a multiple of {groups} query groups"
        remedy = fits if fitting else f"use a divisor or a multiple of {groups}"
        yield Finding(Code.LAYOUT_HEADS, path, found, remedy)
    if heads % groups:
        found = f"{groups} query groups do not divide {heads} attention heads"
        remedy = f"use one of {listed_divisors(heads)}"
        yield Finding(Code.LAYOUT_HEADS, ("model", "num_query_groups"), found, remedy)
    if model.multi_latent_attention and model.qk_pos_emb_head_dim % 2:
        # RotaryEmbedding turns channels in pairs.
        found = f"positions turn pairs of channels, and {model.qk_pos_emb_head_dim} are no pairs"
        place = ("model", "qk_pos_emb_head_dim")
        yield Finding(Code.LAYOUT_HEADS, place, found, "use an even number, such as 64")
    if model.kv_channels % _HEAD_STEP or model.kv_channels > _LARGEST_HEAD:
        found = f"attention heads of {model.kv_channels} channels do not suit flash attention"
        remedy = f"use a multiple of {_HEAD_STEP}, at most {_LARGEST_HEAD}"
        yield Finding(Code.LAYOUT_HEADS, ("model", "kv_channels"), found, remedy)
    if model.ffn_hidden_size % tensor:
        found = f"{tensor} does not divide ffn_hidden_size {model.ffn_hidden_size}"
        yield Finding(Code.LAYOUT_HEADS, path, found, fits if fitting else "use a divisor of it")


def _pipeline(sizes: Sizes, model: ModelShape) -> Findings:
    parallelism = sizes.parallelism
    pipeline, chunks = parallelism.pipeline, parallelism.virtual_pipeline
    counted = sizes.layers
    if counted is not None and counted % pipeline:
        ends = ", embedding and loss among them" if counted > model.num_layers else ""
        found = f"{pipeline} does not divide {counted} layers{ends}"
        remedy = f"use one of {listed_divisors(counted)}; meks plan --search knows uneven stages"
        yield Finding(Code.LAYOUT_LAYERS, ("parallelism", "pipeline"), found, remedy)
        return
    # Where embedding and loss count, a stage at an end may have no other layer.
    layers = counted // pipeline if counted else -(-model.num_layers // pipeline)
    recomputed = sizes.training.recompute_layers
    if recomputed is not None and recomputed > layers:
        found = f"{recomputed} layers, and a pipeline stage has {layers}"
        remedy = f"use at most {layers}"
        yield Finding(Code.RECOMPUTE, ("training", "recompute_layers"), found, remedy)
    if chunks is None or chunks == 1:  # Megatron takes one chunk for none
        return
    path = ("parallelism", "virtual_pipeline")
    if pipeline == 1:
        found = "interleaving needs a pipeline of two stages or more"
        yield Finding(Code.LAYOUT_LAYERS, path, found, "remove it, or raise parallelism.pipeline")
    elif counted is not None and layers % chunks:
        found = f"{chunks} chunks do not divide the {layers} layers of a stage"
        yield Finding(Code.LAYOUT_LAYERS, path, found, f"use one of {listed_divisors(layers)}")
    else:
        microbatches = _microbatches(sizes)
        if microbatches % pipeline:
            found = f"{microbatches} microbatches are no multiple of {pipeline} pipeline stages"
            each = sizes.training.global_batch_size // microbatches
            below = microbatches // pipeline * pipeline
            near = " or ".join(str(each * count) for count in (below, below + pipeline) if count)
            remedy = f"set training.global_batch_size: {near}, or remove virtual_pipeline"
            yield Finding(Code.LAYOUT_BATCH, path, found, remedy)


def _microbatches(sizes: Sizes) -> int:
    training = sizes.training
    data = max(1, sizes.gpus // sizes.parallelism.model_gpus)
    return training.global_batch_size // (training.micro_batch_size * data)


def _idle_stages(sizes: Sizes) -> Findings:
    """Yield a pipeline that waits for most of a step (Narayanan et al. 2021, section 2.2)."""
    stages, chunks = sizes.parallelism.pipeline, sizes.parallelism.virtual_pipeline or 1
    batches = _microbatches(sizes)
    waits = (stages - 1) / chunks
    idle = waits / (waits + batches) if batches else 0
    if idle > MOST_IDLE:
        found = f"{batches} microbatches for {stages} stages: each waits {idle:.0%} of a step"
        remedy = f"use fewer stages, virtual_pipeline, or {4 * stages} microbatches or more a batch"
        yield warning(Code.IDLE_STAGES, ("parallelism", "pipeline"), found, remedy)


def _sequence(sizes: Sizes) -> Findings:
    length = sizes.training.sequence_length
    path = ("training", "sequence_length")
    parallelism = sizes.parallelism
    context, tensor = parallelism.context, parallelism.tensor
    # Each context parallel rank takes two chunks, one from each end, to balance causal attention.
    chunks = 2 * context if context > 1 else 1
    parts = tensor * context if parallelism.sequence_parallel else 1
    step = lcm(chunks, parts)
    near = max(step, (length + step // 2) // step * step)  # 4096 for 4097
    if context > 1 and length % (2 * context):
        found = f"{length} is no multiple of 2 x context parallel size {context}"
        yield Finding(Code.LAYOUT_SEQUENCE, path, found, f"use {near}")
    if parallelism.sequence_parallel and length % (tensor * context):
        found = f"{length} is no multiple of tensor x context parallel size {tensor * context}"
        remedy = f"use {near}: sequence parallelism splits it"
        yield Finding(Code.SEQUENCE_PARALLEL, path, found, remedy)


def _experts(sizes: Sizes, model: ModelShape) -> Iterator[tuple[Path, str, str]]:
    parallelism, experts = sizes.parallelism, model.num_experts
    path, path_of_parts = ("parallelism", "expert"), ("parallelism", "expert_tensor")
    if experts is None:
        remedy = "remove it, or name a model with num_experts"
        for place in (path, path_of_parts):
            if (size := getattr(parallelism, place[1])) not in {None, 1}:
                yield place, f"{size} ranks for experts, and the model has none", remedy
        return
    expert, parts = parallelism.expert, parallelism.expert_tensor or parallelism.tensor
    if not model.moe_router_topk or model.moe_router_topk > experts:
        found = f"each token goes to {model.moe_router_topk} of {experts} experts"
        yield ("model", "moe_router_topk"), found, f"use a number from 1 to {experts}"
    if experts % expert:
        remedy = f"use one of {listed_divisors(experts)}"
        yield path, f"{expert} does not divide {experts} experts", remedy
    if parallelism.tensor > 1 and not parallelism.sequence_parallel:
        found = "experts with tensor parallelism need sequence parallelism"
        yield ("parallelism", "sequence_parallel"), found, "set it to true"
    if model.expert_width % parts:
        name = "moe_ffn_hidden_size" if model.moe_ffn_hidden_size else "ffn_hidden_size"
        found = f"{parts} does not divide {name} {model.expert_width}"
        yield path_of_parts, found, "use a divisor of it"
    if model.add_bias_linear and parts > 1:
        remedy = "use 1, or model.add_bias_linear: false"
        yield path_of_parts, "experts with biases cannot be split", remedy
    inner = expert * parts * parallelism.pipeline
    if sizes.gpus % inner:
        product = f"expert {expert} x expert tensor {parts} x pipeline {parallelism.pipeline}"
        remedy = f"choose sizes whose product is one of {listed_divisors(sizes.gpus)}"
        yield path, f"{product} = {inner} does not divide {sizes.gpus} GPUs", remedy
