"""The least time that a step and a checkpoint take: bounds, not predictions."""

from dataclasses import replace
from typing import TYPE_CHECKING

from megatron_eks.predict.parameters import parameters

if TYPE_CHECKING:
    from megatron_eks.catalog.models import ModelShape

# Forward and backward pass: two operations a weight and token, and twice that (Kaplan et al. 2020,
# arXiv 2001.08361, section 2.1); attention itself comes on top.
_OPERATIONS = 6
_TERA = 1e12
_MEGA = 1e6


def least_step_seconds(model: "ModelShape", tokens: int, gpus: int, tflops: float) -> float:
    """Return the time of a step on GPUs that reach their peak, in seconds."""
    active = replace(model, num_experts=model.moe_router_topk) if model.num_experts else model
    return _OPERATIONS * parameters(active) * tokens / (gpus * tflops * _TERA)


def write_seconds(checkpoint_bytes: int, mb_s: float) -> float:
    """Return the time that a checkpoint takes at a file system's rate in MB/s, in seconds."""
    return checkpoint_bytes / _MEGA / mb_s
