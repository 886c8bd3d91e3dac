"""Step time and speed of a run, from its model, layout and hardware."""

from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.calibration import CALIBRATION, Calibration, spread
from megatron_eks.predict.hardware import Hardware
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.matrices import model_flops_per_token
from megatron_eks.predict.parameters import (
    common_parameters,
    expert_parameters,
    padded_vocabulary,
    parameters,
)
from megatron_eks.predict.work import Wires, Worker

_TERA = 1e12
_BF16, _FP32 = 2, 4
# The optimizer reads gradient, master weight and two moments, and writes the last three and the
# weight.
_OPTIMIZER_TRAFFIC = 4 * _FP32 + 3 * _FP32 + _BF16
# PyTorch's selective checkpointing computes every other product again.
_FSDP_SELECTIVE = 0.5


@dataclass(frozen=True)
class Speed:
    """How fast a run is."""

    step_seconds: float
    compute_seconds: float
    """Of it: the microbatches of the slowest stage."""
    communication_seconds: float
    """Of it: what travels and is not hidden."""
    bubble_seconds: float
    """Of it: stages that wait for the first and the last microbatch."""
    optimizer_seconds: float
    tokens_per_second_per_gpu: float
    tflops_per_gpu: float
    mfu: float
    """Of the peak of the precision that the products are in."""
    low: float
    """Tokens a second of a GPU that nearly every run like this reaches."""
    high: float
    """And that nearly none exceeds."""


@dataclass(frozen=True)
class _Parts:
    """Seconds of one step."""

    compute: float
    communication: float
    bubble: float
    optimizer: float


def megatron_speed(
    model: ModelShape,
    layout: Layout,
    batch: Batch,
    hardware: Hardware,
    calibration: Calibration = CALIBRATION,
) -> Speed:
    """Return the speed of a Megatron run.

    The step is what the slowest stage does, the bubble of 1F1B or its interleaved form (Narayanan
    et al. 2021, arXiv 2104.04473, section 2.2), and what is left of gradient reduction and weight
    gathering when one microbatch has hidden the rest.
    """
    worker = Worker("megatron", hardware, calibration, model, layout, batch)
    wires = Wires(hardware, model, layout, batch)
    layer, output = worker.layer(), worker.output()
    chunk = model.num_layers / layout.pipeline / layout.virtual_pipeline
    again = _computed_again(batch, chunk, layer.forward_seconds, layer.attention_seconds)
    computing = layer.forward_seconds + layer.backward_seconds + again
    passes = 3 if batch.recompute == "full" else 2
    ring = max(0.0, wires.context_seconds() - layer.attention_seconds)
    sent = passes * (wires.tensor_seconds() + wires.expert_seconds()) + 2 * ring
    each = max(computing + calibration.exposed_inside * sent, _launching(worker))
    layers = model.num_layers / layout.pipeline
    last = output.forward_seconds + output.backward_seconds
    handed = 2 * layout.virtual_pipeline * wires.pipeline_seconds() * calibration.exposed_inside
    stage = layers * each + handed
    held, experts = _held(model, layout)
    # FSDP gathers weights for each pass of each microbatch, and reduces as often.
    passed = _FP32 + _BF16 * (2 if layout.fsdp else 1)
    reduced = wires.data_seconds(held * passed)
    reduced += wires.replica_seconds(experts * passed) if experts else 0.0
    exposed = max(0.0, reduced - stage) + calibration.exposed_gather * min(reduced, stage)
    exposed *= batch.microbatches if layout.fsdp else 1
    if layout.distributed_optimizer or layout.fsdp:
        held, experts = held / (layout.data * layout.context), experts / layout.expert_data
    parts = _Parts(
        compute=batch.microbatches * (layers * computing + last),
        communication=batch.microbatches * (stage - layers * computing) + exposed,
        bubble=(layout.pipeline - 1) / layout.virtual_pipeline * stage,
        optimizer=_optimizer_seconds(held + experts, hardware),
    )
    return _speed(worker, parts)


