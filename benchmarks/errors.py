"""How far predictions are from measurements: the tables that `make bench` prints."""

import math
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING

from benchmarks import calculon, measured
from benchmarks.predictions import (
    HARDWARE,
    megatron_bytes,
    predicted_bytes,
    predicted_speed,
    predicted_tokens,
)
from benchmarks.timing import verdict
from megatron_eks.predict.matrices import model_flops_per_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from benchmarks.measured import Measured
    from benchmarks.timing import Row

_MEMORY_BAR = 0.05
_TAU_BAR = 0.8
_NOISE = 0.1
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
    yield _row("memory, FSDP, rows kept aside", relative(shared, predicted_bytes), _MEMORY_BAR)
    speeds = measured.throughput()
    constant = constant_efficiency([row for row in speeds if row.part == "fit"])
    for part, words, bar in (("kept", "known", _KNOWN_BAR), ("unseen", "unseen", _UNSEEN_BAR)):
        chosen = [row for row in speeds if row.part == part]
        yield _row(f"speed, {words} families", relative(chosen, predicted_tokens), bar)
        yield _row("  constant efficiency", relative(chosen, constant))
    known = calculon.answered()
    yield _row("speed, where calculon has an answer", relative(known, predicted_tokens))
    yield _row("  calculon", relative(known, calculon.said()))
    yield _row("  constant efficiency", relative(known, constant))


def families() -> "Iterator[tuple[str, ...]]":
    """Yield for each family what is known of it, the error, the range and the order."""
    speeds = measured.throughput()
    for family in dict.fromkeys(row.family for row in speeds):
        rows_ = [row for row in speeds if row.family == family]
        chosen = [row for row in rows_ if row.part != "fit"]
        if not chosen:
            continue
        fitted = len(rows_) - len(chosen)
        bar = _KNOWN_BAR if fitted else _UNSEEN_BAR
        off, tau = median(relative(chosen, predicted_tokens)), kendall_tau(chosen)
        holds = off <= bar and (tau is None or tau >= _TAU_BAR)
        yield (
            family,
            str(fitted),
            str(len(chosen)),
            f"{off:.1%} of {bar:.0%}",
            f"{sum(map(inside, chosen))} of {len(chosen)}",
            "" if tau is None else f"{tau:.2f}",
            verdict(holds=holds),
        )


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


def kendall_tau(rows_: "Sequence[Measured]") -> float | None:
    """Return how well the order is kept: 1 if every pair is in the measured order.

    Runs that differ in nothing which a job file says count as one, at their mean, and what lies
    within a tenth has no order: so far apart are publications of one run. None: no pair is left.
    """
    alike: dict[object, list[Measured]] = {}
    for row in rows_:
        alike.setdefault((row.gpu, row.model, row.layout, row.batch), []).append(row)
    points = [
        (predicted_tokens(group[0]), fmean(row.value for row in group)) for group in alike.values()
    ]
    score = [
        math.copysign(1, (a - b) * (measured_a - measured_b))
        for (a, measured_a), (b, measured_b) in combinations(points, 2)
        if abs(math.log(measured_a / measured_b)) > math.log(1 + _NOISE)
    ]
    return fmean(score) if score else None


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
