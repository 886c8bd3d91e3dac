"""Memory per GPU of a PyTorch run: FSDP2, which shards the model, and DDP, which copies it.

Zhao et al. 2023, "PyTorch FSDP" (arXiv 2304.11277): of a sharded model a rank holds its share of
weights, gradients and optimizer in fp32, and for a moment whole layers in bf16. Published peaks of
such runs are what the allocator has reserved, so a tensor whose place no later one can take counts.
"""

from dataclasses import dataclass
from typing import Literal

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.activations import layer_bytes_per_token
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.memory import MemoryEstimate, StageMemory
from megatron_eks.predict.parameters import (
    adapter_parameters,
    layers_parameters,
    padded_vocabulary,
    parameters,
)

# fp32 weight and two Adam moments: what a checkpoint holds for a parameter.
CHECKPOINT_BYTES_PER_PARAMETER = 12

_FP32, _BF16, _ADAM = 4, 2, 8

Loss = Literal["whole", "compiled", "pieces"]
"""`whole`: cross entropy of all tokens at once, kernel by kernel; `compiled`: as one kernel, as
torchtitan does since 2025; `pieces`: this project's."""

# Of each logit: bf16, and three times fp32 (its copy, whose place the gradient takes, the log
# softmax, and the gradient of that), which are alive together. Compiled: bf16 and its gradient.
_BYTES_PER_ENTRY = {"whole": _BF16 + 3 * _FP32, "compiled": 2 * _BF16}
# Compiled: logits, their gradient, and one product on the way (programs/trainer/loss.py).
_PIECE_BYTES_PER_ENTRY, _PIECE_TOKENS = 3 * _BF16, 4096

ONE_GPU = Layout(tensor=1, pipeline=1, context=1, data=1)


@dataclass(frozen=True)
class _Rank:
    """One rank of a run in PyTorch."""

    model: ModelShape
    layout: Layout
    batch: Batch
    loss: Loss

    @property
    def tokens(self) -> float:
        return self.batch.rank_tokens(self.layout)

    def activations(self, stage: int) -> float:
        """Return what the layers keep until the backward pass, and the one that is at work."""
        model, layout, batch = self.model, self.layout, self.batch
        # torchao casts to FP8 in passing, and keeps what comes in as bf16.
        every = layer_bytes_per_token(model, layout, 0.0 if model.num_experts is None else 1.0)
        given = _BF16 * model.hidden_size / (layout.tensor if layout.sequence_parallel else 1)
        # DTensor keeps what goes into the first products of attention and feed-forward as it was
        # gathered, and the sums that come out of the last ones are whole before they are scattered.
        split = layout.tensor > 1 and layout.sequence_parallel
        gathered = 2 * _BF16 * model.hidden_size if split else 0
        kept: float
        working: float
        match batch.recompute:
            case "none":
                kept, working = every + gathered, gathered
            case "selective":
                kept = given + _selected(model, layout, self.loss)
                working = every - kept + 2 * gathered
            case "full":
                kept, working = given, every - given + 2 * gathered
        layers = layout.stage_layers(model.num_layers, stage)
        flying = layout.microbatches_in_flight(stage, batch.microbatches)
        return self.tokens * (layers * kept * flying + working)

    def logits(self) -> float:
        """Return the output layer and its loss."""
        model, layout = self.model, self.layout
        entries = padded_vocabulary(model.vocab_size, layout.tensor) / layout.tensor
        if self.loss == "pieces":
            # The weight's gradient is summed in fp32 over the pieces.
            summed = entries * model.hidden_size * _FP32
            return min(self.tokens, _PIECE_TOKENS) * entries * _PIECE_BYTES_PER_ENTRY + summed
        # The output layer's input, gathered, and its gradient.
        whole = 2 * _BF16 * model.hidden_size if layout.tensor > 1 else 0
        return self.tokens * (entries * _BYTES_PER_ENTRY[self.loss] + whole)


