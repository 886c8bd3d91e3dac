"""Counts parameters: of a model, and of what one rank holds of its layers."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from megatron_eks.catalog.models import ModelShape

_VOCABULARY_MULTIPLE = 128


def parameters(model: "ModelShape") -> int:
    """Count the parameters of a whole model, without vocabulary padding."""
    embeddings = model.vocab_size * model.hidden_size
    tables = 2 if model.untie_embeddings_and_output_weights else 1
    layer = layer_parameters(model, 1) + expert_parameters(model, 1, 1)
    return model.num_layers * layer + tables * embeddings + extra_parameters(model)


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


def expert_parameters(model: "ModelShape", expert: int, tensor: int) -> int:
    """Parameters of one layer's experts on one rank."""
    count = (model.num_experts or 0) // expert
    return count * _feed_forward_parameters(model, tensor)


def _feed_forward_parameters(model: "ModelShape", tensor: int) -> int:
    gates = 2 if model.swiglu else 1
    matrices = model.hidden_size * (gates + 1) * model.ffn_hidden_size
    biases = gates * model.ffn_hidden_size if model.add_bias_linear else 0
    return (matrices + biases) // tensor + (model.hidden_size if model.add_bias_linear else 0)


def extra_parameters(model: "ModelShape") -> int:
    """Count the final norm and learned positions, which every tensor parallel rank holds."""
    norm = model.hidden_size * (1 if model.normalization == "RMSNorm" else 2)
    learned = model.position_embedding_type == "learned_absolute"
    return norm + (model.max_position_embeddings * model.hidden_size if learned else 0)


def padded_vocabulary(vocabulary: int, tensor: int) -> int:
    """Megatron pads the vocabulary to a multiple of 128 times the tensor parallel size."""
    multiple = _VOCABULARY_MULTIPLE * tensor
    return math.ceil(vocabulary / multiple) * multiple
