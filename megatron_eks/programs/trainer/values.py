"""Checks of single values in a configuration: each returns the value, or says what is allowed."""

import math
from collections.abc import Callable

Check = Callable[[object], object]


def positive(value: object) -> int:
    """Take a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("use a whole number from 1")
    return value


def natural(value: object) -> int:
    """Take a whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("use a whole number from 0")
    return value


def number(value: object) -> float:
    """Take a number from 0; YAML 1.1 makes a text of 1e-5, which is one too."""
    try:
        taken = float(value) if isinstance(value, (int, float, str)) else math.nan
    except ValueError:
        taken = math.nan
    if isinstance(value, bool) or not 0 <= taken < math.inf:
        raise ValueError("use a number from 0")
    return taken


def positive_number(value: object) -> float:
    """Take a number above 0."""
    taken = number(value)
    if taken == 0:
        raise ValueError("use a number above 0")
    return taken


def fraction(value: object) -> float:
    """Take a number from 0 to below 1."""
    taken = number(value)
    if taken >= 1:
        raise ValueError("use a number from 0 to below 1")
    return taken


def boolean(value: object) -> bool:
    """Take true or false."""
    if not isinstance(value, bool):
        raise ValueError("use true or false")  # noqa: TRY004 -- one kind of error for all values
    return value


def text(value: object) -> str:
    """Take a text with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("use a text")
    return value


def choice(*allowed: str) -> Check:
    """Take one of some words."""

    def check(value: object) -> str:
        if value not in allowed:
            raise ValueError(f"use {' or '.join(allowed)}")
        return str(value)

    return check


def optional(check: Check) -> Check:
    """Take nothing as well."""
    return lambda value: None if value is None else check(value)
