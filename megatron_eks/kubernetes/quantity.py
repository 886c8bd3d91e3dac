"""Kubernetes quantities: `128Gi`, `95690m`, `1e3`, `8`, as exact numbers.

The grammar stands in k8s.io/apimachinery, pkg/api/resource/quantity.go; its rounding to billionths
and its cap of 2**63 - 1 make no difference to what is compared here.
"""

import re
from fractions import Fraction

# `1E` is an exa and `1E3` a thousand. A long exponent would fill the memory, and no size has one.
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2}(?![0-9A-Za-z]))?)"
    r"([KMGTPE]i|[numkMGTPE])?",
    re.ASCII,
)
_FACTORS: dict[str | None, Fraction] = {
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{letter: Fraction(1, 1000**power) for power, letter in enumerate("mun", 1)},
    None: Fraction(1),
}
_MAX_LENGTH = 100


def quantity(value: object) -> Fraction | None:
    """Return the number that Kubernetes makes of a value, or None when it refuses it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if not isinstance(value, str | float) or len(written := str(value)) > _MAX_LENGTH:
        return None
    match = _QUANTITY.fullmatch(written)
    return Fraction(match[1]) * _FACTORS[match[2]] if match else None
