"""Memory per GPU of a Megatron run, by pipeline stage, as PyTorch's allocator counts it.

Parameters, gradients and optimizer: Rajbhandari et al. 2020, "ZeRO" (arXiv 1910.02054), as
Megatron-LM's distributed optimizer does it; activations: see `activations`.
"""

from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.activations import activations, logits
from megatron_eks.predict.layout import MIXED, Batch, Layout, States
from megatron_eks.predict.parameters import (
    common_parameters,
    expert_parameters,
    extra_parameters,
    padded_vocabulary,
)

GIB = 1024**3

# What is on the GPU besides tensors: CUDA context and kernels, NCCL's buffers, and what the
# allocator holds but cannot use. Of A100s with 40 GB, runs are known to need 2 to 4 GiB free.
OVERHEAD_BYTES = 3 * GIB

# cuBLAS and Transformer Engine keep workspaces among the tensors: what Megatron's golden runs hold
# between steps beyond their parameters, 0.0 to 1.1 GB.
WORKSPACE_BYTES = 300_000_000

# bf16 weight, fp32 master weight and two Adam moments: what a checkpoint holds for a parameter.
CHECKPOINT_BYTES_PER_PARAMETER = 14

_WEIGHT = 2
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
    host_bytes: int = 0
    """What an offloaded optimizer has in the host's memory."""

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
    model: ModelShape,
    layout: Layout,
    batch: Batch,
    capacity_bytes: int,
    states: States = MIXED,
) -> MemoryEstimate:
    """Return the memory of every pipeline stage."""
    stages = (_stage(model, layout, batch, states, index) for index in range(layout.pipeline))
    return MemoryEstimate(tuple(stages), capacity_bytes)


def _stage(
    model: ModelShape, layout: Layout, batch: Batch, states: States, index: int
) -> StageMemory:
    first, last = index == 0, index == layout.pipeline - 1
    start, stop = layout.stage_span(model.num_layers, index)
    in_layers = common_parameters(model, layout.tensor, start, stop)
    table = padded_vocabulary(model.vocab_size, layout.tensor) * model.hidden_size // layout.tensor
    # A tied output layer is the first stage's table on one stage, and a copy of it on several.
    output_is_own = model.untie_embeddings_and_output_weights or layout.pipeline > 1
    outside = table * (first + (last and output_is_own))
    outside += extra_parameters(model) if first or last else 0
    each = expert_parameters(model, layout.expert, layout.expert_tensor)
    experts = model.expert_layers(start, stop) * each
    held = in_layers + outside
    data = layout.data * layout.context
    shared = layout.distributed_optimizer or layout.fsdp is not None
    optimized = held // (data if shared else 1) + experts // (layout.expert_data if shared else 1)
    weights = (_WEIGHT + states.gradient) * (held + experts)
    if layout.fsdp is not None:
        # Its share, the layer at work and the one after it, and the gradients of one on their way.
        owned = held // data + experts // layout.expert_data
        layer = (in_layers + experts) // (stop - start)
        moment = layer * (2 * _WEIGHT + states.gradient) + outside * _WEIGHT
        weights = (_WEIGHT + states.gradient) * owned + moment
        # PyTorch's leaves gradients in bf16 beside what the optimizer makes of them in fp32.
        weights += _WEIGHT * owned if layout.fsdp == "torch" else 0
    copies = _FP8_COPIES * (in_layers + experts) if batch.fp8 and layout.fsdp is None else 0
    return StageMemory(
        stage=index,
        parameters=held + experts,
        weights_bytes=weights + copies,
        optimizer_bytes=states.optimizer * optimized,
        host_bytes=states.host * optimized,
        activations_bytes=int(activations(model, layout, batch, stop - start, index)),
        logits_bytes=int(logits(model, layout, batch)) if last else 0,
    )
