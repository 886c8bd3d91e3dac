"""Which Conditions of a template may hold together, by the values that its parameters can have."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.condition_uses import used_in
from megatron_eks.rules.values import is_absent, items, mapping, number, text

Truth = dict[str, bool]
"""Conditions by whether they hold; those that nobody can tell are not in it."""
Values = dict[str, str]


@dataclass(frozen=True)
class Way:
    """One way in which the conditions of a template may hold."""

    truth: Truth
    defaults: Mapping[str, str | None]
    """What the parameters are then, where not their default; None where that may be anything."""
    rows: Mapping[str, str] = field(default_factory=dict)  # By what chooses them.


MOST = 16  # More assignments than this are not followed one by one.
_MOST_VALUES, _MOST_HOPS = 256, 50
# No template compares a parameter with such a text: it stands for every value that is not named.
_OTHER = "\0another value of "
# What is not for a stack's owner to choose apart: a partition has its own regions.
_PLACES = frozenset({"AWS::Partition", "AWS::Region", "AWS::URLSuffix"})


class _RefusedError(Exception):
    """CloudFormation would refuse the template with these values."""


def assignments(template: "Mapping[str, Json]") -> list[Way]:
    """Return the ways in which the conditions that a template uses may hold; the default first.

    CloudFormation User Guide, "Condition functions", "Rules": conditions follow from parameters.
    """
    conditions = mapping(template.get("Conditions")) or {}
    mentioned = used_in(template) if conditions else set()
    used = [name for name in conditions if name in mentioned]
    if not used:
        return []
    reader = _Reader(template, conditions, used)
    found: dict[tuple[tuple[str, bool], ...], list[Values]] = {}
    for values in reader.choices():
        try:
            if reader.allowed(values):
                known = ((name, reader.holds({"Condition": name}, values)) for name in used)
                truth = tuple((name, each) for name, each in known if each is not None)
                found.setdefault(truth, []).append(values)
        except _RefusedError:
            continue
    few = _few([dict(each) for each in found if each])
    return [Way(each, reader.defaults(found[tuple(each.items())])) for each in few]


def _few(found: list[Truth]) -> list[Truth]:
    """Return all where they are few; else the default, and each condition turned once."""
    if len(found) <= MOST:
        return found
    first = found[0]
    kept = [first]
    for name in first:
        others = [each for each in found if each.get(name) is (not first[name])]
        if others and len(kept) < MOST:
            # The one that turns as little else as possible.
            kept.append(
                min(others, key=lambda each: sum(each.get(k) is not first[k] for k in first))
            )
    return [each for index, each in enumerate(kept) if each not in kept[:index]]


class _Reader:
    """Reads conditions over values of the parameters, and of what else they compare."""

    def __init__(
        self, template: "Mapping[str, Json]", conditions: "Mapping[str, Json]", used: Iterable[str]
    ) -> None:
        self._conditions = conditions
        self._used = used
        self._parameters = mapping(template.get("Parameters")) or {}
        self._mappings = mapping(template.get("Mappings")) or {}
        self._rules = mapping(template.get("Rules")) or {}

    def choices(self) -> Iterator[Values]:
        """Return values for everything that is compared: the defaults, then others."""
        names = list(self._candidates)
        lists = list(self._candidates.values())
        if math.prod(map(len, lists)) <= _MOST_VALUES:
            yield from (dict(zip(names, each, strict=True)) for each in product(*lists))
            return
        first = {name: each[0] for name, each in self._candidates.items()}
        yield first
        yield from (first | {name: value} for name in names for value in self._candidates[name][1:])

    def defaults(self, ways: list[Values]) -> dict[str, str | None]:
        """Return the parameters that are not at their default in all of these choices."""
        first = {name: each[0] for name, each in self._candidates.items()}
        # As many as possible stay at it, all of them together.
        best = min(ways, key=lambda way: sum(way[name] != first[name] for name in way))
        result: dict[str, str | None] = {}
        turned = False
        for name, value in best.items():
            ref = json.loads(name).get("Ref")
            body = mapping(self._parameters.get(ref)) if isinstance(ref, str) else None
            turned = turned or (value != first[name] and not _owners(json.loads(name)) <= _PLACES)
            if not body or value == _written(body.get("Default")):
                continue
            sure = not value.startswith(_OTHER) and all(way[name] == value for way in ways)
            result[str(ref)] = value if sure else None
        # Who changes one parameter may have to change others with it.
        return dict.fromkeys(self._parameters) | result if result or turned else {}

    def holds(self, value: Json, values: Mapping[str, str], hops: int = 0) -> bool | None:
        """Tell whether a condition holds; None where nobody can tell."""
        if not isinstance(value, dict) or len(value) != 1 or hops > _MOST_HOPS:
            return None
        ((function, inner),) = value.items()
        if function == "Condition":
            return self.holds(self._conditions.get(str(inner)), values, hops + 1)
        given: list[Json] = inner if isinstance(inner, list) else [inner]
        if function in {"Fn::Equals", "Fn::Contains"}:
            return self._compares(function, given, values)
        parts = [self.holds(each, values, hops + 1) for each in given]
        if function == "Fn::Not":
            return None if not parts or parts[0] is None else not parts[0]
        if function not in {"Fn::And", "Fn::Or"}:
            return None
        deciding = function == "Fn::Or"
        return deciding if deciding in parts else None if None in parts else not deciding

    def _compares(self, function: str, given: list[Json], values: Mapping[str, str]) -> bool | None:
        if len(given) != len(("one", "other")):
            return None
        other = self._value(given[1], values)
        listed: list[Json] = given[:1] if function == "Fn::Equals" else items(given[0]) or [None]
        known = [self._value(each, values) for each in listed]
        return None if other is None or None in known else other in known

    def allowed(self, values: Mapping[str, str]) -> bool:
        """Tell whether the template's Rules let these values be."""
        for body in map(mapping, self._rules.values()):
            when = (body or {}).get("RuleCondition")
            if is_absent(when) or self.holds(when, values):
                for each in items((body or {}).get("Assertions")) or []:
                    if self.holds((mapping(each) or {}).get("Assert"), values) is False:
                        return False
        return True

    def _value(self, value: Json, values: Mapping[str, str]) -> str | None:
        if not isinstance(value, dict):
            return _written(value)
        keys = self._keys(value)
        if keys is None:
            return values.get(_name(value))
        level: Json = self._mappings
        for each in keys:
            key = self._value(each, values)
            if key is None:
                return None
            if not isinstance(level, dict) or key not in level:
                raise _RefusedError
            level = level[key]
        return _written(level)

    def _keys(self, value: Json) -> list[Json] | None:
        """Return the names that lead through the mappings."""
        keys = value.get("Fn::FindInMap") if isinstance(value, dict) else None
        plain = isinstance(keys, list) and all(_is_plain(each) for each in keys)
        return keys if plain and isinstance(keys, list) and len(keys) == len("map") else None

    @cached_property
    def _candidates(self) -> dict[str, list[str]]:
        """Return the values to try of each thing that is compared, by its name."""
        met: dict[str, tuple[Json, list[str]]] = {}
        for one, other in self._pairs():
            sides = [one, other]
            for side, against in (sides, sides[::-1]):
                for each, known in self._compared(side, against):
                    met.setdefault(_name(each), (each, []))[1].extend(known)
        owners = [owner for each, _ in met.values() for owner in _owners(each)]
        return {
            name: values
            for name, (each, known) in met.items()
            # Two views of one parameter may contradict each other: those are left alone.
            if all(owners.count(owner) == 1 for owner in _owners(each))
            and (values := self._possible(name, each, known))
        }

    def _compared(self, side: Json, against: Json) -> Iterator[tuple[Json, list[str]]]:
        """Return what is not known of one side of a comparison, with what may matter to it."""
        if not isinstance(side, dict):
            return
        keys = self._keys(side)
        if keys is None:
            known = _written(against)
            # Two parameters may be equal: by a value of their own.
            same = f"{_OTHER}{_name(against)}" if isinstance(against, dict) else known
            yield side, [] if same is None else [same]
            return
        level: Json = self._mappings
        for each in keys:
            if isinstance(each, dict):
                yield each, list(level) if isinstance(level, dict) else []
            key = text(each) or next(iter(level), "") if isinstance(level, dict) else ""
            level = level.get(key) if isinstance(level, dict) else None

    def _possible(self, name: str, value: Json, known: list[str]) -> list[str]:
        """Return the values that a parameter can have, its default first."""
        ref = text(value.get("Ref")) if isinstance(value, dict) else None
        other = f"{_OTHER}{name}"
        if ref is None or ref.startswith("AWS::"):
            return list(dict.fromkeys([other, *known]))
        body = mapping(self._parameters.get(ref))
        if body is None or ref not in self._parameters:
            return []
        # The parameter of the Systems Manager is named by the default, and has another value.
        given = "AWS::SSM::" not in str(body.get("Type"))
        default = _written(body.get("Default")) if given else None
        listed = [_written(each) or "" for each in items(body.get("AllowedValues")) or []]
        if listed and given:
            rest = [each for each in listed if each not in known and each != default]
            rest = rest if len(rest) == 1 else [other][: len(rest)]
            fitting = [each for each in known if each in listed]
        else:
            fitting = [each for each in known if not given or _fits(each, body)]
            # A pattern may allow the named values alone.
            closed = "AllowedPattern" in body and len({*fitting, default} - {None}) > 1
            rest = [] if closed else [other]
        return list(dict.fromkeys([*([] if default is None else [default]), *fitting, *rest]))

    def _pairs(self) -> Iterator[tuple[Json, Json]]:
        waiting: list[Json] = [{"Condition": name} for name in self._used]
        seen: set[str] = set()
        while waiting:
            value = waiting.pop(0)
            if not isinstance(value, dict) or len(value) != 1:
                continue
            ((function, inner),) = value.items()
            given = inner if isinstance(inner, list) else [inner]
            if function == "Fn::Equals" and len(given) == len(("one", "other")):
                yield given[0], given[1]
            elif function == "Condition" and str(inner) not in seen:
                seen.add(str(inner))
                waiting.append(self._conditions.get(str(inner)))
            elif function in {"Fn::And", "Fn::Not", "Fn::Or"}:
                waiting.extend(given)


def _is_plain(value: Json) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and [*value] == ["Ref"])


def _written(value: Json) -> str | None:
    """Return a value as CloudFormation compares it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _name(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def _owners(value: Json) -> set[str]:
    """Return the parameters that a value is made of."""
    written = _name(value)
    names = {*re.findall(r'"Ref": "([^"]+)"', written), *re.findall(r"\$\{([^}]+)\}", written)}
    return {"AWS::Region" if each in _PLACES else each for each in names}


def _fits(value: str, body: "Mapping[str, Json]") -> bool:
    """Tell whether a parameter takes a value; its other tests are CloudFormation's own."""
    if value.startswith(_OTHER):
        return True
    least, length = number(body.get("MinLength")), len(value)
    size, low, high = number(value), number(body.get("MinValue")), number(body.get("MaxValue"))
    if least is not None and length < least:
        return False
    kind = str(body.get("Type"))
    # Such a parameter is the name of something that exists.
    if not value and kind.startswith("AWS::EC2::"):
        return False
    if size is not None and kind == "Number":
        return (low is None or size >= low) and (high is None or size <= high)
    pattern = text(body.get("AllowedPattern"))
    try:
        return pattern is None or re.fullmatch(pattern, value) is not None
    except re.error:
        return True
