"""Changes a correct value in one place at a time, as a slip of the hand would."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# A template or an object as JSON, which has no narrower type.
Json = Any
Place = tuple[str | int, ...]

_LONG_ENOUGH = 4

# Lists in which an element's place says what it is; the order of all others means nothing.
_ORDERED = {
    "args",
    "command",
    "initContainers",
    "podFailurePolicy",
    "Fn::Cidr",
    "Fn::GetAtt",
    "Fn::If",
    "Fn::Join",
    "Fn::Select",
    "Fn::Split",
}


@dataclass(frozen=True)
class Mutant:
    """One change: where, and what the parent of that place becomes."""

    operator: str
    place: Place
    parent: Json
    """What stands instead of the place's parent."""

    def of(self, root: Json) -> Json:
        """Return the whole with the change in it; what did not change is shared."""
        return _put(root, self.place[:-1], self.parent)


def _put(node: Json, place: Place, value: Json) -> Json:
    if not place:
        return value
    key, *rest = place
    changed = node.copy()
    changed[key] = _put(node[key], tuple(rest), value)
    return changed


def mutants(root: Json, place: Place = ()) -> Iterator[Mutant]:
    """Return every mutant of everything below a value."""
    node = root
    for key in place:
        node = node[key]
    if isinstance(node, dict):
        yield from _of_mapping(node, place)
    elif isinstance(node, list):
        yield from _of_list(node, place)
    if isinstance(node, dict | list):
        for key in node if isinstance(node, dict) else range(len(node)):
            yield from mutants(root, (*place, key))


def _of_mapping(node: dict[str, Json], place: Place) -> Iterator[Mutant]:
    for key, value in node.items():
        rest = {name: each for name, each in node.items() if name != key}
        yield Mutant("drop", (*place, key), rest)
        if len(key) >= _LONG_ENOUGH:
            renamed = {_misspelt(key) if name == key else name: node[name] for name in node}
            yield Mutant("misspell key", (*place, key), renamed)
        for operator, changed in _of_scalar(value):
            yield Mutant(operator, (*place, key), {**node, key: changed})
    for one, other in pairwise(node):
        alike = type(node[one]) is type(node[other]) and node[one] != node[other]
        if alike and not isinstance(node[one], bool):
            swapped = {**node, one: node[other], other: node[one]}
            yield Mutant("swap", (*place, one), swapped)


def _of_list(node: list[Json], place: Place) -> Iterator[Mutant]:
    for index, value in enumerate(node):
        yield Mutant("drop", (*place, index), node[:index] + node[index + 1 :])
        yield Mutant("duplicate", (*place, index), [*node[: index + 1], *node[index:]])
        for operator, changed in _of_scalar(value):
            yield Mutant(operator, (*place, index), [*node[:index], changed, *node[index + 1 :]])
        if index and node[index - 1] != value and _ORDERED.intersection(place[-2:]):
            swapped = [*node[: index - 1], value, node[index - 1], *node[index + 1 :]]
            yield Mutant("swap", (*place, index), swapped)


def _of_scalar(value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, bool):
        yield "retype", "perhaps"
        yield "turn", not value
    elif isinstance(value, int):
        yield "retype", "some"
        yield "one more", value + 1
        yield "one less", value - 1
    elif isinstance(value, str):
        yield "retype", [value]
        if value.isdigit():
            yield "one more", str(int(value) + 1)
            yield "one less", str(int(value) - 1)
        elif len(value) >= _LONG_ENOUGH:
            yield "misspell", _misspelt(value)


def _misspelt(word: str) -> str:
    """Leave a character in the middle out."""
    middle = len(word) // 2
    return word[:middle] + word[middle + 1 :]
