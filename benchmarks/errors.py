"""How far predictions are from measurements: the tables that `make bench` prints."""

import math
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING

from benchmarks import measured
from benchmarks.predictions import (
    HARDWARE,
    megatron_bytes,
    predicted_bytes,
    predicted_speed,
    predicted_tokens,
)
from benchmarks.timing import verdict
from megatron_eks.predict.flops import model_flops_per_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from benchmarks.measured import Measured
    from benchmarks.timing import Row

_MEMORY_BAR = 0.05
_KNOWN_BAR, _UNSEEN_BAR = 0.10, 0.20
_NINE_TENTHS = 0.9


def rows() -> "Iterator[Row]":
    """Yield a row for each part of the data, ours first, then simpler predictors on the same."""
    peaks = [row for row in measured.memory() if row.framework == "megatron"]
    kept = [row for row in peaks if row.part == "kept"]
    mean = fmean(row.value for row in peaks if row.part == "fit")
    yield _row("memory, Megatron, rows kept aside", relative(kept, predicted_bytes), _MEMORY_BAR)
    yield _row("  Megatron's own estimator", relative(kept, megatron_bytes))
    yield _row("  the mean of the other rows", relative(kept, lambda _: mean))
    shared = [row for row in measured.memory() if row.framework == "fsdp" and row.part == "kept"]
    yield _row("memory, FSDP, rows kept aside", relative(shared, predicted_bytes))
    speeds = measured.throughput()
    constant = constant_efficiency([row for row in speeds if row.part == "fit"])
    for part, words, bar in (("kept", "known", _KNOWN_BAR), ("unseen", "unseen", _UNSEEN_BAR)):
        chosen = [row for row in speeds if row.part == part]
        yield _row(f"speed, {words} families", relative(chosen, predicted_tokens), bar)
        yield _row("  constant efficiency", relative(chosen, constant))
    for family in dict.fromkeys(row.family for row in speeds):
        chosen = [row for row in speeds if row.family == family and row.part != "fit"]
        if chosen:
            known = chosen[0].part == "kept"
            bar = _KNOWN_BAR if known else _UNSEEN_BAR
            yield _row(f"  {family} ({chosen[0].part})", relative(chosen, predicted_tokens), bar)


def relative(rows_: "Iterable[Measured]", predictor: "Callable[[Measured], float]") -> list[float]:
    """Return how far a predictor is from each measurement, without sign."""
    return [abs(predictor(row) / row.value - 1) for row in rows_]


def constant_efficiency(rows_: "Sequence[Measured]") -> "Callable[[Measured], float]":
    """Return a predictor: one share of the peak for each framework, generation and precision."""
    shares: dict[tuple[str, str, bool], list[float]] = {}
    for row in rows_:
        shares.setdefault(_kind(row), []).append(row.value / _ideal(row))
    everything = median(share for found in shares.values() for share in found)

    def predict(row: "Measured") -> float:
        found = shares.get(_kind(row))
        return _ideal(row) * (median(found) if found else everything)

    return predict


def kendall_tau(rows_: "Sequence[Measured]") -> float:
    """Return how well the order is kept: 1 if every pair is in the measured order."""
    score = [
        math.copysign(1, (predicted_tokens(a) - predicted_tokens(b)) * (a.value - b.value))
        for a, b in combinations(rows_, 2)
        if a.value != b.value
    ]
    return fmean(score)


def inside(row: "Measured") -> bool:
    """Tell whether the truth lies in the printed range."""
    speed = predicted_speed(row)
    return speed.low <= row.value <= speed.high


def _kind(row: "Measured") -> tuple[str, str, bool]:
    return row.framework, HARDWARE[row.gpu].generation, row.batch.fp8


def _ideal(row: "Measured") -> float:
    """Tokens a second at the GPU's peak, recomputation counted as work."""
    flops = model_flops_per_token(row.model, row.batch.sequence_length)
    flops *= 4 / 3 if row.batch.recompute == "full" else 1
    return HARDWARE[row.gpu].peak_flops(fp8=row.batch.fp8) / flops


def _row(name: str, errors: "Sequence[float]", bar: float | None = None) -> "Row":
    ordered = sorted(errors)
    worst = ordered[min(len(ordered) - 1, int(_NINE_TENTHS * len(ordered)))]
    found = f"{median(errors):.1%}, p90 {worst:.0%}, n {len(errors)}"
    if bar is None:
        return name, found, "", ""
    return name, found, f"{bar:.0%}", verdict(holds=median(errors) <= bar)
