"""Kubernetes quantities: `128Gi`, `95690m`, `1e3`, `8`, as exact numbers.

The grammar stands in k8s.io/apimachinery, pkg/api/resource/quantity.go.
"""

import math
import re
from fractions import Fraction
from functools import cache

# `1E` is an exa and `1E3` a thousand, so the exponent comes first.
_QUANTITY = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE]|)", re.ASCII
)
_BINARY = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

_LARGEST = 2**63 - 1
_SMALLEST_PARTS = 10**9
# Far beyond the largest quantity; keeps `1e999999999` from filling the memory.
_MAX_EXPONENT = 40
_MAX_LENGTH = 1000


def quantity(value: object) -> Fraction | None:
    """Return the number that Kubernetes makes of a value, or None when it refuses it.

    Like Kubernetes it rounds up to billionths, away from zero, and caps at 2**63 - 1.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, int):
        # A huge one is not quoted digit by digit, for it is capped anyway.
        value = max(-_LARGEST, min(_LARGEST, value))
    return _parsed(str(value))


@cache
def _parsed(written: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(written) if len(written) <= _MAX_LENGTH else None
    if match is None:
        return None
    sign, digits, suffix = match.groups()
    size = Fraction(digits.rstrip(".")) * _factor(suffix)
    rounded = Fraction(math.ceil(size * _SMALLEST_PARTS), _SMALLEST_PARTS)
    capped = min(rounded, Fraction(_LARGEST))
    return -capped if sign == "-" else capped


def _factor(suffix: str) -> Fraction:
    if suffix in _BINARY:
        return Fraction(_BINARY[suffix])
    exponent = _DECIMAL.get(suffix)
    if exponent is None:
        exponent = max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(suffix[1:])))
    return Fraction(10) ** exponent
