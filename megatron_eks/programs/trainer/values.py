"""Checks of single values in a configuration: each returns the value, or says what is allowed."""

import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from megatron_eks.programs.program import Finding, usage_error

Check = Callable[[object], object]


def whole(least: int) -> Check:
    """Take whole numbers from a least one on."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"use a whole number from {least}")
        return value

    return check


def number(words: str, fits: Callable[[float], bool]) -> Check:
    """Take numbers of a range; YAML 1.1 makes a text of 1e-5, which is one too."""

    def check(value: object) -> float:
        try:
            taken = math.nan if isinstance(value, bool) else float(str(value))
        except ValueError:
            taken = math.nan
        if not fits(taken):
            raise ValueError(f"use a number {words}")
        return taken

    return check


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


fraction = number("from 0 to below 1", lambda taken: 0 <= taken < 1)

Natural = Annotated[int, whole(0)]
Number = Annotated[float, number("from 0", lambda taken: 0 <= taken < math.inf)]
Fraction = Annotated[float, fraction]

# Of fields that have no check of their own.
_OF_TYPES: dict[object, Check] = {
    int: whole(1),
    float: number("above 0", lambda taken: 0 < taken < math.inf),
    bool: boolean,
    str: text,
    str | None: optional(text),
}


def checks_of(kind: type) -> dict[str, Check]:
    """Return the checks of a dataclass' fields: those of a type above, or of some words."""
    checks: dict[str, Check] = {}
    hints = get_type_hints(kind, include_extras=True)
    for name in (field.name for field in fields(kind)):
        hint = hints[name]
        if get_origin(hint) is Literal:
            checks[name] = choice(*get_args(hint))
        elif own := getattr(hint, "__metadata__", ()):
            checks[name] = own[0]
        elif hint in _OF_TYPES:
            checks[name] = _OF_TYPES[hint]
    return checks


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
