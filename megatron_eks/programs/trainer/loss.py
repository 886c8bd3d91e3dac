"""Output layer and cross entropy in one, in pieces: the logits of a piece live for moments only.

A batch of 8,192 tokens over 128,256 words has 4.2 GB of fp32 logits, and as much for their
gradients. Here gradients are made in the forward pass, piece by piece, so nothing is computed
twice and the peak is one piece.
"""

from typing import Any

import torch
from torch import Tensor

# 4,096 tokens keep the matrix units of a GPU busy, and one piece below 4 GB at 128,256 words.
_PIECE_TOKENS = 4096


def piece_loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed loss of a piece in fp32, and its gradient by the logits in their type."""
    wide = logits.float()
    normalizer = wide.logsumexp(dim=-1, keepdim=True)
    places = labels.unsqueeze(-1)
    loss = (normalizer - wide.gather(-1, places)).sum()
    probabilities = (wide - normalizer).exp()
    gradient = probabilities.scatter_add(-1, places, torch.full_like(normalizer, -1.0))
    return loss, gradient.to(logits.dtype)


_piece = piece_loss


def compile_loss() -> None:
    """Fuse the passes over a piece's logits from now on."""
    global _piece  # noqa: PLW0603 -- one choice for the process, made at start
    _piece = torch.compile(piece_loss, dynamic=False)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, labels: Tensor) -> Tensor:  # noqa: ANN401 -- torch's own
        flat = states.reshape(-1, states.shape[-1])
        count = flat.shape[0]
        # bf16 sums of many pieces would lose the small ones.
        of_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        of_states = torch.empty_like(flat)
        total = torch.zeros((), dtype=torch.float32, device=flat.device)
        used = weight.to(flat.dtype)
        pieces = zip(
            flat.split(_PIECE_TOKENS),
            labels.reshape(-1).split(_PIECE_TOKENS),
            of_states.split(_PIECE_TOKENS),
            strict=True,
        )
        for piece, wanted, target in pieces:
            loss, gradient = _piece(piece @ used.t(), wanted)
            total += loss
            torch.mm(gradient, used, out=target)
            of_weight += gradient.t() @ piece
        ctx.save_for_backward(of_states.div_(count).view(states.shape), of_weight.div_(count))
        ctx.weight_type = weight.dtype
        return total / count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401 -- torch's own
        of_states, of_weight = ctx.saved_tensors
        (scale,) = gradients
        return of_states * scale.to(of_states.dtype), (of_weight * scale).to(ctx.weight_type), None


def linear_cross_entropy(states: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross entropy of `states @ weight.T` against the labels, in fp32."""
    kind = states.device.type
    if torch.is_autocast_enabled(kind):
        states = states.to(torch.get_autocast_dtype(kind))
    # Under autocast the pieces would be cast again.
    with torch.autocast(kind, enabled=False):
        return _LinearCrossEntropy.apply(states, weight, labels)
