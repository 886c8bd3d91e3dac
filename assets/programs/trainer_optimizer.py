"""The optimizer of a run, and its learning rate at each step."""

import math

import torch
from torch import nn
from trainer_config import Training


def make_optimizer(model: nn.Module, training: Training, device: torch.device) -> torch.optim.AdamW:
    """Return AdamW; norms and biases do not decay, as in Megatron."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [entry for entry in parameters if entry.dim() > 1]},
        {"params": [entry for entry in parameters if entry.dim() == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=training.learning_rate,
        betas=(training.adam_beta1, training.adam_beta2),
        weight_decay=training.weight_decay,
        fused=device.type == "cuda",
    )


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