def _selected(model: ModelShape, layout: Layout, loss: Loss) -> float:
    """Return what PyTorch's selective checkpointing keeps of a layer for a token.

    The results of every other matrix product, and attention's (torchtitan's default): of seven
    products query, value, gate and down. A compiled layer keeps only what its backward pass reads,
    and that does not read what down gives; of sums that are scattered it reads attention's.
    """
    query = model.num_attention_heads * model.kv_channels
    value = max(model.num_query_groups, layout.tensor) * model.kv_channels
    inner = 2 * query + value + model.ffn_hidden_size * (model.moe_router_topk or 1)
    kept = _BF16 * inner + _FP32 * model.num_attention_heads
    if loss != "compiled":
        return kept / layout.tensor + _BF16 * model.hidden_size
    scattered = _BF16 * model.hidden_size if layout.tensor > 1 else 0
    return (kept + scattered) / layout.tensor


def estimate_sharded(
    model: ModelShape,
    batch: Batch,
    capacity_bytes: int,
    *,
    shards: int,
    layout: Layout = ONE_GPU,
    loss: Loss = "whole",
) -> MemoryEstimate:
    """Return the memory of FSDP ranks whose model lies over so many GPUs, by pipeline stage."""
    rank = _Rank(model, layout, batch, loss)
    stages = (_sharded(rank, shards, stage) for stage in range(layout.pipeline))
    return MemoryEstimate(tuple(stages), capacity_bytes)


def _sharded(rank: _Rank, shards: int, stage: int) -> StageMemory:
    model, layout = rank.model, rank.layout
    ends = (stage == 0) + (stage == layout.pipeline - 1)
    root = (parameters(model) - layers_parameters(model, 0, model.num_layers)) // layout.tensor
    root = root * ends // 2
    layers = layers_parameters(model, *layout.stage_span(model.num_layers, stage)) // layout.tensor
    held = (layers + root) // shards
    # The next layer is gathered while this one computes, and the gradients of one are reduced in
    # fp32; embedding and output layer are gathered for the whole step.
    count = layout.stage_layers(model.num_layers, stage)
    reduced = 0 if rank.batch.lora else _FP32
    moment = layers // count * (2 * _BF16 + reduced) + root * 2 * _BF16
    if layout.pipeline > 1:
        # Between the microbatches of a pipeline, weights stay gathered and gradients unreduced.
        moment = (layers + root) * (_BF16 + reduced)
    moment = moment if shards > 1 else 0
    return _stage(rank, stage, held=held, moment=moment)


def estimate_copied(
    model: ModelShape, batch: Batch, capacity_bytes: int, *, loss: Loss = "whole"
) -> MemoryEstimate:
    """Return the memory of a DDP rank; autocast keeps a copy of the weights in bf16."""
    held = parameters(model)
    stage = _stage(_Rank(model, ONE_GPU, batch, loss), 0, held=held, moment=held * _BF16)
    return MemoryEstimate((stage,), capacity_bytes)


def _stage(rank: _Rank, stage: int, *, held: int, moment: int) -> StageMemory:
    last, model, layout, trained = stage == rank.layout.pipeline - 1, rank.model, rank.layout, held
    if rank.batch.lora:
        # Frozen weights stay as they were loaded, in bf16; adapters are too small to shard.
        layers, ranks = layout.stage_layers(model.num_layers, stage), (layout.tensor, 1, 1)
        mixed = model.expert_layers(0, layers)
        trained = adapter_parameters(model, ranks, layers, mixed, rank.batch)
        moment += held * _BF16
    return StageMemory(
        stage=stage,
        parameters=held,
        weights_bytes=trained * 2 * _FP32 + moment,
        optimizer_bytes=trained * _ADAM,
        activations_bytes=int(rank.activations(stage)),
        logits_bytes=int(rank.logits()) if last else 0,
    )
