"""Memory per GPU of a Megatron run, by pipeline stage.

Formulas: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models"
(arXiv 2205.05198, table 2), generalised to grouped queries and SwiGLU as in Megatron-LM's
`theoretical_memory_usage.py`; Narayanan et al. 2021 (arXiv 2104.04473) for pipelines.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from megatron_eks.catalog.models import ModelShape

GIB = 1024**3

# CUDA context, NCCL buffers and allocator slack; Megatron's golden runs show 2 to 4 GiB.
OVERHEAD_BYTES = 3 * GIB

# bf16 weight, fp32 master weight and two Adam moments: what a checkpoint holds for a parameter.
CHECKPOINT_BYTES_PER_PARAMETER = 14

_VOCABULARY_MULTIPLE = 128


@dataclass(frozen=True)
class Layout:
    """How a run is laid over the GPUs."""

    tensor: int
    pipeline: int
    context: int
    data: int
    virtual_pipeline: int = 1
    sequence_parallel: bool = True
    distributed_optimizer: bool = True
    expert: int = 1
    """GPUs that divide the experts of a layer among themselves."""
    expert_tensor: int = 1
    """GPUs that share each expert; of no meaning without experts."""

    @property
    def expert_data(self) -> int:
        """Replicas of each expert: experts lie over the same GPUs in a grid of their own."""
        return self.tensor * self.context * self.data // (self.expert * self.expert_tensor)


@dataclass(frozen=True)
class Batch:
    """One microbatch, how many of them a step has, and what is recomputed."""

    micro_batch_size: int
    sequence_length: int
    microbatches: int
    recompute: Literal["none", "selective", "full"]
    recompute_method: Literal["uniform", "block"] | None = None
    recompute_layers: int = 1


@dataclass(frozen=True)
class StageMemory:
    """The bytes of one pipeline stage on one GPU."""

    stage: int
    parameters: int
    """Parameters held by this GPU."""
    weights_bytes: int
    """Weights and gradients."""
    optimizer_bytes: int
    activations_bytes: int
    logits_bytes: int

    @property
    def total_bytes(self) -> int:
        """Everything, the fixed overhead included."""
        parts = (
            self.weights_bytes,
            self.optimizer_bytes,
            self.activations_bytes,
            self.logits_bytes,
        )
        return sum(parts) + OVERHEAD_BYTES


@dataclass(frozen=True)
class MemoryEstimate:
    """What a run takes, and what a GPU has."""

    stages: tuple[StageMemory, ...]
    capacity_bytes: int

    @property
    def per_gpu_bytes(self) -> int:
        """The fullest stage."""
        return max(stage.total_bytes for stage in self.stages)


def parameters(model: "ModelShape") -> int:
    """Count the parameters of a whole model, without vocabulary padding."""
    embeddings = model.vocab_size * model.hidden_size
    tables = 2 if model.untie_embeddings_and_output_weights else 1
    layer = layer_parameters(model, 1) + _expert_parameters(model, 1, 1)
    return model.num_layers * layer + tables * embeddings + _extra_parameters(model)


def estimate(
    model: "ModelShape", layout: Layout, batch: Batch, capacity_bytes: int
) -> MemoryEstimate:
    """Return the memory of every pipeline stage."""
    stages = tuple(_stage(model, layout, batch, index) for index in range(layout.pipeline))
    return MemoryEstimate(stages, capacity_bytes)


def _stage(model: "ModelShape", layout: Layout, batch: Batch, index: int) -> StageMemory:
    first, last = index == 0, index == layout.pipeline - 1
    layers = model.num_layers // layout.pipeline
    held = layers * layer_parameters(model, layout.tensor)
    table = padded_vocabulary(model.vocab_size, layout.tensor) * model.hidden_size // layout.tensor
    # A tied output layer is the first stage's table on one stage, and a copy of it on several.
    output_is_own = model.untie_embeddings_and_output_weights or layout.pipeline > 1
    held += table * (first + (last and output_is_own))
    held += _extra_parameters(model) if first or last else 0
    experts = layers * _expert_parameters(model, layout.expert, layout.expert_tensor)
    sharded = layout.distributed_optimizer
    states = held // (layout.data * layout.context if sharded else 1)
    states += experts // (layout.expert_data if sharded else 1)
    return StageMemory(
        stage=index,
        parameters=held + experts,
        weights_bytes=6 * (held + experts),  # bf16 weight, fp32 gradient
        optimizer_bytes=12 * states,  # fp32 master weight, two moments
        activations_bytes=int(activations(model, layout, batch, layers, index)),
        logits_bytes=int(logits(model, layout, batch)) if last else 0,
    )


def layer_parameters(model: "ModelShape", tensor: int) -> int:
    """Parameters of one layer on one tensor parallel rank; norms and router are on every rank."""
    query = model.num_attention_heads * model.kv_channels
    groups = max(model.num_query_groups, tensor)  # fewer groups than ranks are replicated
    key_value = 2 * groups * model.kv_channels
    matrices = model.hidden_size * (2 * query + key_value)
    biases = query + key_value if model.add_bias_linear else 0
    row_biases = model.hidden_size if model.add_bias_linear else 0
    norms = model.hidden_size * (2 if model.normalization == "RMSNorm" else 4)
    whole = norms + row_biases + model.hidden_size * (model.num_experts or 0)
    if model.num_experts is None:
        return (matrices + biases) // tensor + whole + _feed_forward_parameters(model, tensor)
    return (matrices + biases) // tensor + whole


def _expert_parameters(model: "ModelShape", expert: int, tensor: int) -> int:
    """Parameters of one layer's experts on one rank."""
    count = (model.num_experts or 0) // expert
    return count * _feed_forward_parameters(model, tensor)


