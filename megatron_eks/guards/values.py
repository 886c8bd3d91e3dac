"""A value of a template or a Kubernetes object, with the place where it stands."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import TypeVar

from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.kubernetes.quantity import quantity

Row = tuple[str, tuple[Json, ...], str]
"""A path, keys between spaces and `*` for each; the right values, none: any; why it matters."""

Found = Iterator[Finding]
"""What a guard yields."""

Judged = TypeVar("Judged")


class Guards(list[Callable[[Judged], Found]]):
    """All guards of one kind, in the order of their modules; it registers one as a decorator."""

    def __call__(self, guard: Callable[[Judged], Found]) -> Callable[[Judged], Found]:
        """Register a guard."""
        self.append(guard)
        return guard


YES, NO = True, False  # for `must_be`: a plain True among the arguments says little


@dataclass(frozen=True)
class Place:
    """A resource or an object in its file."""

    file: str
    path: Path
    """How findings begin: `Resources.Name` or `Kind/name`."""
    line: Callable[[], int] = field(default=lambda: 0, compare=False)
    """Where it starts; asked only when there is something to report."""


@dataclass(slots=True)  # not frozen, which takes three times as long to make, a million times
class Value:
    """Anything below a resource or an object; what is not there is an absent value, not an error.

    So `pool["ScalingConfig"]["MaxSize"].number` needs no check on its way.
    """

    raw: Json
    place: Place
    path: Path = ()
    _below: dict[str | int, "Value"] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, key: str | int) -> "Value":
        """Return what stands under a key or an index, or an absent value."""
        if (known := self._below.get(key)) is not None:
            return known  # fifty guards look at the same places
        inner: Json = None
        if isinstance(key, str) and isinstance(self.raw, dict):
            inner = self.raw.get(key)
        elif isinstance(key, int) and isinstance(self.raw, list) and key < len(self.raw):
            inner = self.raw[key]
        below = self._below[key] = Value(inner, self.place, (*self.path, key))
        return below

    def __iter__(self) -> Iterator["Value"]:
        """Return the elements, if it is a list."""
        for index in range(len(self.raw)) if isinstance(self.raw, list) else ():
            yield self[index]

    def at(self, path: str) -> "Value":
        """Return what stands below keys between spaces.

        Elements of lists are `env 0`, `env name=RANK`, and `args --workers` for `--workers=4`.
        """
        value = self
        for key in path.split():
            named = (each for each in value if _is_named(each, key))
            value = next(named, value[int(key) if key.isdigit() else key])
        return value

    def every(self, path: str) -> Iterator["Value"]:
        """Return all that stand below keys of which `*` is any: `containers * ports *`."""
        before, several, behind = path.partition("*")
        below = self.at(before)
        for each in (*below, *(inner for _, inner in below.items())) if several else ():
            yield from each.every(behind)
        if not several:
            yield below

    @property
    def listed(self) -> list["Value"]:
        """The elements of a list, or the one value that stands instead of it."""
        return list(self) if isinstance(self.raw, list) else [self] if self else []

    def items(self) -> Iterator[tuple[str, "Value"]]:
        """Return keys and values, if it is a mapping."""
        for key in self.raw if isinstance(self.raw, dict) else ():
            yield key, self[key]

    def __bool__(self) -> bool:
        """Tell whether it is there at all; an empty list, a zero and a false are."""
        return self.raw is not None

    @property
    def text(self) -> str:
        """The text; empty for what is none."""
        return self.raw if isinstance(self.raw, str) else ""

    @property
    def number(self) -> int | float | None:
        """The number, if it is one."""
        is_number = isinstance(self.raw, int | float) and not isinstance(self.raw, bool)
        return self.raw if is_number else None  # type: ignore[return-value]

    @property
    def quantity(self) -> Fraction | None:
        """The number that Kubernetes reads: `128Gi`, `95m`, 8."""
        return quantity(self.raw)

    @property
    def parsed(self) -> "Value":
        """What a text of JSON holds, at the place of the text; absent if it is none."""
        with suppress(ValueError):
            return Value(json.loads(self.text), self.place, self.path)
        return Value(None, self.place, self.path)

    @property
    def texts(self) -> list[str]:
        """The texts of a list, also where CloudFormation takes one text instead."""
        listed = self.raw if isinstance(self.raw, list) else [self.raw]
        return [each for each in listed if isinstance(each, str)]

    @property
    def name(self) -> str:
        """The key, as a sentence names it."""
        return next((part for part in reversed(self.path) if isinstance(part, str)), "")

    def finding(self, code: StrEnum, found: str, remedy: str, *, warns: object = False) -> Finding:
        """Report an error about this value, or what is only worth a warning."""
        path, level = (*self.place.path, *self.path), Level.WARNING if warns else Level.ERROR
        return Finding(code, path, found, remedy, level).at(self.place.file, self.place.line())

    def must_be(self, code: StrEnum, *allowed: Json, why: str, warns: object = False) -> Found:
        """Report a value that is none of the allowed ones: any without, and None allows absence."""
        same = (self.raw == each and type(self.raw) is type(each) for each in allowed)
        if any(same) if allowed else self:
            return
        wanted = " or ".join(dict.fromkeys(written(e) for e in allowed if e is not None))
        found = f"{self.name} is {written(self.raw)}" if self else f"no {self.name}"
        remedy = f"set it to {wanted}" if wanted else "remove it" if self else f"add {self.name}"
        yield self.finding(code, f"{found}: {why}", remedy, warns=warns)

    def must_hold(self, code: StrEnum, *rows: Row, warns: object = False) -> Found:
        """Check several places below this one."""
        for path, allowed, why in rows:
            for value in self.every(path):
                yield from value.must_be(code, *allowed, why=why, warns=warns)


def same(below: str, why: str, wanted: Mapping[str, Json]) -> list[Row]:
    """Return rows with one reason: what stands at each path below another."""
    return [(below + path, (value,), why) for path, value in wanted.items()]


def inside(value: Value) -> list[Value]:
    """Return a value and everything below it, level by level."""
    found = [value]
    for each in found:  # which grows
        if isinstance(each.raw, dict | list):
            found += [*each, *(below for _, below in each.items())]
    return found


def report(
    code: StrEnum, wrong: object, place: Value, found: str, remedy: str, *, warns: object = False
) -> Found:
    """Report a place if it is wrong."""
    if wrong:
        yield place.finding(code, found, remedy, warns=warns)


warn = partial(report, warns=True)
"""Report what is only worth a warning."""


def written(value: Json) -> str:
    """Write a value into a sentence; a mapping or a list by what it is."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "a mapping"
    return "absent" if value is None else repr(value) if isinstance(value, str) else str(value)


def _is_named(element: Value, key: str) -> bool:
    field, _, wanted = key.partition("=")
    found = element[field].text if wanted else element.text.partition("=")[0]
    return found == (wanted or key)


def differences(there: Value, here: Value) -> Iterator[tuple[Value, Value]]:
    """Yield what differs, both sides, as far below as it can be told."""
    one, two, keys = there.raw, here.raw, list[str | int]()
    if isinstance(one, dict) and isinstance(two, dict):
        keys = [key for key in {**one, **two} if one.get(key) != two.get(key)]
    elif isinstance(one, list) and isinstance(two, list):
        most = range(max(len(one), len(two)))
        keys = [key for key in most if one[key : key + 1] != two[key : key + 1]]
        keys = keys if len(one) == len(two) else keys[:1]  # all behind it have moved
    elif one != two:
        yield there, here
    for key in keys:
        yield from differences(there[key], here[key])
