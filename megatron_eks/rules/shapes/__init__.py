"""What CloudFormation and Kubernetes take where: the keys of each mapping, and kinds of values.

The tables beside this file are written by tests/upstream/shapes.py. In them a text names a kind
of value (`text`, `whole`, `number`, `truth`, `port`, `quantity`, `any`), the least and the most
after it, or with `#` another entry; `[shape]` is a list, `{"=": [...]}` one of these texts,
`{"*": shape}` a mapping with keys of one's own, and any other mapping has these keys, which `!`
marks as needed. An entry with `@` holds the attributes of a resource type. Beside them is a list of
IAM's actions for each service, and what kinds of resources each works on. The ones of other
operators' kinds and of eksctl's files are written by tests/upstream/operators.py and eksctl.py, and
the names of DCGM's fields by dcgm_fields.py.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path as File
from typing import TypeAlias, TypeVar

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.values import is_absent, is_intrinsic, is_placeholder, number, truth

CLOUDFORMATION = File(__file__).with_name("cloudformation.json")
KUBERNETES = File(__file__).with_name("kubernetes.json")
RESOURCES = File(__file__).with_name("resources.json")
OPERATORS = File(__file__).with_name("operators.json")
EKSCTL = File(__file__).with_name("eksctl.json")
DCGM = File(__file__).with_name("dcgm.json")

Shape: TypeAlias = "str | list[Shape] | dict[str, Shape]"
Shapes = Mapping[str, Shape]

_MAX_DEPTH = 100
_SAID = {
    "text": "a text",
    "whole": "a whole number",
    "number": "a number",
    "truth": "true or false",
    "port": "a number or a name",
    "quantity": "a quantity such as 8, 500m or 64Gi",
    "list": "a list",
    "mapping": "a mapping",
}


GENERAL = frozenset({Code.MISSING_FIELD, Code.NOT_A_TEXT, Code.PROPERTY, Code.WRONG_VALUE})


def is_reference(value: Json) -> bool:
    """Tell a Ref to something of the template."""
    return isinstance(value, dict) and len(value) == 1 and "Ref" in value and not is_absent(value)


Whose = TypeVar("Whose", bound=Hashable)


def specific(found: "Sequence[tuple[Whose, Finding]]") -> "list[tuple[Whose, Finding]]":
    """Leave out what another finding about the same template or object says better.

    What a table says of a place where a rule knew more, or of a part of which it did; a needless
    privilege that the namespace refuses anyway.
    """
    judged = {
        (whose, finding.path[:length])
        for whose, finding in found
        if finding.code not in GENERAL
        for length in range(1, len(finding.path) + 1)
    }
    refused = {
        (whose, finding.path)
        for whose, finding in found
        if finding.code is Code.POD_ABOVE_NAMESPACE
    }
    worse = {Code.NEEDLESS_PRIVILEGE: refused, **dict.fromkeys(GENERAL, judged)}
    return [
        (whose, finding)
        for whose, finding in found
        if (whose, finding.path) not in worse.get(finding.code, ())
    ]


@dataclass(frozen=True)
class Misfit:
    """One place where a value is not what its reader takes."""

    path: Path
    value: Json
    expected: str = ""
    """What is taken instead, in words; empty for a key that is unknown or missing."""
    choices: tuple[str, ...] = ()
    """The texts of which one is taken."""
    missing: bool = False
    known: tuple[str, ...] = ()
    """For an unknown key, the keys that are known there."""
    below: tuple[str, ...] = ()
    """For an unknown key, which of those hold a key of this name."""
    above: Path | None = None
    """For an unknown key, the nearest mapping around it that knows a key of this name."""


@cache
def table(file: File) -> Shapes:
    """Return a table."""
    shapes: Shapes = json.loads(file.read_text(encoding="utf-8"))
    return shapes


def misfits(value: Json, shape: Shape, shapes: Shapes, *, loose: bool) -> Iterator[Misfit]:
    """Compare a value with a shape.

    `loose` lets texts stand for numbers and the other way round, as CloudFormation does, and names
    each reference in the place of a list.
    """
    yield from _Judge(shapes, loose=loose).of(value, shape, (), ())


# The mappings around a place, the outermost first, with what each of them knows.
_Around: TypeAlias = "tuple[tuple[Path, Mapping[str, Shape]], ...]"


def _is_one_of(value: Mapping[str, Json], shape: Shape) -> bool:
    """Tell whether a mapping is meant as the one element of a list; one without its keys is not."""
    if isinstance(shape, str | list) or "*" in shape or "=" in shape:
        return not isinstance(shape, str)
    known = {name.removesuffix("!") for name in shape}
    return not value or not known.isdisjoint(value) or any("Fn::" in key for key in value)


@dataclass(frozen=True)
class _Judge:
    shapes: Shapes
    loose: bool

    def of(self, value: Json, shape: Shape, path: Path, around: _Around) -> Iterator[Misfit]:
        if isinstance(shape, str) and shape.startswith("#"):
            shape = self.shapes[shape]
        # Whether a reference is one value or a list is seen by who knows what it names.
        if self.loose and isinstance(shape, list) and is_reference(value):
            yield Misfit(path, value, _SAID["list"])
        if self._unknown(value) or len(path) > _MAX_DEPTH:
            return
        if isinstance(shape, list):
            yield from self._list(value, shape[0], path, around)
        elif isinstance(shape, str):
            yield from self._scalar(value, shape, path)
        elif "=" in shape:
            yield from self._choice(value, list(shape["="]), path)
        elif isinstance(value, dict):
            yield from self._mapping(value, shape, path, around)
        else:
            yield Misfit(path, value, _SAID["mapping"])

    def _unknown(self, value: Json) -> bool:
        """Tell whether nothing can be said: absent, or known to somebody else only."""
        if isinstance(value, str):
            return is_placeholder(value)
        if isinstance(value, list):
            return False
        return is_absent(value) or (self.loose and is_intrinsic(value))

    def _list(self, value: Json, shape: Shape, path: Path, around: _Around) -> Iterator[Misfit]:
        if isinstance(value, list):
            for index, each in enumerate(value):
                yield from self.of(each, shape, (*path, index), around)
        # CloudFormation takes a single mapping for a list of one.
        elif self.loose and isinstance(value, dict) and _is_one_of(value, shape):
            yield from self.of(value, shape, path, around)
        else:
            yield Misfit(path, value, _SAID["list"])

    def _mapping(
        self, value: Mapping[str, Json], shape: Mapping[str, Shape], path: Path, around: _Around
    ) -> Iterator[Misfit]:
        if "*" in shape:
            for key, each in value.items():
                yield from self.of(each, shape["*"], (*path, key), around)
            return
        inside = (*around, (path, shape))
        for key, each in value.items():
            inner = shape.get(key, shape.get(f"{key}!"))
            if inner is not None:
                yield from self.of(each, inner, (*path, key), inside)
            elif not is_placeholder(key) and not key.startswith(("x-", "$", "Fn::")):
                known = tuple(sorted(name.removesuffix("!") for name in shape))
                below = tuple(name for name in known if self._holds(shape, name, key))
                wider = (place for place, keys in reversed(around) if {key, f"{key}!"} & {*keys})
                above = next(wider, None)
                yield Misfit((*path, key), each, known=known, below=below, above=above)
        # A loop or a macro may bring what is missing.
        if any(key.startswith(("Fn::", "$")) for key in value):
            return
        for name in shape:
            key = name.removesuffix("!")
            given = value.get(key)
            # An empty list in the place of something else is a misfit already.
            lacking = isinstance(shape[name], list) if given == [] else is_absent(given)
            if name != key and lacking:
                yield Misfit((*path, key), None, missing=True)

    def _holds(self, shape: Mapping[str, Shape], name: str, key: str) -> bool:
        inner = shape.get(name, shape.get(f"{name}!"))
        if isinstance(inner, str) and inner.startswith("#"):
            inner = self.shapes[inner]
        return isinstance(inner, dict) and bool({key, f"{key}!"} & inner.keys())

    def _scalar(self, value: Json, shape: str, path: Path) -> Iterator[Misfit]:
        kind, *bounds = shape.split()
        if kind == "any":
            return
        if not _KINDS[kind](value, self.loose):
            yield Misfit(path, value, _SAID[kind])
            return
        for bound, word in zip(bounds, ("or more", "or less"), strict=False):
            size = number(value)
            if bound == "-" or size is None:
                continue
            if size < float(bound) if word == "or more" else size > float(bound):
                yield Misfit(path, value, f"{bound} {word}")

    def _choice(self, value: Json, known: "list[Shape]", path: Path) -> Iterator[Misfit]:
        texts = [str(each) for each in known]
        if isinstance(value, dict | list) or str(value) not in texts:
            named = tuple(filter(None, texts))
            yield Misfit(path, value, f"one of {', '.join(named)}", named)


def _is_text(value: Json, loose: bool) -> bool:  # noqa: FBT001 -- all kinds are asked alike
    return isinstance(value, str) or (loose and isinstance(value, bool | int | float))


def _is_whole(value: Json, loose: bool) -> bool:  # noqa: FBT001 -- all kinds are asked alike
    return number(value) is not None and (loose or not isinstance(value, str))


def _is_number(value: Json, loose: bool) -> bool:  # noqa: FBT001 -- all kinds are asked alike
    return _is_whole(value, loose) or isinstance(value, float)


def _is_truth(value: Json, loose: bool) -> bool:  # noqa: FBT001 -- all kinds are asked alike
    return isinstance(value, bool) or (loose and truth(value) is not None)


def _is_port(value: Json, loose: bool) -> bool:  # noqa: FBT001 -- all kinds are asked alike
    return isinstance(value, str) or _is_whole(value, loose)


def _is_quantity(value: Json, _: bool) -> bool:  # noqa: FBT001 -- all kinds are asked alike
    return quantity(value) is not None


_KINDS: Mapping[str, Callable[[Json, bool], bool]] = {
    "text": _is_text,
    "whole": _is_whole,
    "number": _is_number,
    "truth": _is_truth,
    "port": _is_port,
    "quantity": _is_quantity,
}
