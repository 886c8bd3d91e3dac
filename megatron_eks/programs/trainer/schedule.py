"""The learning rate of a run at each step."""

import math

from megatron_eks.programs.trainer.config import Training


def learning_rate(training: Training, step: int) -> float:
    """Return the rate of a step, counted from 1: a linear warm-up, then the schedule."""
    top, least = training.learning_rate, training.min_learning_rate
    if step <= training.warmup_iters:
        return top * step / training.warmup_iters
    if training.lr_schedule == "constant":
        return top
    done = (step - training.warmup_iters) / max(1, training.max_steps - training.warmup_iters)
    done = min(1.0, done)
    part = 1.0 - done if training.lr_schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2
    return least + (top - least) * part
