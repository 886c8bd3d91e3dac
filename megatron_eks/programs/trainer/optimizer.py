"""The optimizer of a run."""

import torch
from torch import nn

from megatron_eks.programs.trainer.config import Training


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
