"""Predictions beside what others measured, and beside simpler predictors."""

from dataclasses import replace
from typing import TYPE_CHECKING

from megatron_eks.plan.prediction import USABLE
from megatron_eks.predict.hardware import CALIBRATION, Calibration, Hardware
from megatron_eks.predict.memory import GIB, estimate, tensor_capacity_bytes
from megatron_eks.predict.parameters import (
    common_parameters,
    expert_parameters,
    padded_vocabulary,
)
from megatron_eks.predict.replicas import estimate_sharded
from megatron_eks.predict.throughput import Speed, fsdp_speed, megatron_speed

if TYPE_CHECKING:
    from benchmarks.measured import Measured


def predicted_bytes(row: "Measured") -> int:
    """Return the peak of the rank that was measured."""
    if row.framework == "fsdp":
        shards = row.layout.data * row.layout.context
        memory = estimate_sharded(
            row.model, row.batch, 0, shards=shards, layout=row.layout, loss=row.loss
        )
        return memory.per_gpu_bytes
    found = estimate(row.model, row.layout, row.batch, 0, row.states)
    # Megatron's golden runs report the rank of the last stage. So do Megatron-Bridge's logs, as far
    # as they are from its skills: twice the virtual stages take more, which the first's would not.
    last = "/Megatron-LM" in row.source or "/skills/" in row.source
    return found.stages[-1].total_bytes if last else found.per_gpu_bytes


# GiB of each GPU, as its name says or its data sheet.
_GIB = {
    "a100": 80,
    "a100-40": 40,
    "a100-80": 80,
    "h100": 80,
    "h100-80": 80,
    "h100-500w": 96,
    "h200": 141,
    "b200": 180,
    "gb200": 186,
    "b300": 270,
    "gb300": 279,
}


def does_not_fit(row: "Measured") -> bool:
    """Tell whether a run that ran would be refused."""
    usable = tensor_capacity_bytes(int(_GIB[row.gpu.removesuffix("-efa")] * GIB * USABLE))
    if row.framework == "fsdp":
        shards = row.layout.data * row.layout.context
        memory = estimate_sharded(
            row.model, row.batch, usable, shards=shards, layout=row.layout, loss=row.loss
        )
    else:
        memory = estimate(row.model, row.layout, row.batch, usable, row.states)
    return memory.surely_too_large


def megatron_bytes(row: "Measured") -> float:
    """Return Megatron's own estimate, of the first stage, without overheads.

    `theoretical_memory_usage.py` of core_v0.19: parameters over tensor, pipeline and expert
    parallelism, activations of 34 bytes or so for each token and hidden unit, logits only of one
    stage, nothing of experts' activations.
    """
    model, layout = row.model, row.layout
    table = padded_vocabulary(model.vocab_size, layout.tensor) * model.hidden_size / layout.tensor
    alone = layout.pipeline == 1 and model.untie_embeddings_and_output_weights
    held = common_parameters(model, layout.tensor, 0, model.num_layers) / layout.pipeline
    held += table * (2 if alone else 1)
    each = expert_parameters(model, layout.expert, layout.expert_tensor)
    experts = model.expert_layers(0, model.num_layers) * each / layout.pipeline
    states = held * (6 + 12 / layout.data)
    states += experts * (6 + 12 / max(1, layout.expert_data))
    tokens = row.batch.micro_batch_size * row.batch.sequence_length
    wide = model.ffn_hidden_size / model.hidden_size * (1.5 if model.swiglu else 1)
    layer = tokens * model.hidden_size * (18 + 4 * wide)
    chunks = layout.virtual_pipeline
    penalty = 1 + (layout.pipeline - 1) / (layout.pipeline * chunks) if chunks > 1 else 1.0
    kept = layer * model.num_layers * penalty
    kept += 8 * tokens * layout.pipeline + tokens * model.hidden_size * layout.pipeline
    if layout.pipeline == 1:
        kept += tokens * model.hidden_size * 4 * (1 + model.vocab_size / model.hidden_size)
    return states + kept / layout.tensor


# What the rows' names of GPUs stand for: NVIDIA's data sheets, and the network of DGX systems.
HARDWARE: dict[str, Hardware] = {
    "a100": Hardware("A100-SXM4-80GB", 312.0, None, 600, 25, 8),
    "a100-40": Hardware("A100-SXM4-40GB", 312.0, None, 600, 25, 8),
    "a100-80": Hardware("A100-SXM4-80GB", 312.0, None, 600, 25, 8),
    "h100": Hardware("H100 80GB HBM3", 989.5, 1979.0, 900, 50, 8),
    "h100-80": Hardware("H100 80GB HBM3", 989.5, 1979.0, 900, 50, 8),
    "h100-500w": Hardware("H100 96GB HBM2e", 989.5, 1979.0, 900, 50, 8, 2400.0, power=500 / 700),
    "h200": Hardware("H200", 989.5, 1979.0, 900, 50, 8),
    "b200": Hardware("B200", 2250.0, 4500.0, 1800, 50, 8),
    "b300": Hardware("B300", 2250.0, 4500.0, 1800, 100, 8),
    "gb200": Hardware("GB200", 2500.0, 5000.0, 1800, 50, 72),
    "gb300": Hardware("GB300", 2500.0, 5000.0, 1800, 100, 72),
}
HARDWARE |= {f"{gpu}-efa": replace(HARDWARE[gpu], efa=True) for gpu in ("h100", "b300")}


def predicted_speed(row: "Measured", calibration: Calibration = CALIBRATION) -> Speed:
    """Return the speed of a measured run."""
    hardware = HARDWARE[row.gpu]
    if row.framework == "fsdp":
        return fsdp_speed(row.model, row.layout, row.batch, hardware, calibration)
    return megatron_speed(
        row.model, row.layout, row.batch, hardware, calibration, states=row.states
    )


def predicted_tokens(row: "Measured", calibration: Calibration = CALIBRATION) -> float:
    """Return tokens a second of each GPU."""
    return predicted_speed(row, calibration).tokens_per_second_per_gpu
