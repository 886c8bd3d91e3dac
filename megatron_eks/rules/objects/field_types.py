"""Which of the values of their kind the fields of Kubernetes objects take."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from megatron_eks.config.errors import Path, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_placeholder, mapping, shown

ANY = "*"
Check = Callable[[Json], tuple[str, str] | None]
"""Returns what is wrong with a value, and what to do; None if nothing is."""


class Field(NamedTuple):
    """One field, by its path; `*` is every element of a list, or every key of a mapping."""

    path: tuple[str, ...]
    check: Check


def one_of(*names: str) -> Check:
    """Take the words that the API server takes; what is no text is another rule's business."""

    def check(value: Json) -> tuple[str, str] | None:
        fits = value in names or not isinstance(value, str)
        return None if fits else (f"{shown(value)} is not one of them", _choice(value))

    def _choice(value: Json) -> str:
        return choices(value if isinstance(value, str) else "", [name for name in names if name])

    return check


def formed(form: str, remedy: str) -> Check:
    """Take texts of one form; what is no text is another rule's business."""
    pattern = re.compile(form)

    def check(value: Json) -> tuple[str, str] | None:
        fits = not isinstance(value, str) or pattern.fullmatch(value)
        return None if fits else (f"{shown(value)} is refused", remedy)

    return check


def whole(least: int, most: int | None = None, *, strict: bool = False) -> Check:
    """Take a whole number within its bounds; strictly, nothing else."""
    bounds = f"from {least} to {most}" if most is not None else f"from {least}"

    def check(value: Json) -> tuple[str, str] | None:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and isinstance(value, int) and least <= value <= (most or value):
            return None
        if not strict and not is_number:
            return None
        return f"{shown(value)} is no number {bounds}", f"write a whole number {bounds}, unquoted"

    return check


def wrong_values(value: Json, fields: "tuple[Field, ...]") -> Iterator[tuple[Path, str, str]]:
    """Return the place of each wrong value, what is wrong, and what to do."""
    for field in fields:
        for path, found in _at(value, field.path, ()):
            waits = isinstance(found, str) and is_placeholder(found)
            wrong = None if found is None or waits else field.check(found)
            if wrong:
                yield path, *wrong


def _at(value: Json, path: tuple[str, ...], so_far: Path) -> Iterator[tuple[Path, Json]]:
    if not path:
        yield so_far, value
    elif path[0] == ANY:
        inner = enumerate(value) if isinstance(value, list) else (mapping(value) or {}).items()
        for key, each in inner:
            yield from _at(each, path[1:], (*so_far, key))
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:], (*so_far, path[0]))
