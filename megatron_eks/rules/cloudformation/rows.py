"""Which rows of its Mappings a template may use, and what stands there."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.assignments import MOST, Way, assignments
from megatron_eks.rules.values import items, mapping, text

_FIND = "Fn::FindInMap"
_KEYS = 3


def ways_of(template: "Mapping[str, Json]") -> list[Way]:
    """Return the ways in which a template may be made: its conditions, and the rows it looks up.

    CloudFormation User Guide, "Fn::FindInMap": the row is most often the region's, or that of a
    parameter. One is varied at a time, the first of them where nothing tells which it is.
    """
    conditions = assignments(template) if "Conditions" in template else []
    used = _used(template)
    if not used:
        return conditions
    known = [_known(way, template, used) for way in conditions or [Way({}, {})]]
    first = known[0]
    turned: list[Way] = []
    for name, rows in used.items():
        owner = _parameter(name)
        if owner is None:
            turned += [replace(first, rows={**first.rows, name: row}) for row in rows[1:]]
        elif owner not in (mapping(template.get("Parameters")) or {}):
            continue
        # Another value of a parameter may turn a condition as well.
        elif name not in first.rows and not conditions:
            ways = (replace(first, rows={**first.rows, name: row}) for row in rows)
            turned += [replace(way, defaults={owner: way.rows[name]}) for way in ways]
    return [first, *turned, *known[1:]][:MOST]


def filled(value: Json, mappings: "Mapping[str, Json]", rows: Mapping[str, str]) -> Json:
    """Return a value with what its look-ups find; the same object where nothing changes."""
    if isinstance(value, dict):
        if len(value) == 1 and _FIND in value:
            found = _cell(value[_FIND], mappings, rows)
            return value if found is None else found
        pairs = {key: filled(each, mappings, rows) for key, each in value.items()}
        return value if all(pairs[key] is value[key] for key in value) else pairs
    if isinstance(value, list):
        listed = [filled(each, mappings, rows) for each in value]
        same = all(new is old for new, old in zip(listed, value, strict=True))
        return value if same else listed
    return value


def _cell(keys: Json, mappings: "Mapping[str, Json]", rows: Mapping[str, str]) -> Json:
    level: Json = dict(mappings)
    for each in keys[:_KEYS] if isinstance(keys, list) else [None]:
        key = text(each) or rows.get(_name(each))
        level = level.get(key) if isinstance(level, dict) and key else None
    return level


def look_ups(value: Json) -> Iterator[list[Json]]:
    """Return what each Fn::FindInMap in a value is given."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get(_FIND), list):
        yield items(value[_FIND]) or []
    children = (
        value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    )
    for each in children:
        yield from look_ups(each)


def rows_at_hand(template: "Mapping[str, Json]") -> "dict[str, dict[str, Json]]":
    """Return the rows of each of a template's Mappings; none where a macro may bring more."""
    known = mapping(template.get("Mappings")) or {}
    if "Transform" in template or any(key.startswith("Fn::") for key in known):
        return {}
    return {
        name: rows
        for name, each in known.items()
        if (rows := mapping(each)) and not any(key.startswith("Fn::") for key in rows)
    }


def _used(template: "Mapping[str, Json]") -> dict[str, list[str]]:
    """Return what chooses the rows of the look-ups in resources, with the rows that differ."""
    known = rows_at_hand(template)
    cells: dict[str, list[tuple[str, str]]] = {}
    for keys in look_ups(template.get("Resources")) if known else ():
        name, row, column = ([*keys[:_KEYS], None, None, None])[:_KEYS]
        said, key = text(name), text(column)
        if said in known and key is not None:
            # A row that is written out is no choice, and looked up all the same.
            cells.setdefault(_name(row), []).append((said, key))
    return {name: _different(name, each, known, template) for name, each in cells.items()}


def _different(
    name: str,
    cells: list[tuple[str, str]],
    known: "dict[str, dict[str, Json]]",
    template: "Mapping[str, Json]",
) -> list[str]:
    allowed = _allowed(name, template)
    first = known[cells[0][0]] if name.startswith("{") else {}
    seen: dict[str, str] = {}
    for row in first:
        values = [(mapping(known[one].get(row)) or {}).get(column) for one, column in cells]
        if None not in values and (allowed is None or row in allowed):
            # Images have another id in every region, and are the same.
            plain = ["ami-" if str(each).startswith("ami-") else each for each in values]
            seen.setdefault(json.dumps(plain), row)
    return list(seen.values())


def _allowed(name: str, template: "Mapping[str, Json]") -> list[str] | None:
    owner = _parameter(name)
    body = mapping((mapping(template.get("Parameters")) or {}).get(owner or "")) or {}
    listed: Iterable[Json] = items(body.get("AllowedValues")) or []
    return [str(each) for each in listed] or None


def _known(way: Way, template: "Mapping[str, Json]", used: Mapping[str, list[str]]) -> Way:
    """Add the rows that the values of parameters choose in this way."""
    parameters = mapping(template.get("Parameters")) or {}
    rows: dict[str, str] = {}
    for name, possible in used.items():
        owner = _parameter(name)
        if owner is None and possible:
            rows[name] = possible[0]
        elif owner in parameters:
            default = text((mapping(parameters[owner]) or {}).get("Default"))
            given = way.defaults.get(owner) if way.defaults else default
            if given:
                rows[name] = given
    return replace(way, rows=rows)


def _name(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def _parameter(name: str) -> str | None:
    """Return the parameter that chooses a row by itself; None for a region and the like."""
    value = json.loads(name)
    ref = text(value.get("Ref")) if isinstance(value, dict) and len(value) == 1 else None
    return None if ref is None or ref.startswith("AWS::") else ref
