"""Judges a template as it is where its conditions hold or not, with each row of its mappings."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import combinations

from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.assignments import Truth, Way
from megatron_eks.rules.cloudformation.rows import filled, rows_at_hand, ways_of
from megatron_eks.rules.values import is_absent, mapping, text

Judge = Callable[["Mapping[str, Json]"], list[Finding]]
"""Applies the rules of branches to templates."""

Facts = Mapping[str, bool | str]
"""Conditions by whether they hold, and what chooses rows by the row that it chooses."""

_ARGUMENTS = 3
_NOTHING = object()
_MOST_NAMES = 2
_CHOOSING = ("Conditions", "Mappings")


def in_branches(
    templates: "Mapping[str, Json]", found: Sequence[Finding], judge: Judge
) -> Iterator[Finding]:
    """Return what is wrong where conditions hold alone or do not, or in some rows of a mapping.

    What was found in the templates as they are written is not said again.
    """
    found_ways = {
        file: ways
        for file, template in templates.items()
        if isinstance(template, dict) and not template.keys().isdisjoint(_CHOOSING)
        if (ways := ways_of(template))
    }
    several = found_ways and len(templates) > 1
    names = {file: _shared(body) for file, body in templates.items()} if several else {}
    for file, ways in found_ways.items():
        near = {each: templates[each] for each in _near(file, names)}
        before = [*found, *(judge(near) if len(near) < len(templates) else ())]
        yield from _of_one(file, near, ways, before, judge)


def _of_one(
    file: str,
    templates: "Mapping[str, Json]",
    ways: list[Way],
    before: list[Finding],
    judge: Judge,
) -> Iterator[Finding]:
    template = mapping(templates[file]) or {}
    said = {(each.file, each.code, each.path) for each in before}
    said_of = {(each.file, each.code, each.path[:2], each.found) for each in before}
    met: dict[tuple[str, str, Path], tuple[Finding, list[int]]] = {}
    for index, way in enumerate(ways):
        truth = way.truth
        for each in judge({**templates, file: resolved(template, way)}):
            place = _written_path(each.path, template, truth) if each.file == file else each.path
            shown = place[:-2] if place[-2:-1] == ("Fn::If",) else place
            if {(each.file, each.code, shown), (each.file, each.code, place)} & said:
                continue
            # What was said of a part of it was said better.
            if any(part[:2] == (each.file, each.code) and _below(part[2], shown) for part in said):
                continue
            if (each.file, each.code, shown[:2], each.found) in said_of:
                continue
            first = replace(each, path=shown)
            held = met.setdefault((each.file, each.code, place), (first, []))[1]
            held.extend([index] if index not in held else [])
    _add_by_defaults(met, file, templates, ways, judge)
    for finding, held in met.values():
        words = _words([_facts(way) for way in ways], held)
        yield replace(finding, found=f"{words}: {finding.found}") if words else finding


def _below(path: Path, whole: Path) -> bool:
    return len(path) > len(whole) > len(("Resources", "id")) and path[: len(whole)] == whole


def _add_by_defaults(
    met: "dict[tuple[str, str, Path], tuple[Finding, list[int]]]",
    file: str,
    templates: "Mapping[str, Json]",
    ways: list[Way],
    judge: Judge,
) -> None:
    """Add the ways in which something is found by the defaults of parameters, and no condition."""
    template = mapping(templates[file]) or {}
    for index, way in enumerate(ways):
        waiting = [key for key, (_, held) in met.items() if index not in held and 0 in held]
        if not waiting or not way.defaults:
            continue
        same = resolved(template, replace(way, defaults={}))
        found = {
            (each.file, each.code, _written_path(each.path, template, way.truth), each.found)
            for each in judge({**templates, file: same})
        }
        for key in waiting:
            if (*key, met[key][0].found) in found:
                met[key][1].append(index)


def resolved(template: "Mapping[str, Json]", way: Way) -> dict[str, Json]:
    """Return a template with the chosen branches and rows alone, and without what is not made.

    CloudFormation User Guide, "Condition functions"; DependsOn passes over what is not made.
    """
    result, truth = dict(template), way.truth
    mappings = rows_at_hand(template)
    parameters = mapping(template.get("Parameters"))
    if parameters and way.defaults:
        result["Parameters"] = parameters | {
            name: _parameter(parameters.get(name), value) for name, value in way.defaults.items()
        }
    for section in ("Resources", "Outputs"):
        parts = mapping(template.get(section))
        if parts is None or section not in template:
            continue
        kept = {name: body for name, body in parts.items() if _is_made(body, truth)}
        gone = parts.keys() - kept.keys()
        result[section] = {
            name: filled(_body(body, truth, gone), mappings, way.rows)
            for name, body in kept.items()
        }
    return result


def _parameter(value: Json, default: str | None) -> Json:
    """Return a parameter with what it is in this case, or without a default."""
    body = {key: each for key, each in (mapping(value) or {}).items() if key != "Default"}
    return body if default is None else body | {"Default": default}


def _is_made(body: Json, truth: Truth) -> bool:
    name = text(body.get("Condition")) if isinstance(body, dict) else None
    return name is None or truth.get(name, True)


def _body(body: Json, truth: Truth, gone: AbstractSet[str]) -> Json:
    chosen = _chosen(body, truth)
    if not isinstance(body, dict) or not isinstance(chosen, dict):
        return body
    if text(body.get("Condition")) in truth or (gone and "DependsOn" in body):
        chosen = dict(chosen)
        if text(body.get("Condition")) in truth:
            del chosen["Condition"]
        after = chosen.get("DependsOn")
        if isinstance(after, list):
            chosen["DependsOn"] = [each for each in after if each not in gone]
        elif isinstance(after, str) and after in gone:
            del chosen["DependsOn"]
    return chosen


def _branch(value: Json, truth: Truth) -> int:
    """Return which argument of Fn::If is taken; 0 for everything else."""
    given = value.get("Fn::If") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(given, list) or len(given) != _ARGUMENTS or not isinstance(given[0], str):
        return 0
    return (1 if truth[given[0]] else 2) if given[0] in truth else 0


def _chosen(value: Json, truth: Truth) -> Json | object:
    """Return a value with its branches chosen; the same object where nothing changes."""
    if isinstance(value, dict):
        branch = _branch(value, truth)
        if branch:
            given = value["Fn::If"]
            taken = given[branch] if isinstance(given, list) else None
            return _NOTHING if is_absent(taken) and taken is not None else _chosen(taken, truth)
        pairs = [(key, each, _inner(each, truth)) for key, each in value.items()]
        if all(new is old for _, old, new in pairs):
            return value
        return {key: new for key, _, new in pairs if new is not _NOTHING}
    if isinstance(value, list):
        both = [(each, _inner(each, truth)) for each in value]
        if all(new is old for old, new in both):
            return value
        return [new for _, new in both if new is not _NOTHING]
    return value


def _inner(value: Json, truth: Truth) -> Json | object:
    return _chosen(value, truth) if isinstance(value, dict | list) else value


def _written_path(path: Path, template: "Mapping[str, Json]", truth: Truth) -> Path:
    """Return where the template writes what has this path where branches are chosen."""
    node: Json = dict(template)
    result: Path = ()
    for index, part in enumerate(path):
        if index == len(("Resources", "id")) and path[0] == "Resources":
            properties = node.get("Properties") if isinstance(node, dict) else None
            node = properties if isinstance(properties, dict) and part in properties else node
        node, result = _through(node, result, truth)
        if isinstance(node, list) and isinstance(part, int):
            kept = [at for at, each in enumerate(node) if _inner(each, truth) is not _NOTHING]
            if part >= len(kept):
                return (*result, part)
            node, result = node[kept[part]], (*result, kept[part])
        elif isinstance(node, dict) and part in node:
            node, result = node[str(part)], (*result, part)
        else:
            return (*result, *path[index:])
    return _through(node, result, truth)[1]


def _through(node: Json, path: Path, truth: Truth) -> tuple[Json, Path]:
    """Go on to the branch that is taken, where there is one."""
    while branch := _branch(node, truth):
        given = node.get("Fn::If") if isinstance(node, dict) else None
        taken = given[branch] if isinstance(given, list) else None
        if is_absent(taken):
            break
        node, path = taken, (*path, "Fn::If", branch)
    return node, path


def _facts(way: Way) -> Facts:
    """Return what tells a way from others: its conditions, and the rows that it looks up."""
    rows = {str(next(iter(json.loads(name).values()))): row for name, row in way.rows.items()}
    return {**way.truth, **rows}


def _words(ways: list[Facts], held: list[int]) -> str:
    """Say in few words where something was found; nothing where it is found everywhere."""
    if len(held) == len(ways):
        return ""
    names = list(dict.fromkeys(name for each in ways for name in each))
    values = list(dict.fromkeys([True, False, *(row for way in ways for row in way.values())]))
    literals = [
        (name, value)
        for value in values
        for name in names
        if any(way.get(name) == value for way in ways)
    ]
    for size in range(1, _MOST_NAMES + 1):
        best: tuple[int, tuple[tuple[str, bool | str], ...]] = (0, ())
        for group in combinations(literals, size):
            fitting = [i for i, each in enumerate(ways) if _are(group, each)]
            if fitting and set(fitting) <= set(held) and len(fitting) > best[0]:
                best = (len(fitting), group)
        if best[0]:
            return _said(best[1])
    return _said(tuple(ways[held[0]].items()))


def _are(group: tuple[tuple[str, bool | str], ...], facts: Facts) -> bool:
    """Tell whether conditions and rows are as they are said to be."""
    return all(facts.get(name) == value for name, value in group)


def _said(group: tuple[tuple[str, bool | str], ...]) -> str:
    words = [
        f"{name} is {value}"
        if isinstance(value, str)
        else f"{name} holds"
        if value
        else f"{name} does not hold"
        for name, value in group
    ]
    return f"where {' and '.join(words)}"


def _near(file: str, names: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return a template and those that it, or one of them, shares an export with, in their order.

    A folder of templates that have nothing to do with each other costs as little as each alone.
    """
    near, reached = {file}, set(names.get(file, ()))
    while more := {each for each in names if each not in near and names[each] & reached}:
        near |= more
        reached |= {name for each in more for name in names[each]}
    return [each for each in names if each in near] or [file]


def _shared(template: Json) -> set[str]:
    """Return the names under which a template exports or imports anything."""
    names: set[str] = set()
    waiting: list[Json] = [template]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            export = value.get("Export")
            given = [
                value.get("Fn::ImportValue"),
                export.get("Name") if isinstance(export, dict) else None,
            ]
            names.update(json.dumps(each, sort_keys=True) for each in given if each is not None)
        waiting.extend(
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
    return names
