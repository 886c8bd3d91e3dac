"""What our own trainers write of their steps to metrics.jsonl, in whose names a step is told."""

import json
from collections.abc import Mapping
from pathlib import Path

from megatron_eks.programs.run_log import Step

FIGURES = ("seconds", "tokens_per_second", "mfu", "grad_norm")
"""Of a step, beside its loss."""

_MOST_BYTES = 4096


def data_seconds(path: Path) -> float | None:
    """Return how long the newest step waited for its batch. Raises OSError and ValueError."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_BYTES))
        whole, _, _ = file.read().rpartition(b"\n")
    waited: float | None = json.loads(whole.rpartition(b"\n")[2]).get("data_seconds")
    return waited


def step_of(told: Mapping[str, float]) -> Step:
    """Return a step from what is told of it, in our trainers' names. Raises KeyError."""
    return Step(
        *(int(told["step"]), 0, told["loss"]),
        seconds=told.get("seconds"),
        tokens_per_second=told.get("tokens_per_second"),
        mfu=told.get("mfu"),
        grad_norm=told.get("grad_norm"),
    )
