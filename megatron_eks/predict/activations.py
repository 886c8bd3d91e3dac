"""Bytes that a microbatch leaves behind in the forward pass, until the backward pass takes them.

Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models" (arXiv
2205.05198, table 2), generalised to grouped queries, SwiGLU and experts; attention scores are never
kept, as with flash attention (Dao et al. 2022, arXiv 2205.14135).
"""

import math
from functools import cache

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.layout import Batch, Layout, Precision
from megatron_eks.predict.parameters import padded_vocabulary

_BF16, _FP32 = 2, 4

# The fp32 softmax that cross entropy keeps of each head's logits, and the bf16 logits of the head
# at work (megatron/core/tensor_parallel/cross_entropy.py); small golden runs show 6.05 of one.
_SOFTMAX, _LOGITS = 4, 2
# The rank with the busiest experts has more than its share of tokens: Megatron's Mixtral 8x7B runs.
ROUTED_IMBALANCE = 1.25
# Of what goes into a product; blocks have a scale each.
_KEPT: dict[Precision, float] = {"bf16": 2, "fp8": 1, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
NONE: frozenset[str] = frozenset()


def activations(model: ModelShape, layout: Layout, batch: Batch, layers: int, stage: int) -> float:
    """Return the bytes that a stage of so many layers keeps, and works on."""
    if not layers:  # a stage of the embedding or the loss alone
        return 0.0
    tokens = batch.rank_tokens(layout)
    mixed = layout.expert_layers(model, stage) / layers
    layer, most = _layer(model, layout, batch, mixed, NONE)
    shard = layout.tensor if layout.sequence_parallel else 1
    layer_input = tokens * _BF16 * model.hidden_size / shard
    chunk = layers / layout.virtual_pipeline
    kept = layer
    if batch.recompute == "selective" and batch.modules:
        kept, _ = _layer(model, layout, batch, mixed, batch.modules)
        stored, working = layers * kept, layer - kept
    elif batch.recompute != "full":
        stored, working = layers * layer, 0.0
    elif batch.recompute_method == "block":
        recomputed = min(batch.recompute_layers, chunk) * layout.virtual_pipeline
        stored = recomputed * layer_input + (layers - recomputed) * layer
        # They come first: by the time they are computed again, the layers behind them are done.
        working = 0.0 if batch.recompute_layers < chunk else most - layer_input
    else:
        group = min(batch.recompute_layers, chunk)
        stored = math.ceil(chunk / group) * layout.virtual_pipeline * layer_input
        # The input of the group that is computed again is already counted.
        working = group * most - layer_input
        kept = layer_input
    if stage == layout.pipeline - 1:
        # Computed again as the others are, but by blocks (multi_token_prediction.py).
        stored += model.ahead_layers * kept
    # Of what waits in the host's memory one layer is on its way.
    stored -= batch.offloaded * max(0.0, stored - layer)
    return stored * layout.microbatches_in_flight(stage, batch.microbatches) + working


def _layer(
    model: ModelShape, layout: Layout, batch: Batch, mixed: float, modules: frozenset[str]
) -> tuple[float, float]:
    """Return what a layer keeps on average, and the most that any one does."""
    tokens = batch.rank_tokens(layout)
    parts = model.parts(1, mixed)
    each = {
        part: tokens * part_bytes_per_token(model, layout, part, modules, batch)
        for part, count in parts.items()
        if count
    }
    # All parts but attention stand for each other, and in a hybrid attention too.
    above = 0.0 if model.hybrid_layer_pattern else each.pop("*")
    most = above + max(each.values())
    return above + sum(parts[part] * size for part, size in each.items()), most


def layer_bytes_per_token(model: ModelShape, layout: Layout, mixed: float) -> float:
    """Return what an average layer keeps for a token on a rank, in bf16."""
    parts = {part: count for part, count in model.parts(1, mixed).items() if count}
    each = {part: part_bytes_per_token(model, layout, part, NONE, None) for part in parts}
    return sum(count * each[part] for part, count in parts.items())


def part_bytes_per_token(
    model: ModelShape, layout: Layout, part: str, modules: frozenset[str], batch: Batch | None
) -> float:
    """Return what a part keeps for a token on a rank, of what is not computed again.

    Without a batch in bf16, and with no expert's tokens limited.
    """
    shared = layout.tensor if layout.sequence_parallel else 1
    ranks = (layout.tensor, shared, layout.expert_tensor)
    precision: Precision = batch.precision if batch else "bf16"
    most = batch.capacity if batch else None
    return _part_bytes(model, ranks, part, (precision, modules, most or ROUTED_IMBALANCE))


@cache
def _part_bytes(
    model: ModelShape,
    ranks: tuple[int, int, int],
    part: str,
    how: tuple[Precision, frozenset[str], float],
) -> float:
    """Return the bytes of a part and its norm on ranks that share them, and each expert.

    With FP8, Transformer Engine keeps what goes into a matrix product as one byte, and the output
    of attention both ways, because attention's own backward pass needs it in bf16.
    """
    hidden, (tensor, shared, expert_tensor) = model.hidden_size, ranks
    precision, modules, imbalance = how
    kept = _KEPT[precision]
    mask = hidden if model.hidden_dropout else 0  # a byte each
    outputs = 0.0 if "layernorm" in modules else kept
    regional: float = (_BF16 + outputs) * hidden + mask  # input and output of the norm
    if part == "*":
        within, compressed = _attention_bytes(model, tensor, precision, modules)
        return within / tensor + (regional + compressed) / shared
    # SwiGLU keeps gate, value and product; GELU keeps its input and output.
    before = _BF16 * (2 if model.swiglu else 1)
    if part == "-":
        within = 0 if "mlp" in modules else (before + kept) * model.ffn_hidden_size
    elif part == "E":
        # A token goes to several experts, and is kept once for each as what goes into it, on every
        # rank that shares the expert. What comes out is added up at once: its weight is multiplied
        # into the activation (moe_utils.py, unpermute; experts.py, weighted_bias_swiglu).
        copies = kept * model.expert_hidden * expert_tensor
        after = 0.0 if "moe_act" in modules else kept
        routed = (before + after) * model.expert_width + copies
        within = routed * (model.moe_router_topk or 1) * imbalance
        always = 0.0 if "shared_experts" in modules else before + kept
        within += always * (model.moe_shared_expert_intermediate_size or 0)
        within *= "moe" not in modules
    else:
        # Convolution and scan are computed again from what they are given; what the scan gives is
        # kept before its norm (mamba_ssm's ssd_combined.py), and behind it goes into a product.
        given = 2 * model.mamba_inner + 2 * model.mamba_num_groups * model.mamba_state_dim
        within = _BF16 * (given + model.mamba_inner) + kept * model.mamba_inner
    return within / tensor + regional / shared


def _attention_bytes(
    model: ModelShape, tensor: int, precision: Precision, modules: frozenset[str]
) -> tuple[float, float]:
    """Return what attention keeps on ranks that share its heads, and what is compressed."""
    compressed = 0.0
    if model.multi_latent_attention:
        # Compressed, before and after their norms.
        latent = (model.q_lora_rank or 0) + model.kv_lora_rank
        compressed = _BF16 * (2 * latent + model.qk_pos_emb_head_dim)
    # Query, output of attention, the softmax's fp32 normaliser of each head; key and value.
    attended = model.num_attention_heads * model.value_size
    attention: float = _BF16 * attended + _FP32 * model.num_attention_heads
    if not (model.multi_latent_attention and "mla_up_proj" in modules):
        attention += _BF16 * model.num_attention_heads * model.key_size
        attention += _BF16 * _key_value_size(model, tensor)
    attention += attended * _KEPT[precision] if precision != "bf16" else 0
    return attention, compressed


def _key_value_size(model: ModelShape, tensor: int) -> float:
    if model.multi_latent_attention:
        return model.num_attention_heads * (model.key_size + model.value_size)
    return 2 * max(model.num_query_groups, tensor) * model.kv_channels


def logits(model: ModelShape, layout: Layout, batch: Batch) -> float:
    """Return the bytes of the output layer and its losses, on the last stage."""
    vocabulary = padded_vocabulary(model.vocab_size, layout.tensor) / layout.tensor
    entry = _SOFTMAX * (1 + model.mtp_num_layers) + _LOGITS
    return batch.rank_tokens(layout) * vocabulary * entry