def fsdp_speed(
    model: ModelShape,
    layout: Layout,
    batch: Batch,
    hardware: Hardware,
    calibration: Calibration = CALIBRATION,
) -> Speed:
    """Return the speed of an FSDP run: each microbatch gathers the weights twice.

    Gathering and reducing run beside the computation (Zhao et al. 2023, arXiv 2304.11277, section
    3.3): a step takes the longer of the two, and a share of the shorter.
    """
    worker = Worker("fsdp", hardware, calibration, model, layout, batch)
    wires = Wires(hardware, model, layout, batch)
    layer, output = worker.layer(), worker.output()
    half = layer.forward_seconds * _FSDP_SELECTIVE
    again = _computed_again(batch, model.num_layers, layer.forward_seconds, half)
    ring = max(0.0, wires.context_seconds() - layer.attention_seconds)
    passes = 3 if batch.recompute == "full" else 2
    sent = passes * wires.tensor_seconds() + 2 * ring
    each = (
        layer.forward_seconds + layer.backward_seconds + again + calibration.exposed_inside * sent
    )
    each = max(each, _launching(worker))
    last = output.forward_seconds + output.backward_seconds
    computing = model.num_layers / layout.pipeline * each + last
    held = parameters(model) / layout.tensor / layout.pipeline
    gathered = wires.data_seconds(held * (2 * _BF16 + _FP32))
    exposed = max(0.0, gathered - computing) + calibration.exposed_gather * min(gathered, computing)
    handed = 2 * layout.virtual_pipeline * wires.pipeline_seconds() * calibration.exposed_inside
    # In a pipeline weights stay gathered, and gradients unreduced, until the last microbatch.
    times = batch.microbatches if layout.pipeline == 1 else 1
    parts = _Parts(
        compute=batch.microbatches * computing,
        communication=times * exposed + batch.microbatches * handed,
        bubble=(layout.pipeline - 1) / layout.virtual_pipeline * (computing + handed - last),
        optimizer=_optimizer_seconds(held / (layout.data * layout.context), hardware),
    )
    return _speed(worker, parts)


def _launching(worker: Worker) -> float:
    """Return the least time of a layer: until the host has started all of its kernels."""
    if worker.batch.graphs:
        return 0.0
    model, calibration = worker.model, worker.calibration
    mixed = model.expert_layers(0, model.num_layers) / model.num_layers
    dense = (1 - mixed) * calibration.launch_seconds
    return mixed * calibration.launch_experts_seconds + dense


def _computed_again(batch: Batch, layers: float, whole: float, selected: float) -> float:
    """Return the seconds that the average of so many layers computes a second time."""
    if batch.recompute == "full" and batch.recompute_method == "block":
        return whole * min(1.0, batch.recompute_layers / layers)
    if batch.recompute == "full":
        return whole
    return selected if batch.recompute == "selective" else 0.0


def _held(model: ModelShape, layout: Layout) -> tuple[float, float]:
    """Parameters of the fullest rank, roughly: its layers and one table; and those of experts."""
    layers = common_parameters(model, layout.tensor, 0, model.num_layers)
    each = expert_parameters(model, layout.expert, layout.expert_tensor)
    experts = model.expert_layers(0, model.num_layers) * each
    table = padded_vocabulary(model.vocab_size, layout.tensor) * model.hidden_size / layout.tensor
    return layers / layout.pipeline + table, experts / layout.pipeline


def _optimizer_seconds(states: float, hardware: Hardware) -> float:
    return states * _OPTIMIZER_TRAFFIC / hardware.memory_bytes_per_second


def _speed(worker: Worker, parts: _Parts) -> Speed:
    model, layout, batch, hardware = worker.model, worker.layout, worker.batch, worker.hardware
    seconds = parts.compute + parts.communication + parts.bubble + parts.optimizer
    tokens = batch.microbatches * batch.micro_batch_size * batch.sequence_length * layout.data
    rate = tokens / seconds / layout.gpus
    experts = model.num_experts is not None
    factor = spread(worker.framework, hardware.generation, fp8=batch.fp8, experts=experts)
    flops = rate * model_flops_per_token(model, batch.sequence_length)
    return Speed(
        step_seconds=seconds,
        compute_seconds=parts.compute,
        communication_seconds=parts.communication,
        bubble_seconds=parts.bubble,
        optimizer_seconds=parts.optimizer,
        tokens_per_second_per_gpu=rate,
        tflops_per_gpu=flops / _TERA,
        mfu=flops / hardware.peak_flops(fp8=batch.fp8),
        low=rate / factor,
        high=rate * factor,
    )
