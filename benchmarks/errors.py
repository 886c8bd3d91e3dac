"""How far predictions are from measurements: the tables that `make bench` prints."""

import math
from dataclasses import replace
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING

from benchmarks import calculon, measured
from benchmarks.predictions import (
    HARDWARE,
    does_not_fit,
    megatron_bytes,
    predicted_bytes,
    predicted_speed,
    predicted_tokens,
)
from benchmarks.timing import verdict
from megatron_eks.predict.matrices import model_flops_per_token
from megatron_eks.predict.parameters import parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from benchmarks.measured import Measured
    from benchmarks.timing import Row

_MEMORY_BAR = 0.05
_LARGE = 1e9
_SPEED_BAR = 0.10
_TAU_BAR = 0.9
_NOISE = 0.1
_NINE_TENTHS = 0.9
# Families of fewer rows say little, and have no bar.
_ENOUGH = 5
PARTS = ("fit", "choose", "report", "blind", "blind 2", "hybrids", "blind 4", "blind 5", "blind 7")
MEMORY_PARTS = ("fit", "choose", "report", "blind", "studied")
_KINDS = (
    ("Megatron bf16", "megatron", False),
    ("Megatron FP8", "megatron", True),
    ("FSDP", "fsdp", None),
)


def rows() -> "Iterator[Row]":
    """Yield a row for each part of the data, ours first, then simpler predictors on the same."""
    peaks = measured.memory()
    for words, framework, quantized in _KINDS:
        for part in MEMORY_PARTS:
            chosen = [
                row
                for row in peaks
                if (row.framework, row.part) == (framework, part)
                and quantized in {None, row.batch.quantized}
            ]
            # The bar is for models of a billion parameters and more; the others are printed too.
            large = [row for row in chosen if parameters(row.model) >= _LARGE]
            named = {"": large, ", of any size": chosen if len(large) < len(chosen) else []}
            for size, sized in named.items():
                if not sized:
                    continue
                bar = None if part == "fit" or size else _MEMORY_BAR
                yield _row(f"memory, {words}, {part}{size}", relative(sized, predicted_bytes), bar)
                if framework == "megatron" and part == "fit":
                    off = relative(sized, megatron_bytes)
                    yield _row("  Megatron's own estimator", off)
    speeds = measured.throughput()
    constant = constant_efficiency([row for row in speeds if row.part == "fit"])
    for part in PARTS:
        chosen = [row for row in speeds if row.part == part]
        bar = None if part == "fit" else _SPEED_BAR
        yield _row(f"speed, {part}", relative(chosen, predicted_tokens), bar)
        # Weak scaling and releases repeat one layout.
        apart = {
            (row.gpu, row.model, replace(row.layout, data=1), row.batch): row for row in chosen
        }
        off = relative(apart.values(), predicted_tokens)
        yield _row("  one run of each layout", off)
        yield _row("  a constant efficiency of the fit rows", relative(chosen, constant))
        own = constant_efficiency(chosen)
        yield _row("  the best constant efficiency of these rows", relative(chosen, own))
        within = fmean(inside(row) for row in chosen)
        holds = verdict(holds=within >= _NINE_TENTHS)
        yield f"  in the printed range, {part}", f"{within:.0%}", f"{_NINE_TENTHS:.0%}", holds
    known = calculon.answered()
    yield _row("speed, fit, where calculon has an answer", relative(known, predicted_tokens))
    yield _row("  calculon", relative(known, calculon.said()))
    refused = sum(map(does_not_fit, speeds))
    share, most = refused / len(speeds), 0.02
    found = f"{refused} of {len(speeds)}"
    yield (
        "published runs that are told not to fit",
        found,
        f"{most:.0%}",
        verdict(holds=share <= most),
    )


def families() -> "Iterator[tuple[str, ...]]":
    """Yield for each family its part, the error beside constants, the range and the order."""
    speeds = measured.throughput()
    fitted = constant_efficiency([row for row in speeds if row.part == "fit"])
    for part in reversed(PARTS):
        own = constant_efficiency([row for row in speeds if row.part == part])
        for family in sorted({row.family for row in speeds if row.part == part}):
            chosen = [row for row in speeds if (row.family, row.part) == (family, part)]
            off, tau = median(relative(chosen, predicted_tokens)), kendall_tau(chosen)
            best = median(relative(chosen, own))
            holds = off <= min(_SPEED_BAR, max(best, 0.0)) and (tau is None or tau >= _TAU_BAR)
            yield (
                family,
                part,
                str(len(chosen)),
                f"{off:.1%}",
                f"{median(relative(chosen, fitted)):.1%}",
                f"{best:.1%}",
                f"{sum(map(inside, chosen))} of {len(chosen)}",
                "" if tau is None else f"{tau:.2f}",
                verdict(holds=holds) if part != "fit" and len(chosen) >= _ENOUGH else "",
            )


def relative(rows_: "Iterable[Measured]", predictor: "Callable[[Measured], float]") -> list[float]:
    """Return how far a predictor is from each measurement, without sign."""
    return [abs(predictor(row) / row.value - 1) for row in rows_]


def constant_efficiency(rows_: "Sequence[Measured]") -> "Callable[[Measured], float]":
    """Return a predictor: one share of the peak for each framework, generation and precision."""
    shares: dict[tuple[str, str, str], list[float]] = {}
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


def _kind(row: "Measured") -> tuple[str, str, str]:
    return row.framework, row.gpu, row.batch.precision


def _ideal(row: "Measured") -> float:
    """Tokens a second at the GPU's peak, recomputation counted as work."""
    frozen = row.batch.lora > 0
    flops = model_flops_per_token(row.model, row.batch.sequence_length, frozen=frozen)
    flops *= 4 / 3 if row.batch.recompute == "full" else 1
    return HARDWARE[row.gpu].peak_flops(row.batch.precision) / flops


def _row(name: str, errors: "Sequence[float]", bar: float | None = None) -> "Row":
    ordered = sorted(errors)
    worst = ordered[min(len(ordered) - 1, int(_NINE_TENTHS * len(ordered)))]
    found = f"{median(errors):.1%}, p90 {worst:.0%}, n {len(errors)}"
    if bar is None:
        return name, found, "", ""
    return name, found, f"{bar:.0%}", verdict(holds=median(errors) <= bar)
