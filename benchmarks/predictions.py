"""Predictions beside what others measured, and beside simpler predictors."""

from typing import TYPE_CHECKING

from megatron_eks.predict.memory import estimate
from megatron_eks.predict.parameters import parameters
from megatron_eks.predict.replicas import estimate_sharded

if TYPE_CHECKING:
    from benchmarks.measured import Measured


def predicted_bytes(row: "Measured") -> int:
    """Return the peak of the rank that was measured."""
    if row.framework == "fsdp":
        shards = row.layout.data * row.layout.context
        memory = estimate_sharded(row.model, row.batch, 0, shards=shards, layout=row.layout)
        return memory.per_gpu_bytes
    return estimate(row.model, row.layout, row.batch, 0).stages[-1].total_bytes


def megatron_bytes(row: "Measured") -> float:
    """Return Megatron's own estimate, which knows neither experts' layout nor overheads.

    `theoretical_memory_usage.py` of Megatron-LM: parameters over tensor and pipeline,
    activations of 34 bytes or so for each token and hidden unit, logits only of one stage.
    """
    model, layout = row.model, row.layout
    held = parameters(model) / (layout.tensor * layout.pipeline)
    states = held * (6 + 12 / layout.data)
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
