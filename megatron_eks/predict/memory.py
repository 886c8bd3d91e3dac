"""Memory per GPU of a Megatron run, by pipeline stage, as PyTorch's allocator counts it.

Parameters, gradients and optimizer: Rajbhandari et al. 2020, "ZeRO" (arXiv 1910.02054), as
Megatron-LM's distributed optimizer does it; activations: see `activations`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.predict.activations import activations, logits
from megatron_eks.predict.parameters import (
    expert_parameters,
    extra_parameters,
    layer_parameters,
    padded_vocabulary,
)

if TYPE_CHECKING:
    from megatron_eks.catalog.models import ModelShape
    from megatron_eks.predict.layout import Batch, Layout

GIB = 1024**3

# What is on the GPU besides tensors: CUDA context and kernels, NCCL's buffers, and what the
# allocator holds but cannot use. Of A100s with 40 GB, runs are known to need 2 to 4 GiB free.
OVERHEAD_BYTES = 3 * GIB

# cuBLAS and Transformer Engine keep workspaces among the tensors: what Megatron's golden runs hold
# between steps beyond their parameters, 0.0 to 1.1 GB.
WORKSPACE_BYTES = 300_000_000

# bf16 weight, fp32 master weight and two Adam moments: what a checkpoint holds for a parameter.
CHECKPOINT_BYTES_PER_PARAMETER = 14

_WEIGHT, _GRADIENT, _OPTIMIZER = 2, 4, 12  # bf16; fp32; fp32 master weight and two moments
_FP8_COPIES = 2  # a weight and its transpose, kept over the microbatches of a step


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
    workspace_bytes: int = WORKSPACE_BYTES

    @property
    def total_bytes(self) -> int:
        """Return everything: what `torch.cuda.max_memory_allocated` would say."""
        return (
            self.weights_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.logits_bytes
            + self.workspace_bytes
        )


@dataclass(frozen=True)
class MemoryEstimate:
    """What a run takes, and what a GPU has."""

    stages: tuple[StageMemory, ...]
    capacity_bytes: int
    """What tensors can have of the GPU."""

    @property
    def per_gpu_bytes(self) -> int:
        """The fullest stage."""
        return self.fullest.total_bytes

    @property
    def fullest(self) -> StageMemory:
        """The stage that decides."""
        return max(self.stages, key=lambda stage: stage.total_bytes)


def tensor_capacity_bytes(usable_bytes: int) -> int:
    """Return what tensors can have of what a process can allocate on a GPU."""
    return max(0, usable_bytes - OVERHEAD_BYTES)


def estimate(
    model: "ModelShape", layout: "Layout", batch: "Batch", capacity_bytes: int
) -> MemoryEstimate:
    """Return the memory of every pipeline stage."""
    stages = tuple(_stage(model, layout, batch, index) for index in range(layout.pipeline))
    return MemoryEstimate(stages, capacity_bytes)


def _stage(model: "ModelShape", layout: "Layout", batch: "Batch", index: int) -> StageMemory:
    first, last = index == 0, index == layout.pipeline - 1
    layers = layout.stage_layers(model.num_layers, index)
    in_layers = layers * layer_parameters(model, layout.tensor)
    table = padded_vocabulary(model.vocab_size, layout.tensor) * model.hidden_size // layout.tensor
    # A tied output layer is the first stage's table on one stage, and a copy of it on several.
    output_is_own = model.untie_embeddings_and_output_weights or layout.pipeline > 1
    held = in_layers + table * (first + (last and output_is_own))
    held += extra_parameters(model) if first or last else 0
    experts = layers * expert_parameters(model, layout.expert, layout.expert_tensor)
    sharded = layout.distributed_optimizer
    states = held // (layout.data * layout.context if sharded else 1)
    states += experts // (layout.expert_data if sharded else 1)
    copies = _FP8_COPIES * (in_layers + experts) if batch.fp8 else 0
    return StageMemory(
        stage=index,
        parameters=held + experts,
        weights_bytes=(_WEIGHT + _GRADIENT) * (held + experts) + copies,
        optimizer_bytes=_OPTIMIZER * states,
        activations_bytes=int(activations(model, layout, batch, layers, index)),
        logits_bytes=int(logits(model, layout, batch)) if last else 0,
    )
