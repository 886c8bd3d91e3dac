"""What a support bundle shows of files, objects and command lines: values of known names."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Protocol

import yaml
from pydantic import TypeAdapter

from megatron_eks.catalog import shown
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.job import AnyJob
from megatron_eks.config.load import read_mapping

Path = tuple[str, ...]
# JSON, and a JSON Schema.
Value = Any

# Their keys are zones and instance types.
_BY_PLACE = frozenset({"private_subnets", "instance_hour"})


class Hide(Protocol):
    """Takes a value out, of a variable that a person named or of anything else."""

    def __call__(self, value: str, variable: str = "") -> str:
        """Return what stands there instead."""


def is_setting(path: Path) -> bool:
    """Tell whether a value of a cluster or job file is one that the project defines."""
    known, free = _keys()
    names = (key for before, key in pairwise(("", *path)) if before not in _BY_PLACE)
    return known.issuperset(names) and free.isdisjoint(path)


def is_output(path: Path) -> bool:
    """Tell whether a value of `outputs.json` is one of our stacks'."""
    return len(path) == len(("stack", "output")) and bool(shown.OUTPUTS.fullmatch(path[-1]))


def shown_file(text: str, is_shown: Callable[[Path], bool], hide: Hide) -> str:
    """Return YAML or JSON without comments and others' values; ValueError if it is neither."""
    value = read_mapping(text, "").value
    if value is None:
        raise ValueError("no mapping in YAML; findings.txt may say why")
    return yaml.safe_dump(
        _kept(value, is_shown, hide, ()), sort_keys=False, allow_unicode=True, width=math.inf
    )


def _kept(value: Value, is_shown: Callable[[Path], bool], hide: Hide, path: Path) -> Value:
    if isinstance(value, dict):
        return {key: _kept(value[key], is_shown, hide, (*path, str(key))) for key in value}
    if isinstance(value, list):
        if path[-1:] == ("extra_args",):
            return list(shown_arguments(value, hide, ours=frozenset()))
        return [_kept(each, is_shown, hide, path) for each in value]
    if value in {None, ""} or is_shown(path):
        return value
    return hide(str(value), path[-1] if "env" in path else "")


@cache
def _keys() -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys that the models define, and those that hold what people name themselves."""
    known: set[str] = set()
    free = {"extra_args"}
    for schema in (ClusterConfig.model_json_schema(), TypeAdapter(AnyJob).json_schema()):
        for block in (schema, *schema["$defs"].values()):
            for key, value in block.get("properties", {}).items():
                known.add(key)
                if value.get("additionalProperties") and key not in _BY_PLACE:
                    free.add(key)
    return frozenset(known), frozenset(free)


# Written by others at length, and told by the rest of the object.
_DROPPED = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_MAPS = {
    **dict.fromkeys(("labels", "matchLabels", "nodeSelector", "selector"), shown.LABELS),
    "annotations": shown.ANNOTATIONS,
    **dict.fromkeys(("data", "binaryData", "stringData"), shown.FILES),
    "volumeAttributes": shown.VOLUME_ATTRIBUTES,
    **dict.fromkeys(("parameters", "options"), frozenset[str]()),
}
_NO_FACTS = frozenset({"message", "note", "value", "args", "command", "data"})
_AMOUNTS = frozenset({"limits", "requests", "capacity", "allocatable", "hard", "used", "allocated"})
_PROBED = re.compile(r"/[a-z]{0,9}")
_QUANTITY = re.compile(r"\d+(\.\d+)?([munkKMGTPE]i?)?")


def shown_object(value: Value, hide: Hide, field: str = "") -> Value:
    """Return an object, or what one of its fields holds."""
    if isinstance(value, dict):
        return {key: _member(value, key, field, hide) for key in value if key not in _DROPPED}
    if isinstance(value, list):
        if field in {"args", "command"}:
            return list(shown_arguments(value, hide))
        return [shown_object(each, hide, field) for each in value]
    if isinstance(value, str) and value and field not in shown.FIELDS:
        return hide(value)
    return value


def facts_in(value: Value, field: str = "") -> Iterator[str]:
    """Yield what an object and all around it are called: no messages, and no settings."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from facts_in(inner, field if field in _NO_FACTS else key)
    elif isinstance(value, list):
        for inner in value:
            yield from facts_in(inner, field)
    elif isinstance(value, str) and field not in _NO_FACTS:
        yield value


def _member(whole: Mapping[str, Value], key: str, field: str, hide: Hide) -> Value:
    value = whole[key]
    if key == "valueFrom" and whole.get("name") not in shown.ENVIRONMENT:
        hide("", str(whole.get("name") or ""))
    if isinstance(value, dict) or value is None:
        return shown_object(value, hide, key)
    if field in _MAPS:
        text = value if isinstance(value, str) else json.dumps(value)
        if key not in _MAPS[field]:
            return hide(text)
        return _settings(text, hide) if key.endswith(".json") else text
    if field in _AMOUNTS or (field == "httpGet" and key in {"path", "host"}):
        form = _QUANTITY if field in _AMOUNTS else _PROBED
        return value if form.fullmatch(str(value)) else hide(str(value))
    if key in {"value", "values"}:
        return _named(whole, key, field, hide)
    return shown_object(value, hide, key)


def _named(whole: Mapping[str, Value], key: str, field: str, hide: Hide) -> Value:
    """Return the value of a variable, or what a taint, a selector or a quota compares with."""
    value, name = whole[key], whole.get("name", whole.get("key"))
    is_known = name in shown.ENVIRONMENT if field == "env" else whole.get("key") in shown.LABELS
    # Of quotas these are classes of priority.
    if is_known or "scopeName" in whole:
        return value
    if isinstance(value, list):
        return [hide(each) if isinstance(each, str) else each for each in value]
    return hide(value, str(name or "")) if isinstance(value, str) and value else value


def _settings(text: str, hide: Hide) -> str:
    """Return a job's configuration as its pods read it, without what its file sets freely."""
    try:
        return json.dumps(_kept(json.loads(text), is_setting, hide, ()), indent=2)
    except (ValueError, RecursionError):
        return hide(text)


_OPTION = re.compile(r"--[a-z][a-z0-9_.-]*|-[A-Za-z]")


def shown_arguments(
    words: Sequence[object], hide: Hide, ours: Collection[str] = shown.OPTIONS
) -> Iterator[str]:
    """Yield a command's words: all names of options, and the values of those that we set."""
    follow = 0
    for word in map(str, words):
        option, equals, value = word.partition("=")
        if _OPTION.fullmatch(option):
            known = option in ours
            yield option + equals + (value if known or not value else hide(value))
            follow = (len(words) if option in shown.LISTS else 1) if known and not equals else 0
        elif follow or shown.WORDS.fullmatch(word):
            yield word
            follow = max(0, follow - 1)
        else:
            yield hide(word)
