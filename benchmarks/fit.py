"""Fits the constants of the speed model; `python -m benchmarks.fit` prints them."""

import math
import sys
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks import measured
from benchmarks.predictions import HARDWARE, predicted_tokens
from megatron_eks.predict.hardware import CALIBRATION, Calibration

if TYPE_CHECKING:
    from collections.abc import Sequence

_BOUNDS = {
    "launch": (1e-4, 6e-4),
    "launch experts": (1e-3, 3e-2),
    "launch experts partial": (2e-4, 3e-2),
    "launch flex": (0.1, 1.0),
    "launch blackwell": (0.3, 1.0),
    "traffic": (1.0, 20.0),
    "cast": (1.0, 16.0),
    "scan": (20.0, 600.0),
    "tiles": (10.0, 600.0),
    "exposed tensor": (0.05, 1.0),
    "exposed experts": (0.1, 1.5),
    "slowed megatron": (0.02, 1.0),
    "slowed fsdp": (0.02, 1.0),
    "ultra": (1.0, 1.4),
    "all-to-all efa": (5.0, 50.0),
    # FlashAttention-3 (arXiv 2407.08608, figures 5 and 6): 550 to 620 TFLOP/s forward, 450 to 550
    # backward, of 989, with head size 128; no long sequences on Hopper are among the rows.
    "attention hopper": (0.5, 0.6),
}
_SHARE = (0.1, 0.98)


def loss(rows: "Sequence[measured.Measured]", calibration: Calibration) -> float:
    """Return the mean error in logarithms, every family counting as the root of its rows."""
    families: dict[str, list[float]] = {}
    for row in rows:
        error = abs(math.log(predicted_tokens(row, calibration) / row.value))
        families.setdefault(row.family, []).append(error)
    weights = {name: math.sqrt(len(errors)) for name, errors in families.items()}
    total = sum(weights[name] * fmean(errors) for name, errors in families.items())
    return total / sum(weights.values())


def fit(
    rows: "Sequence[measured.Measured]",
    start: Calibration = CALIBRATION,
    steps: "Sequence[float]" = (1.3, 1.1, 1.03, 1.01),
) -> tuple[Calibration, float]:
    """Change one constant at a time by a smaller and smaller factor, while that helps.

    Returns the constants and their loss.
    """
    best, least = start, loss(rows, start)
    for step in steps:
        improved = True
        while improved:
            improved = False
            for name, value in best.values.items():
                low, high = _BOUNDS.get(name, _SHARE)
                for changed in (value * step, value / step):
                    option = Calibration({**best.values, name: min(high, max(low, changed))})
                    found = loss(rows, option)
                    if found < least - 1e-5:
                        best, least, improved = option, found, True
    return best, least


_NINE_TENTHS = 0.9


def ranges(best: Calibration) -> "dict[tuple[str, str, bool, bool], tuple[float, int]]":
    """Return the factor that nine of ten runs keep, of rows that constants do not come from.

    Those are the rows to choose with, those that were reported and are blind no longer, and of each
    fitted family its rows under constants that were fitted without it.
    """
    rows = measured.throughput()
    fitted = [row for row in rows if row.part == "fit"]
    off: dict[tuple[str, str, bool, bool], list[float]] = {}

    def measure(kept: "Sequence[measured.Measured]", constants: Calibration) -> None:
        for row in kept:
            generation = HARDWARE[row.gpu].generation
            experts = row.model.num_experts is not None
            kind = (row.framework, generation, row.batch.quantized, experts)
            error = abs(math.log(predicted_tokens(row, constants) / row.value))
            off.setdefault(kind, []).append(error)

    measure([row for row in rows if row.part in {"choose", "report"}], best)
    lineages = {row.family.split()[0] for row in fitted}
    for lineage in sorted(lineages):
        left = [row for row in fitted if row.family.split()[0] == lineage]
        others = [row for row in fitted if row.family.split()[0] != lineage]
        constants, _ = fit(others, best, (1.1, 1.03))
        measure(left, constants)
    found = {}
    for kind, errors in off.items():
        # The least of n errors that nine of ten later ones keep, by their ranks.
        place = min(len(errors) - 1, math.ceil(_NINE_TENTHS * (len(errors) + 1)) - 1)
        found[kind] = (math.exp(sorted(errors)[place]), len(errors))
    return found


def main() -> None:
    """Print the best constants of several starts, since changes one at a time can end too early."""
    rows = [row for row in measured.throughput() if row.part == "fit"]
    starts = (
        Calibration({**CALIBRATION.values, "tiles": CALIBRATION["tiles"] * factor})
        for factor in (0.7, 1.4)
    )
    found = (fit(rows, start) for start in (CALIBRATION, *starts))
    best, _ = min(found, key=lambda each: each[1])
    for name, value in best.values.items():
        sys.stdout.write(f"{name}: {value:.3g}\n")
    for kind, (factor, count) in ranges(best).items():
        sys.stdout.write(f"{kind}: {factor:.3g} {count}\n")


if __name__ == "__main__":
    main()
