"""Counts parameters: of a model, and of what one rank holds of its layers."""

import math
from dataclasses import replace
from functools import cache

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.layout import Batch
from megatron_eks.predict.matrices import (
    Matrix,
    adapter,
    attention,
    expert,
    feed_forward,
    latent,
    mamba,
    size,
)

_VOCABULARY_MULTIPLE = 128
# Earlier tokens that a Mamba layer's convolution sees.
_CONVOLUTION = 4


def parameters(model: ModelShape) -> int:
    """Count the parameters of a whole model, without vocabulary padding."""
    embeddings = model.vocab_size * model.hidden_size
    tables = 2 if model.untie_embeddings_and_output_weights else 1
    layers = layers_parameters(model, 0, model.num_layers) + ahead_parameters(model)
    return layers + tables * embeddings + extra_parameters(model)


def ahead_parameters(model: ModelShape, tensor: int = 1, experts: int | None = None) -> int:
    """Count the layers of multi-token prediction on one rank: like the last, and a map before."""
    if not model.mtp_num_layers:
        return 0
    last = model.num_layers - 1
    if model.hybrid_layer_pattern:  # attention and experts
        model = replace(model, hybrid_layer_pattern=None, moe_layer_freq=1)
    layer = common_parameters(model, tensor, last, last + 1)
    layer += expert_parameters(model, 1, 1) if experts is None else experts
    return model.mtp_num_layers * (layer + 2 * model.hidden_size**2 // tensor)


def layers_parameters(model: ModelShape, start: int, stop: int) -> int:
    """Count the parameters of some layers, experts included, before anything divides them."""
    routed = model.expert_layers(start, stop) * expert_parameters(model, 1, 1)
    return common_parameters(model, 1, start, stop) + routed


def common_parameters(model: ModelShape, tensor: int, start: int, stop: int) -> int:
    """Parameters of some layers on one tensor parallel rank, without those of routed experts."""
    mixed = model.expert_layers(start, stop)
    return layers_without_experts(model, tensor, stop - start, mixed)


@cache
def layers_without_experts(model: ModelShape, tensor: int, layers: int, mixed: int) -> int:
    """Parameters of so many layers, some of them with experts, without those of routed experts."""
    router = model.hidden_size * (model.num_experts or 0) + int(size(latent(model)))
    shared = model.moe_shared_expert_intermediate_size or 0
    if shared:
        router += _feed_forward_parameters(model, shared, tensor)
    each = {
        "*": _attention_parameters(model, tensor),
        "-": _feed_forward_parameters(model, model.ffn_hidden_size, tensor),
        "E": router,
        "M": _mamba_parameters(model, tensor),
    }
    # A norm before each part.
    parts = model.parts(layers, mixed).items()
    return int(sum(count * (each[part] + _norm(model)) for part, count in parts))


@cache
def expert_parameters(model: ModelShape, ranks: int, tensor: int) -> int:
    """Parameters of one layer's routed experts on one rank."""
    count = (model.num_experts or 0) // ranks
    return count * _with_biases(model, expert(model, tensor))


@cache
def adapter_parameters(
    model: ModelShape, ranks: tuple[int, int, int], layers: int, mixed: int, batch: Batch
) -> int:
    """Parameters of adapters on one rank of tensor, expert and expert tensor parallelism."""
    (tensor, expert_ranks, expert_tensor), rank = ranks, batch.lora
    whole = layers * adapter(attention(model, tensor), rank)
    if batch.lora_targets == "attention":
        return int(whole)
    dense = feed_forward(model, model.ffn_hidden_size, tensor)
    whole += (layers - mixed) * adapter(dense, rank)
    if shared := model.moe_shared_expert_intermediate_size:
        whole += mixed * adapter(feed_forward(model, shared, tensor), rank)
    routed = adapter(expert(model, expert_tensor), rank)
    return int(whole + mixed * (model.num_experts or 0) // expert_ranks * routed)


def _attention_parameters(model: ModelShape, tensor: int) -> int:
    matrices = attention(model, tensor)
    biases = matrices[0].columns + model.hidden_size if model.add_bias_linear else 0
    # The compressed queries, keys and values are normalised before they are taken apart.
    gains = 1 if model.normalization == "RMSNorm" else 2
    compressed = (model.q_lora_rank or 0) + model.kv_lora_rank
    compressed *= gains * model.multi_latent_attention
    return int(size(matrices) + biases) + compressed


def _mamba_parameters(model: ModelShape, tensor: int) -> int:
    """Count projections, convolution and its biases, three numbers a head, and the norm behind."""
    mixed = model.mamba_inner + 2 * model.mamba_num_groups * model.mamba_state_dim
    beside = mixed * (_CONVOLUTION + 1) + 3 * model.mamba_num_heads + model.mamba_inner
    return int(size(mamba(model, tensor))) + beside // tensor


def _norm(model: ModelShape) -> int:
    return model.hidden_size * (1 if model.normalization == "RMSNorm" else 2)


def _feed_forward_parameters(model: ModelShape, width: int, tensor: int) -> int:
    return _with_biases(model, feed_forward(model, width, tensor))


def _with_biases(model: ModelShape, matrices: tuple[Matrix, ...]) -> int:
    biases = matrices[0].columns + model.hidden_size if model.add_bias_linear else 0
    return int(size(matrices) + biases)


def extra_parameters(model: ModelShape) -> int:
    """Count the final norm and learned positions, which every tensor parallel rank holds."""
    norm = _norm(model)
    learned = model.position_embedding_type == "learned_absolute"
    return norm + (model.max_position_embeddings * model.hidden_size if learned else 0)


def padded_vocabulary(vocabulary: int, tensor: int) -> int:
    """Megatron pads the vocabulary to a multiple of 128 times the tensor parallel size."""
    multiple = _VOCABULARY_MULTIPLE * tensor
    return math.ceil(vocabulary / multiple) * multiple
