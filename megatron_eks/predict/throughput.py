"""Step time and speed of a run, from its model, layout and hardware."""

from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.hardware import CALIBRATION, Calibration, Hardware, spread
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.matrices import model_flops_per_token
from megatron_eks.predict.parameters import (
    adapter_parameters,
    common_parameters,
    expert_parameters,
    padded_vocabulary,
    parameters,
)
from megatron_eks.predict.settings import MIXED, States
from megatron_eks.predict.wires import Wires
from megatron_eks.predict.work import Work, Worker

_TERA = 1e12
_BF16, _FP32 = 2, 4
# The optimizer reads gradient, master weight and two moments, and writes the last three and the
# weight.
_OPTIMIZER_TRAFFIC = 4 * _FP32 + 3 * _FP32 + _BF16
# How sharply the slower of host and GPU decides: 2 would be far from sharp.
_SOFT = 4
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
    launch_seconds: float
    """Of it: GPUs that wait until the host has started their kernels."""
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
    measured_rows: int
    """Published runs like this one, none of them fitted, that the range comes from."""


@dataclass(frozen=True)
class _Parts:
    """Seconds of one step."""

    compute: float
    communication: float
    launch: float
    bubble: float
    optimizer: float


def megatron_speed(
    model: ModelShape,
    layout: Layout,
    batch: Batch,
    hardware: Hardware,
    calibration: Calibration = CALIBRATION,
    *,
    states: States = MIXED,
) -> Speed:
    """Return the speed of a Megatron run.

    The step is what the slowest stage does, the bubble of 1F1B or its interleaved form (Narayanan
    et al. 2021, arXiv 2104.04473, section 2.2), and what is left of gradient reduction and weight
    gathering when one microbatch has hidden the rest.
    """
    worker = Worker("megatron", hardware, calibration, model, layout, batch)
    wires = Wires(hardware, model, layout, batch, calibration["all-to-all efa"])
    layer, output = worker.work()
    chunk = model.num_layers / layout.pipeline / layout.virtual_pipeline
    again = _computed_again(batch, chunk, layer, layer.again_seconds)
    computing = layer.forward_seconds + layer.backward_seconds + again
    whole = batch.recompute == "full"
    mixed = model.expert_layers(0, model.num_layers) / model.num_layers
    passes = 3 if whole or "moe" in batch.modules else 2
    sent = _sent(calibration, wires, layer, mixed, passes)
    # What is computed again is started again.
    host = calibration.launching(batch, mixed, hardware.generation)
    host *= computing / (computing - again)
    waited = _waited(host, computing + sent)
    handed = 2 * layout.virtual_pipeline * wires.pipeline_seconds() * calibration["exposed tensor"]
    last = output.forward_seconds + output.backward_seconds
    slowest, average = _layers(model, layout, last / (computing + sent + waited))
    stage = average * (computing + sent + waited) + handed + last / layout.pipeline
    held, experts = _held(model, layout)
    if batch.lora:
        held, experts = _adapters(model, layout, batch), 0.0
    # FSDP gathers weights for each pass of each microbatch, and reduces as often.
    weight = 1 if batch.fp8_weights else _BF16
    passed = states.gradient + weight * (2 if layout.fsdp not in {None, "gradients"} else 1)
    reduced = wires.data_seconds(held * passed)
    reduced += wires.replica_seconds(experts * passed) if experts else 0.0
    exposed = max(0.0, reduced - stage) + calibration["slowed megatron"] * min(reduced, stage)
    exposed *= batch.microbatches if layout.fsdp else 1
    if layout.distributed_optimizer or layout.fsdp:
        held, experts = held / (layout.data * layout.context), experts / layout.expert_data
    parts = _Parts(
        compute=batch.microbatches * slowest * computing
        + batch.microbatches * last * _last(layout),
        communication=batch.microbatches * (slowest * sent + handed) + exposed,
        launch=batch.microbatches * slowest * waited,
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
    wires = Wires(hardware, model, layout, batch, calibration["all-to-all efa"])
    layer, output = worker.work()
    half = layer.forward_seconds * _FSDP_SELECTIVE
    once = layer.forward_seconds + layer.backward_seconds
    each = once + _computed_again(batch, model.num_layers, layer, half)
    mixed = model.expert_layers(0, model.num_layers) / model.num_layers
    sent = _sent(calibration, wires, layer, mixed, 3 if batch.recompute == "full" else 2)
    host = calibration.launching(batch, mixed, hardware.generation) * each / once
    waited = _waited(host, each + sent)
    last = output.forward_seconds + output.backward_seconds
    layers = model.num_layers / layout.pipeline
    computing = layers * (each + sent + waited) + last
    held = parameters(model) / layout.tensor / layout.pipeline
    gathered = wires.data_seconds(held * (2 * _BF16 + (0 if batch.lora else _FP32)))
    held = _adapters(model, layout, batch) if batch.lora else held
    slowed = calibration["slowed fsdp"] * min(gathered, computing)
    exposed = max(0.0, gathered - computing) + slowed
    handed = 2 * layout.virtual_pipeline * wires.pipeline_seconds() * calibration["exposed tensor"]
    # In a pipeline weights stay gathered, and gradients unreduced, until the last microbatch.
    times = batch.microbatches if layout.pipeline == 1 else 1
    parts = _Parts(
        compute=batch.microbatches * (layers * each + last),
        communication=times * exposed + batch.microbatches * (handed + layers * sent),
        launch=batch.microbatches * layers * waited,
        bubble=(layout.pipeline - 1) / layout.virtual_pipeline * (computing + handed - last),
        optimizer=_optimizer_seconds(held / (layout.data * layout.context), hardware),
    )
    return _speed(worker, parts)


def _waited(host: float, gpu: float) -> float:
    """Return how long a GPU waits for its host: neither is always the slower of the two."""
    return float((host**_SOFT + gpu**_SOFT) ** (1 / _SOFT)) - gpu


def _sent(calibration: Calibration, wires: Wires, layer: Work, mixed: float, passes: int) -> float:
    """Return what is not hidden of an average layer's traffic inside one copy of the model."""
    ring = max(0.0, wires.context_seconds() - layer.attention_seconds)
    tensor = passes * wires.tensor_seconds() + 2 * ring
    experts = mixed * passes * wires.expert_seconds() * calibration["exposed experts"]
    if wires.batch.expert_overlap:
        # Another microbatch's layer computes meanwhile.
        experts = max(0.0, experts - layer.forward_seconds - layer.backward_seconds)
    return calibration["exposed tensor"] * tensor + experts


def _last(layout: Layout) -> float:
    return 1.0 if layout.pipeline == 1 else 0.0


def _layers(model: ModelShape, layout: Layout, output: float) -> tuple[float, float]:
    """Return the layers of the slowest stage, its loss counted in layers, and of the average."""
    count = model.num_layers + model.ahead_layers
    if layout.pipeline == 1:
        return count, count
    last = layout.pipeline - 1
    stages = [layout.stage_layers(model.num_layers, stage) for stage in (0, 1 % layout.pipeline)]
    end = layout.stage_layers(model.num_layers, last) + model.ahead_layers + output
    if layout.stages.chunks:
        stages = [layout.stage_layers(model.num_layers, stage) for stage in range(last)]
    return max(*stages, end), count / layout.pipeline


def _computed_again(batch: Batch, layers: float, layer: Work, selected: float) -> float:
    """Return the seconds that the average of so many layers computes a second time."""
    if batch.recompute == "full" and batch.recompute_method == "block":
        return layer.forward_seconds * min(1.0, batch.recompute_layers / layers)
    if batch.recompute == "full":
        return layer.forward_seconds
    return selected if batch.recompute == "selective" else 0.0


def _held(model: ModelShape, layout: Layout) -> tuple[float, float]:
    """Parameters of the fullest rank, roughly: its layers and one table; and those of experts."""
    layers = common_parameters(model, layout.tensor, 0, model.num_layers)
    each = expert_parameters(model, layout.expert, layout.expert_tensor)
    experts = model.expert_layers(0, model.num_layers) * each
    table = padded_vocabulary(model.vocab_size, layout.tensor) * model.hidden_size / layout.tensor
    return layers / layout.pipeline + table, experts / layout.pipeline


def _adapters(model: ModelShape, layout: Layout, batch: Batch) -> float:
    """Count what alone is reduced and updated of a frozen model, on one rank."""
    ranks = (layout.tensor, layout.expert, layout.expert_tensor)
    mixed = model.expert_layers(0, model.num_layers)
    return adapter_parameters(model, ranks, model.num_layers, mixed, batch) / layout.pipeline


def _optimizer_seconds(states: float, hardware: Hardware) -> float:
    return states * _OPTIMIZER_TRAFFIC / hardware.memory_bytes_per_second


def _speed(worker: Worker, parts: _Parts) -> Speed:
    model, layout, batch, hardware = worker.model, worker.layout, worker.batch, worker.hardware
    seconds = parts.compute + parts.communication + parts.launch + parts.bubble + parts.optimizer
    tokens = batch.microbatches * batch.micro_batch_size * batch.sequence_length * layout.data
    rate = tokens / seconds / layout.gpus
    factor, rows = spread(
        worker.framework,
        hardware.generation,
        batch.precision,
        experts=model.num_experts is not None,
        hybrid=model.hybrid_layer_pattern is not None,
    )
    flops = rate * model_flops_per_token(model, batch.sequence_length, frozen=batch.lora > 0)
    return Speed(
        step_seconds=seconds,
        compute_seconds=parts.compute,
        communication_seconds=parts.communication,
        launch_seconds=parts.launch,
        bubble_seconds=parts.bubble,
        optimizer_seconds=parts.optimizer,
        tokens_per_second_per_gpu=rate,
        tflops_per_gpu=flops / _TERA,
        mfu=flops / hardware.peak_flops(batch.precision),
        low=rate / factor,
        high=rate * factor,
        measured_rows=rows,
    )