def _feed_forward_parameters(model: "ModelShape", tensor: int) -> int:
    gates = 2 if model.swiglu else 1
    matrices = model.hidden_size * (gates + 1) * model.ffn_hidden_size
    biases = gates * model.ffn_hidden_size if model.add_bias_linear else 0
    return (matrices + biases) // tensor + (model.hidden_size if model.add_bias_linear else 0)


def _extra_parameters(model: "ModelShape") -> int:
    """Count the final norm and learned positions, which every tensor parallel rank holds."""
    norm = model.hidden_size * (1 if model.normalization == "RMSNorm" else 2)
    learned = model.position_embedding_type == "learned_absolute"
    return norm + (model.max_position_embeddings * model.hidden_size if learned else 0)


def padded_vocabulary(vocabulary: int, tensor: int) -> int:
    """Megatron pads the vocabulary to a multiple of 128 times the tensor parallel size."""
    multiple = _VOCABULARY_MULTIPLE * tensor
    return math.ceil(vocabulary / multiple) * multiple


def activations(
    model: "ModelShape", layout: Layout, batch: Batch, layers: int, stage: int
) -> float:
    """Bytes that a stage keeps between forward and backward pass, and works on."""
    tokens = batch.micro_batch_size * batch.sequence_length / layout.context
    layer = tokens * _layer_activation_bytes(model, layout)
    shard = layout.tensor if layout.sequence_parallel else 1
    saved_input = tokens * 2 * model.hidden_size / shard
    if batch.recompute != "full":
        stored, working = layers * layer, 0.0
    elif batch.recompute_method == "block":
        recomputed = min(batch.recompute_layers, layers)
        stored, working = recomputed * saved_input + (layers - recomputed) * layer, layer
    else:
        stored = math.ceil(layers / batch.recompute_layers) * saved_input
        working = batch.recompute_layers * layer
    in_flight = min(batch.microbatches, layout.pipeline - stage)
    # Interleaving starts more microbatches before the first backward (Korthikanti, section 4.2.3).
    chunks = layout.virtual_pipeline
    penalty = 1 + (layout.pipeline - 1) / (layout.pipeline * chunks) if chunks > 1 else 1
    return stored * in_flight * penalty + working


def _layer_activation_bytes(model: "ModelShape", layout: Layout) -> float:
    """Bytes that one layer keeps for a token, attention scores recomputed (flash attention)."""
    hidden = model.hidden_size
    dropout_masks = 2 * hidden if model.hidden_dropout else 0
    unsharded = 2 * hidden * 4 + dropout_masks  # two norms' inputs and outputs
    query = model.num_attention_heads * model.kv_channels
    key_value = 2 * max(model.num_query_groups, layout.tensor) * model.kv_channels
    # SwiGLU keeps gate, value and product; GELU keeps its input and output.
    feed_forward = (3 if model.swiglu else 2) * model.ffn_hidden_size
    if model.num_experts is not None:
        # Each token goes to several experts, and stands before and behind each of them once more.
        feed_forward = (feed_forward + 2 * hidden) * (model.moe_router_topk or 1)
    sharded = 2 * (2 * query + key_value + feed_forward)
    return sharded / layout.tensor + unsharded / (layout.tensor if layout.sequence_parallel else 1)


def logits(model: "ModelShape", layout: Layout, batch: Batch) -> float:
    """Logits in bf16 and fp32, and their fp32 gradient."""
    tokens = batch.micro_batch_size * batch.sequence_length / layout.context
    return tokens * padded_vocabulary(model.vocab_size, layout.tensor) / layout.tensor * (2 + 4 + 4)
