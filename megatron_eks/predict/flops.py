"""Operations that a model asks for: what published TFLOP/s and MFU count.

Narayanan et al. 2021 (arXiv 2104.04473, appendix) with what Megatron-LM counts today
(`num_floating_point_operations`): causal attention has half of the pairs, the input embedding is a
look-up, and what is computed again does not count.
"""

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.matrices import attention, feed_forward, size

FORWARD_AND_BACKWARD = 3  # a backward pass is two matrix products for each of the forward pass


def layer_flops_per_token(model: ModelShape, *, experts: bool) -> float:
    """Return the forward operations of one layer's matrices for a token."""
    entries = size(attention(model, 1))
    if not experts:
        return 2 * (entries + size(feed_forward(model, model.ffn_hidden_size, 1)))
    entries += model.hidden_size * (model.num_experts or 0)
    entries += size(feed_forward(model, model.expert_width, 1)) * (model.moe_router_topk or 1)
    entries += size(feed_forward(model, model.moe_shared_expert_intermediate_size or 0, 1))
    return 2 * entries


def attention_flops_per_token(model: ModelShape, sequence_length: int) -> float:
    """Return the forward operations of one layer's causal attention for a token."""
    return model.num_attention_heads * (model.key_size + model.value_size) * sequence_length


def output_flops_per_token(model: ModelShape) -> float:
    """Return the forward operations of the output layer for a token."""
    return 2 * model.hidden_size * model.vocab_size


def model_flops_per_token(model: ModelShape, sequence_length: int) -> float:
    """Return all operations of a training step for a token."""
    mixed = model.expert_layers(0, model.num_layers)
    layers = mixed * layer_flops_per_token(model, experts=True)
    layers += (model.num_layers - mixed) * layer_flops_per_token(model, experts=False)
    layers += model.num_layers * attention_flops_per_token(model, sequence_length)
    return FORWARD_AND_BACKWARD * (layers + output_flops_per_token(model))
