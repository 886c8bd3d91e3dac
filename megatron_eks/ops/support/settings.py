"""What a support bundle shows of cluster and job files: values of keys that the project defines."""

import math
import os
from collections.abc import Collection
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.job import AnyJob
from megatron_eks.config.load import read_mapping
from megatron_eks.ops.support.text import HIDDEN

_FILE_BYTES = 1024 * 1024
# Their keys are zones and instance types.
_BY_PLACE = frozenset({"private_subnets", "instance_hour"})

# JSON, and a JSON Schema.
Value = Any


def shown_file(path: Path, folder: Path, hidden: set[str]) -> str:
    """Return a file below a folder without comments and others' values; OSError, ValueError."""
    found = path.resolve(strict=True)
    if not found.is_relative_to(folder):
        raise OSError(f"a link out of {folder.name}/")
    if not found.is_file():
        raise OSError("no regular file")
    # Nothing may take the place of what was looked at.
    number = os.open(found, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(number, encoding="utf-8", errors="backslashreplace") as file:
        return shown_settings(file.read(_FILE_BYTES), hidden)


def shown_settings(text: str, hidden: set[str]) -> str:
    """Return the settings that a text in YAML holds, and add what it hides; ValueError."""
    value = read_mapping(text, "").value
    if value is None:
        raise ValueError("no mapping in YAML; findings.txt may say why")
    kept = _kept(value, (), hidden)
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=math.inf)


def _kept(value: Value, path: tuple[str, ...], hidden: set[str]) -> Value:
    if isinstance(value, dict):
        return {key: _kept(value[key], (*path, str(key)), hidden) for key in value}
    if isinstance(value, list):
        return [_kept(each, path, hidden) for each in value]
    if value in {None, ""} or _is_setting(path):
        return value
    name, equals, text = str(value).partition("=")
    if path[-1] == "extra_args" and name.startswith("--"):
        hidden.add(text)
        return f"{name}{equals}{HIDDEN * bool(text)}"
    hidden.add(str(value))
    return HIDDEN


def _is_setting(path: Collection[str]) -> bool:
    known, free = _keys()
    names = (key for before, key in pairwise(("", *path)) if before not in _BY_PLACE)
    return known.issuperset(names) and free.isdisjoint(path)


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
