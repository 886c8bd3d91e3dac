"""What a support bundle shows of Kubernetes' objects: names, states, and values of known names."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from megatron_eks.catalog import shown
from megatron_eks.ops.support.arguments import Hide, shown_arguments
from megatron_eks.ops.support.files import is_setting, shown_file

# JSON, which has no narrower type.
Value = Any

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
        json.loads(text)
    except (ValueError, RecursionError):
        return hide(text)
    return shown_file(text, is_setting, hide)
