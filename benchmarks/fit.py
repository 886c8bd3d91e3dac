"""Fits the constants of the speed model; `python -m benchmarks.fit` prints them."""

import math
import sys
from dataclasses import asdict, replace
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks import measured
from benchmarks.predictions import predicted_tokens
from megatron_eks.predict.calibration import CALIBRATION, Calibration

if TYPE_CHECKING:
    from collections.abc import Sequence

_BOUNDS = {
    "launch_seconds": (5e-5, 2e-3),
    "launch_experts_seconds": (1e-3, 3e-2),
    "traffic": (1.0, 20.0),
    "exposed_inside": (0.1, 1.0),
    "exposed_gather": (0.02, 1.0),
}
_SHARE = (0.1, 0.95)


def loss(rows: "Sequence[measured.Measured]", calibration: Calibration) -> float:
    """Return the mean error in logarithms, every family counting alike."""
    families: dict[str, list[float]] = {}
    for row in rows:
        error = abs(math.log(predicted_tokens(row, calibration) / row.value))
        families.setdefault(
            row.family.split()[0] if row.model.num_experts else row.family, []
        ).append(error)
    return fmean(fmean(errors) for errors in families.values())


def fit(
    rows: "Sequence[measured.Measured]", start: Calibration = CALIBRATION
) -> tuple[Calibration, float]:
    """Change one constant at a time by a smaller and smaller factor, while that helps.

    Returns the constants and their loss.
    """
    best, least = start, loss(rows, start)
    for step in (1.3, 1.1, 1.03, 1.01):
        improved = True
        while improved:
            improved = False
            for name, value in asdict(best).items():
                low, high = _BOUNDS.get(name, _SHARE)
                for changed in (value * step, value / step):
                    option = replace(best, **{name: min(high, max(low, changed))})
                    found = loss(rows, option)
                    if found < least - 1e-6:
                        best, least, improved = option, found, True
    return best, least


def main() -> None:
    """Print the best constants of several starts, since changes one at a time can end too early."""
    rows = [row for row in measured.throughput() if row.part == "fit"]
    starts = (
        replace(CALIBRATION, traffic=CALIBRATION.traffic * factor, megatron_hopper=0.7 * factor)
        for factor in (1.0, 0.8, 0.6)
    )
    found = (fit(rows, start) for start in (CALIBRATION, *starts))
    best, _ = min(found, key=lambda each: each[1])
    for name, value in asdict(best).items():
        sys.stdout.write(f"    {name}={value:.3g},\n")


if __name__ == "__main__":
    main()
