"""Judges a template with the defaults of its parameters in the places that refer to them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.properties import named
from megatron_eks.rules.cloudformation.rows import look_ups
from megatron_eks.rules.values import is_placeholder, mapping, text

_PLAIN_TYPES = ("String", "Number")
_REFERENCE = re.compile(r"\$\{([A-Za-z0-9]+)\}")


def by_defaults(
    templates: "Mapping[str, Json]",
    found: Sequence[Finding],
    judge: "Callable[[Mapping[str, Json]], list[Finding]]",
) -> Iterator[Finding]:
    """Warn of what is wrong where every parameter has its default, and not as it is written.

    CloudFormation User Guide, "Parameters": a default is used where no value is given, so a stack
    that fails with it fails for everybody who follows the template.
    """
    defaults = {file: values for file, each in templates.items() if (values := _defaults(each))}
    if not defaults:
        return
    changed = {
        file: _with(each, defaults[file]) if file in defaults else each
        for file, each in templates.items()
    }
    said = {(each.file, each.code, each.path[:2]) for each in found}
    for each in judge(changed):
        if each.path[:1] != ("Resources",) or (each.file, each.code, each.path[:2]) in said:
            continue
        names = _names(templates.get(each.file), each.path, defaults.get(each.file, {}))
        whose = f"default of {', '.join(names)}" if names else "parameters' defaults"
        yield replace(each, found=f"with the {whose}: {each.found}", level=Level.WARNING)


def _defaults(template: Json) -> dict[str, str]:
    """Return the defaults that say something by themselves, and that nothing else depends on.

    What conditions and look-ups ask is varied where they are judged.
    """
    if not isinstance(template, dict) or "Transform" in template:
        return {}
    values: dict[str, str] = {}
    for name, body in (mapping(template.get("Parameters")) or {}).items():
        given = mapping(body) or {}
        value = given.get("Default")
        plain = text(given.get("Type")) in _PLAIN_TYPES and not isinstance(value, bool)
        if plain and isinstance(value, str | int | float) and not is_placeholder(str(value)):
            values[name] = str(value)
    if not values:
        return {}
    asked = deciding(template)
    return {name: each for name, each in values.items() if each.strip() and name not in asked}


def deciding(template: "Mapping[str, Json]") -> set[str]:
    """Return the parameters that decide what a template is: more than their place depends on them.

    Conditions and Rules ask them, or they choose rows of mappings and places of lists.
    """
    asked = _referred(template.get("Conditions")) | _referred(template.get("Rules"))
    for keys in look_ups(template.get("Resources")):
        asked |= _referred(keys)
    return asked | _chosen_by(template.get("Resources"))


def _chosen_by(value: Json) -> set[str]:
    """Return what chooses places of lists: each stack of a template has a place of its own."""
    if isinstance(value, list):
        return set().union(*(_chosen_by(each) for each in value))
    if not isinstance(value, dict):
        return set()
    chosen = value.get("Fn::Select")
    own = _referred(chosen[0]) if isinstance(chosen, list) and chosen else set()
    return own.union(*(_chosen_by(each) for each in value.values()))


def _referred(value: Json) -> set[str]:
    """Return all names that a value refers to."""
    return {name for _, name in named(value, ())}


def _with(template: Json, values: Mapping[str, str]) -> Json:
    if not isinstance(template, dict):
        return template
    return template | {"Resources": _filled(template.get("Resources"), values)}


def _filled(value: Json, values: Mapping[str, str]) -> Json:
    """Return a value with what its references to parameters say."""
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        name = text(value.get("Ref"))
        if name is not None and name in values:
            return values[name]
        sub = text(value.get("Fn::Sub"))
        if sub is not None:
            done = _REFERENCE.sub(lambda found: values.get(found[1], found[0]), sub)
            return {"Fn::Sub": done} if "${" in done else done
    return {key: _filled(each, values) for key, each in value.items()}


def _names(template: Json, path: Path, values: Mapping[str, str]) -> list[str]:
    """Return the parameters in what a finding is about."""
    resources = mapping((mapping(template) or {}).get("Resources")) or {}
    body = mapping(resources.get(str(path[1]))) if path[1:] else None
    if body is None:
        return []
    node: Json = body.get("Properties")
    for part in path[2:]:
        if isinstance(node, dict) and part in node:
            node = node[str(part)]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            return []
    referred = _referred(node)
    return [each for each in values if each in referred]
