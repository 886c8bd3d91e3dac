"""Bytes that a microbatch leaves behind in the forward pass, until the backward pass takes them.

Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models" (arXiv
2205.05198, table 2), generalised to grouped queries, SwiGLU and experts; attention scores are never
kept, as with flash attention (Dao et al. 2022, arXiv 2205.14135).
"""

import math

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.parameters import padded_vocabulary

_BF16, _FP32 = 2, 4

# bf16 logits, and the fp32 softmax that cross entropy makes of them in place
# (megatron/core/tensor_parallel/cross_entropy.py); Megatron's small golden runs show 6.05.
LOGITS_BYTES_PER_ENTRY = 6
# The rank with the busiest experts has more than its share of tokens: Megatron's Mixtral 8x7B runs.
ROUTED_IMBALANCE = 1.15


def activations(model: ModelShape, layout: Layout, batch: Batch, layers: int, stage: int) -> float:
    """Return the bytes that a stage of so many layers keeps, and works on."""
    if not layers:  # a stage of the embedding or the loss alone
        return 0.0
    tokens = batch.rank_tokens(layout)
    start, stop = layout.stage_span(model.num_layers, stage)
    mixed = model.expert_layers(start, stop) / (stop - start)
    experts, dense = (
        tokens * layer_bytes_per_token(model, layout, fp8=batch.fp8, experts=kind)
        for kind in (True, False)
    )
    layer = mixed * experts + (1 - mixed) * dense
    most = max(experts if mixed else 0.0, dense if mixed < 1 else 0.0)  # of any one layer
    shard = layout.tensor if layout.sequence_parallel else 1
    layer_input = tokens * _BF16 * model.hidden_size / shard
    chunk = layers / layout.virtual_pipeline
    if batch.recompute != "full":
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
    return stored * layout.microbatches_in_flight(stage, batch.microbatches) + working


def layer_bytes_per_token(
    model: ModelShape, layout: Layout, *, experts: bool, fp8: bool = False
) -> float:
    """Return what one layer keeps for a token on a rank.

    With FP8, Transformer Engine keeps what goes into a matrix product as one byte, and the output
    of attention both ways, because attention's own backward pass needs it in bf16.
    """
    hidden = model.hidden_size
    kept = 1 if fp8 else _BF16
    masks = 2 * hidden if model.hidden_dropout else 0  # a byte each, of two dropouts
    regional: float = 2 * (_BF16 + kept) * hidden + masks  # inputs and outputs of two norms
    if model.multi_latent_attention:
        # Compressed, before and after their norms.
        latent = (model.q_lora_rank or 0) + model.kv_lora_rank
        regional += _BF16 * (2 * latent + model.qk_pos_emb_head_dim)
    # Query, output of attention, the softmax's fp32 normaliser of each head; key and value.
    attended = model.num_attention_heads * model.value_size
    attention: float = _BF16 * (model.num_attention_heads * model.key_size + attended)
    attention += _BF16 * _key_value_size(model, layout) + _FP32 * model.num_attention_heads
    attention += attended if fp8 else 0
    # SwiGLU keeps gate, value and product; GELU keeps its input and output.
    wide = _BF16 * (2 if model.swiglu else 1) + kept
    feed_forward: float = wide * model.ffn_hidden_size
    if experts:
        # A token goes to several experts, and stands before and behind each of them once more, on
        # every rank that shares the expert.
        copies = 2 * _BF16 * hidden * layout.expert_tensor
        routed = wide * model.expert_width + copies
        feed_forward = routed * (model.moe_router_topk or 1) * ROUTED_IMBALANCE
        feed_forward += wide * (model.moe_shared_expert_intermediate_size or 0)
    sharded = (attention + feed_forward) / layout.tensor
    return sharded + regional / (layout.tensor if layout.sequence_parallel else 1)


def _key_value_size(model: ModelShape, layout: Layout) -> float:
    if model.multi_latent_attention:
        return model.num_attention_heads * (model.key_size + model.value_size)
    return 2 * max(model.num_query_groups, layout.tensor) * model.kv_channels


def logits(model: ModelShape, layout: Layout, batch: Batch) -> float:
    """Return the bytes of the output layer and its loss, on the last stage."""
    vocabulary = padded_vocabulary(model.vocab_size, layout.tensor) / layout.tensor
    return batch.rank_tokens(layout) * vocabulary * LOGITS_BYTES_PER_ENTRY
