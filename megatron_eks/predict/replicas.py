"""Memory per GPU of a PyTorch run: FSDP2, which shards the model, and DDP, which copies it.

Zhao et al. 2023, "PyTorch FSDP" (arXiv 2304.11277): of a sharded model a rank holds its share of
weights, gradients and optimizer in fp32, and for a moment whole layers in bf16.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from megatron_eks.predict.activations import LOGITS_BYTES_PER_ENTRY, activations, logits
from megatron_eks.predict.layout import Layout
from megatron_eks.predict.memory import MemoryEstimate, StageMemory
from megatron_eks.predict.parameters import (
    expert_parameters,
    layer_parameters,
    parameters,
)

if TYPE_CHECKING:
    from megatron_eks.catalog.models import ModelShape
    from megatron_eks.predict.layout import Batch

# fp32 weight and two Adam moments: what a checkpoint holds for a parameter.
CHECKPOINT_BYTES_PER_PARAMETER = 12

_FP32, _BF16, _ADAM = 4, 2, 8

# bf16 logits, fp32 logits, log softmax and its gradient; nothing is done in place. torchtitan's
# published runs with 32 Ki tokens a GPU and full checkpointing show it.
_LOGITS_BYTES_PER_ENTRY = 14
# PyTorch's selective checkpointing keeps the results of every other matrix product: about half.
_SELECTIVE = 0.5

ONE_GPU = Layout(tensor=1, pipeline=1, context=1, data=1)


def estimate_sharded(
    model: "ModelShape",
    batch: "Batch",
    capacity_bytes: int,
    *,
    shards: int,
    layout: Layout = ONE_GPU,
) -> MemoryEstimate:
    """Return the memory of an FSDP rank whose model lies over so many GPUs."""
    held = parameters(model) // (shards * layout.tensor)
    layer = layer_parameters(model, layout.tensor) + expert_parameters(model, 1, layout.tensor)
    root = parameters(model) // layout.tensor - model.num_layers * layer
    # The next layer is gathered while this one computes, and the gradients of one are reduced in
    # fp32; embedding and output layer are gathered for the whole step.
    whole = layer * (2 * _BF16 + _FP32) + root * 2 * _BF16
    moment = whole if shards > 1 else 0
    return _estimate(model, batch, capacity_bytes, layout, held=held, moment=moment)


def estimate_copied(model: "ModelShape", batch: "Batch", capacity_bytes: int) -> MemoryEstimate:
    """Return the memory of a DDP rank; autocast keeps a copy of the weights in bf16."""
    held = parameters(model)
    return _estimate(model, batch, capacity_bytes, ONE_GPU, held=held, moment=held * _BF16)


def _estimate(
    model: "ModelShape",
    batch: "Batch",
    capacity_bytes: int,
    layout: Layout,
    *,
    held: int,
    moment: int,
) -> MemoryEstimate:
    # torchao casts to FP8 in passing, and keeps what comes in as bf16.
    kept = activations(model, layout, replace(batch, fp8=False), model.num_layers, 0)
    if batch.recompute == "selective":
        kept *= _SELECTIVE
    output = logits(model, layout, batch) / LOGITS_BYTES_PER_ENTRY * _LOGITS_BYTES_PER_ENTRY
    stage = StageMemory(
        stage=0,
        parameters=held,
        weights_bytes=held * 2 * _FP32 + moment,
        optimizer_bytes=held * _ADAM,
        activations_bytes=int(kept),
        logits_bytes=int(output),
    )
    return MemoryEstimate((stage,), capacity_bytes)
