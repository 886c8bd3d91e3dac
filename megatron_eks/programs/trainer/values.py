"""Checks of single values in a configuration: each returns the value, or says what is allowed."""

import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from megatron_eks.programs.program import Finding, usage_error

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


Positive = Annotated[int, positive]
Natural = Annotated[int, natural]
Number = Annotated[float, number]
PositiveNumber = Annotated[float, positive_number]
Fraction = Annotated[float, fraction]
Flag = Annotated[bool, boolean]
Text = Annotated[str, text]
OptionalText = Annotated[str | None, optional(text)]


def checks_of(kind: type) -> dict[str, Check]:
    """Return the checks of a dataclass' fields, each of a type above or of some words."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: choice(*get_args(hint)) if get_origin(hint) is Literal else hint.__metadata__[0]
        for name, hint in ((field.name, hints[field.name]) for field in fields(kind))
    }


def read(
    content: Mapping[Any, Any], checks: Mapping[str, Check], prefix: str, findings: list[Finding]
) -> dict[str, Any]:
    """Return the values that have a check, None for wrong ones; `findings` get all mistakes."""
    findings.extend(unknown(content, checks, prefix))
    values = {}
    for key in filter(content.__contains__, checks):
        try:
            values[key] = checks[key](content[key])
        except ValueError as problem:
            findings.append(usage_error(f"{prefix}{key}", found(content[key]), str(problem)))
            values[key] = None
    return values


def unknown(content: Mapping[Any, Any], known: Collection[str], prefix: str) -> Iterator[Finding]:
    """Yield the keys that nobody knows."""
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            yield usage_error(f"{prefix}{key}", "unknown key", remedy)


def found(value: object) -> str:
    """Show what was written."""
    return "nothing" if value is None else repr(value)[:80]
