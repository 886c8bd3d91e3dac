"""The loss of a run that started twice: read from Megatron's log."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Other ranks may write into the same line, so nothing is anchored.
_LOSS = re.compile(r"iteration +(\d+)/ +\d+ \|[^\n]*?lm loss: ([-+.\dEe]+)")

Losses = dict[int, float]


@dataclass(frozen=True)
class Twice:
    """What two starts computed both: iterations, and by how much they differ at most."""

    iterations: int
    difference: float


def starts(log: str) -> list[Losses]:
    """Return the loss by iteration, for each start that wrote into a log."""
    found: list[Losses] = []
    last = 0
    for iteration, loss in _LOSS.findall(log):
        if not found or int(iteration) <= last:
            found.append({})
        last = int(iteration)
        found[-1][last] = float(loss)
    return found


def compare(before: Mapping[int, float], after: Mapping[int, float]) -> Twice:
    """Compare what was computed again.

    Megatron does not reset its sum after the first iteration of a start, so its second line has
    the mean of both (training_log in megatron/training/training.py).
    """
    again = sorted(after.keys() & before.keys())
    expected = {each: before[each] for each in again}
    if len(again) > 1:
        expected[again[1]] = (before[again[0]] + before[again[1]]) / 2
    return Twice(len(again), max((abs(after[each] - expected[each]) for each in again), default=0))
