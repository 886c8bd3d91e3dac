"""Memory per GPU of a Megatron run, by pipeline stage, as PyTorch's allocator counts it.

Parameters, gradients and optimizer: Rajbhandari et al. 2020, "ZeRO" (arXiv 1910.02054), as
Megatron-LM's distributed optimizer does it; activations: see `activations`.
"""

from dataclasses import dataclass
from functools import cache

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.activations import activations, logits
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.parameters import (
    adapter_parameters,
    ahead_parameters,
    expert_parameters,
    extra_parameters,
    layers_without_experts,
    padded_vocabulary,
)
from megatron_eks.predict.settings import FROZEN, MIXED, States

GIB = 1024**3

# What is on the GPU besides tensors: CUDA context and kernels, NCCL's buffers, and what the
# allocator holds but cannot use. Of A100s with 40 GB, runs are known to need 2 to 4 GiB free.
OVERHEAD_BYTES = 3 * GIB

# cuBLAS and Transformer Engine keep workspaces among the tensors: what Megatron's golden runs hold
# between steps beyond their parameters, 0.0 to 1.1 GB.
WORKSPACE_BYTES = 300_000_000

# bf16 weight, fp32 master weight and two Adam moments: what a checkpoint holds for a parameter.
CHECKPOINT_BYTES_PER_PARAMETER = 14

# The median error of the rows that no constant comes from is below this: what takes less may fit.
SURE = 1.05

_WEIGHT = 2
_ENDS = (0, 1, -1)
# A weight and its transpose, kept over the microbatches of a step; NVFP4 has a scale of 8 bits for
# every 16 values. Megatron's golden FP8 runs hold a byte less of each weight on GB200 than on H100.
_COPIES = {"bf16": 0.0, "fp8": 2.0, "mxfp8": 2.0, "nvfp4": 1.125}


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
    """And what the optimizer's step takes beyond activations, which are gone by then."""
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
    def surely_too_large(self) -> bool:
        """Whether it does not fit even if the estimate is too high."""
        return self.per_gpu_bytes > self.capacity_bytes * SURE

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
    *,
    ends: bool = False,
) -> MemoryEstimate:
    """Return the memory of every pipeline stage, or of the first two and the last.

    Among those is the fullest: the first has most microbatches in flight, the second may have a
    layer more, the last has the loss.
    """
    indices = range(layout.pipeline)
    if ends and layout.pipeline > len(_ENDS):
        indices = range(0)
    stages = [_stage(model, layout, batch, states, index) for index in indices]
    if not stages:
        stages = [_stage(model, layout, batch, states, index % layout.pipeline) for index in _ENDS]
    return MemoryEstimate(tuple(stages), capacity_bytes)


def _stage(
    model: ModelShape, layout: Layout, batch: Batch, states: States, index: int
) -> StageMemory:
    first, last = index == 0, index == layout.pipeline - 1
    adapters, trained = states, 0
    layers = layout.stage_layers(model.num_layers, index)
    mixed = layout.expert_layers(model, index)
    in_layers, outside = _parameters(
        model, layout.tensor, layers, mixed, (first, last, layout.pipeline)
    )
    each = expert_parameters(model, layout.expert, layout.expert_tensor)
    experts = mixed * each
    in_layers += ahead_parameters(model, layout.tensor, each) if last else 0
    held = in_layers + outside
    if batch.lora:
        ranks = (layout.tensor, layout.expert, layout.expert_tensor)
        states, trained = FROZEN, adapter_parameters(model, ranks, layers, mixed, batch)
    data = layout.data * layout.context
    shared = layout.distributed_optimizer or layout.fsdp is not None
    optimized = held // (data if shared else 1) + experts // (layout.expert_data if shared else 1)
    weights = (_WEIGHT + states.gradient) * (held + experts)
    if layout.fsdp is not None:
        # Its share, the layer at work and the one after it, and the gradients of one on their way.
        owned = held // data + experts // layout.expert_data
        layer = (in_layers + experts) // max(1, layers)
        moment = layer * (2 * _WEIGHT + states.gradient) + outside * _WEIGHT
        weights = (_WEIGHT + states.gradient) * owned + moment
        if layout.fsdp == "gradients":
            weights = _WEIGHT * (held + experts) + states.gradient * (owned + layer)
        # PyTorch's leaves gradients in bf16 beside what the optimizer makes of them in fp32.
        weights += _WEIGHT * owned if layout.fsdp == "torch" else 0
    single = batch.precision == "fp8" and not batch.transposed
    copies = 1.0 if single else _COPIES[batch.precision]
    copies *= (in_layers + experts) * (layout.fsdp is None)
    if batch.fp8_weights and batch.quantized:
        # The copies are the weights; what FSDP shards is one of them.
        sharded = held // data + experts // layout.expert_data
        copies -= _WEIGHT * (in_layers + experts) if layout.fsdp is None else sharded
    copies *= 1 - batch.plain_layers / model.num_layers
    weights += (_WEIGHT + adapters.gradient) * trained
    kept = int(activations(model, layout, batch, layers, index))
    loss = int(logits(model, layout, batch)) if last else 0
    # bf16 weights that FP8 ones are made of (Transformer Engine, `quantize_master_weights`).
    made = states.copied + _WEIGHT * (batch.fp8_weights and not batch.lora)
    step = optimized * made * (layout.fsdp is None)
    return StageMemory(
        stage=index,
        parameters=held + experts + trained,
        weights_bytes=int(weights + copies),
        optimizer_bytes=states.optimizer * optimized
        + adapters.optimizer * (trained // (data if shared else 1)),
        host_bytes=states.host * optimized,
        activations_bytes=kept,
        logits_bytes=loss,
        workspace_bytes=WORKSPACE_BYTES + max(0, step - kept - loss),
    )


@cache
def _parameters(
    model: ModelShape, tensor: int, layers: int, mixed: int, place: tuple[bool, bool, int]
) -> tuple[int, int]:
    """Count the parameters of a stage's layers without their experts, and those outside them."""
    first, last, pipeline = place
    in_layers = layers_without_experts(model, tensor, layers, mixed)
    table = padded_vocabulary(model.vocab_size, tensor) * model.hidden_size // tensor
    # A tied output layer is the first stage's table on one stage, and a copy of it on several.
    output_is_own = model.untie_embeddings_and_output_weights or pipeline > 1
    outside = table * (first + (last and output_is_own))
    return in_layers, outside + (extra_parameters(model) if first or last else 0)
