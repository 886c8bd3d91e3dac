"""Operations that a model asks for: what published TFLOP/s and MFU count.

Narayanan et al. 2021 (arXiv 2104.04473, appendix) with what Megatron-LM counts today
(`num_floating_point_operations`): causal attention has half of the pairs, the input embedding is a
look-up, and what is computed again does not count.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from megatron_eks.catalog.models import ModelShape

FORWARD_AND_BACKWARD = 3  # a backward pass is two matrix products for each of the forward pass


def layer_flops_per_token(model: "ModelShape") -> float:
    """Return the forward operations of one layer's matrices for a token."""
    query = model.num_attention_heads * model.kv_channels
    key_value = 2 * model.num_query_groups * model.kv_channels
    attention = model.hidden_size * (2 * query + key_value)
    gates = 3 if model.swiglu else 2
    feed_forward = gates * model.hidden_size * model.ffn_hidden_size
    router = model.hidden_size * (model.num_experts or 0)
    return 2 * (attention + router + feed_forward * (model.moe_router_topk or 1))


def attention_flops_per_token(model: "ModelShape", sequence_length: int) -> float:
    """Return the forward operations of one layer's causal attention for a token."""
    return 2 * model.num_attention_heads * model.kv_channels * sequence_length


def output_flops_per_token(model: "ModelShape") -> float:
    """Return the forward operations of the output layer for a token."""
    return 2 * model.hidden_size * model.vocab_size


def model_flops_per_token(model: "ModelShape", sequence_length: int) -> float:
    """Return all operations of a training step for a token."""
    layer = layer_flops_per_token(model) + attention_flops_per_token(model, sequence_length)
    return FORWARD_AND_BACKWARD * (model.num_layers * layer + output_flops_per_token(model))
