"""Memory per GPU of a PyTorch run: FSDP2, which shards the model, and DDP, which copies it.

Zhao et al. 2023, "PyTorch FSDP" (arXiv 2304.11277): of a sharded model a rank holds its share of
weights, gradients and optimizer in fp32, and for a moment whole layers in bf16.
"""

from typing import TYPE_CHECKING

from megatron_eks.predict.memory import (
    Batch,
    Layout,
    MemoryEstimate,
    StageMemory,
    activations,
    layer_parameters,
    logits,
    parameters,
)

if TYPE_CHECKING:
    from megatron_eks.catalog.models import ModelShape

# fp32 weight and two Adam moments: what a checkpoint holds for a parameter.
CHECKPOINT_BYTES_PER_PARAMETER = 12

_FP32, _BF16, _ADAM = 4, 2, 8


def estimate_sharded(
    model: "ModelShape", batch: Batch, capacity_bytes: int, *, shards: int
) -> MemoryEstimate:
    """Return the memory of an FSDP rank whose model lies over so many GPUs."""
    held = parameters(model) // shards
    layer = layer_parameters(model, 1)
    root = parameters(model) - model.num_layers * layer
    # The next layer is gathered while this one computes, and the gradients of one are reduced in
    # fp32; embedding and output layer are gathered for the whole step.
    whole = layer * (2 * _BF16 + _FP32) + root * 2 * _BF16
    return _estimate(model, batch, capacity_bytes, held=held, moment=whole if shards > 1 else 0)


def estimate_copied(model: "ModelShape", batch: Batch, capacity_bytes: int) -> MemoryEstimate:
    """Return the memory of a DDP rank; autocast keeps a copy of the weights in bf16."""
    held = parameters(model)
    return _estimate(model, batch, capacity_bytes, held=held, moment=held * _BF16)


def _estimate(
    model: "ModelShape", batch: Batch, capacity_bytes: int, *, held: int, moment: int
) -> MemoryEstimate:
    layout = Layout(tensor=1, pipeline=1, context=1, data=1)
    stage = StageMemory(
        stage=0,
        parameters=held,
        weights_bytes=held * 2 * _FP32 + moment,
        optimizer_bytes=held * _ADAM,
        activations_bytes=int(activations(model, layout, batch, model.num_layers, 0)),
        logits_bytes=int(logits(model, layout, batch)),
    )
    return MemoryEstimate((stage,), capacity_bytes)
