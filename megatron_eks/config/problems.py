"""Every pydantic error as a finding in the user's words."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from megatron_eks.catalog.tables import by_name, entries
from megatron_eks.config import blocks, hints
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices
from megatron_eks.config.forms import FORMATS, PATTERNS, TABLE
from megatron_eks.config.job import JOB_KINDS
from megatron_eks.config.load import Document, Place
from megatron_eks.config.scalars import odd_part, odd_sign

# The model of the whole file.
Form: TypeAlias = type[BaseModel]

_PASSWORD = re.compile(r"(?<=//)[^\s/@]+@|(?<=^.)[^\s/@:]+:[^\s/@]+@")

_PATHS = {PATTERNS["absolute_path"], PATTERNS["relative_path"]}
_HARMLESS = 5
"""No longer value of a variable is quoted: 1, true, INFO."""
_HIDDEN = "..."
_YAML_WORDS = {"True": "true", "False": "false", "None": "null"}
_RANGES = {kind: said.split(" | ") for kind, said in entries(TABLE["ranges"])}
_TYPES = by_name(TABLE["types"])
# The blocks of a training job whose keys other tools have at the top.
_BLOCKS = ("parallelism", "training", "checkpoint", "data", "model", "runtime")


def finding_of(detail: ErrorDetails, document: Document, model: Form) -> Finding:
    """Write one pydantic error as a finding."""
    path = blocks.data_path(detail["loc"], document.value)
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path, document, model)
    place = document.places.get(path)
    secret = path[:2] == ("runtime", "secret_env") or str(path[-1]).endswith("secret")
    given = detail["input"]
    pasted = secret and not isinstance(given, dict) and len(str(given)) > _HARMLESS
    if secret or path[:2] == ("runtime", "env"):
        detail = {**detail, "input": _without_values(given)}
        place = place._replace(raw=_without_values(place.raw)) if place else None
    finding = _wrong_value(path, detail, place, model)
    slip = odd_sign(detail["input"]) if isinstance(detail["input"], str) else None
    remedy = (slip or finding.remedy) + "; revoke a token or address that was pasted here" * pasted
    return replace(finding, remedy=remedy)


def _without_values(value: Any) -> Any:  # noqa: ANN401 -- whatever stands in the file
    """Return a job's variables, or what a secret is named by, without values that may be secret.

    `{name: A, value: B}` and `A=B` are other ways to write one.
    """
    if isinstance(value, dict):
        return {k: each if k == "name" else _without_values(each) for k, each in value.items()}
    if isinstance(value, list):
        return [_without_values(each) for each in value]
    name, equals, _ = str(value).partition("=")
    if value is None or len(str(value)) <= _HARMLESS:
        return value
    return f"{name}={_HIDDEN}" if equals else _HIDDEN


def _unknown_key(path: Path, document: Document, model: Form) -> Finding:
    name = str(path[-1])
    if path[-2:] in {("capacity", "ids"), ("capacity", "blocks")}:
        return Finding(Code.NOT_SUPPORTED_YET, path, *hints.SEVERAL_RESERVATIONS)
    known = blocks.fields_at(model, path[:-1], document.value)
    remedy = (
        hints.of_no_value(name)
        or odd_sign(name)
        or hints.of_other_tool(name, known)
        or blocks.other_types(model, path, document.value)
        or blocks.elsewhere(model, path)
        or (model in JOB_KINDS.values() and _of_other_jobs(path, model))
        or choices(name, known)
    )
    return Finding(Code.UNKNOWN_KEY, path, f"unknown key {name!r}", remedy)


def _of_other_jobs(path: Path, model: Form) -> str | None:
    kinds = [kind for kind, each in JOB_KINDS.items() if path[0] in each.model_fields]
    if len(path) == 1 and kinds:
        return f"remove it: it belongs to kind {', '.join(kinds)}"
    if len(path) > len(("block", "key")):
        return None
    for block in [each for each in _BLOCKS if each in model.model_fields and each != path[0]]:
        if remedy := hints.of_other_tool(str(path[-1]), blocks.fields_at(model, (block,), None)):
            use = re.match(r"use ([a-z_]+)(.*)", remedy)
            return f"use {block}.{use[1]}{use[2]}" if use and "." not in use[1] else remedy
    return None


def _wrong_value(path: Path, detail: ErrorDetails, place: Place | None, model: Form) -> Finding:
    kind, context = detail["type"], detail.get("ctx", {})
    shown = _shown(detail["input"])
    if kind == "missing":
        return _missing(path)
    if kind.startswith("union_tag"):
        return _wrong_tag(path, context)
    if kind == "literal_error":
        return _not_a_choice(path, str(context["expected"]), detail["input"])
    if kind == "string_pattern_mismatch":
        return _wrong_format(path, str(detail["input"]), context["pattern"])
    if kind in _RANGES:
        word, key = _RANGES[kind]
        remedy = f"use {word} {context[key]}{hints.unit_of(str(path[-1]))}"
        found = f"{shown} is out of range"
        if key.endswith("length"):
            unit = "characters" if isinstance(detail["input"], str) else "entries"
            found = f"{shown} has {len(detail['input'])} {unit}"
        return Finding(Code.OUT_OF_RANGE, path, found, remedy)
    return _wrong_type(path, detail, place, model)


def _wrong_format(path: Path, given: str, pattern: str) -> Finding:
    shown = _shown(given)
    if pattern not in _PATHS and (odd := odd_part(given)):
        return Finding(Code.BAD_FORMAT, path, f"{shown} has {odd[0]}", odd[1])
    if later := hints.not_yet(given, pattern):
        return Finding(Code.NOT_SUPPORTED_YET, path, *later)
    known = None if given == _HIDDEN else hints.of_format(given, pattern, str(path[-1]))
    remedy = known or FORMATS[pattern]
    return Finding(Code.BAD_FORMAT, path, f"{shown} is not in the right form", remedy)


def _not_yet(path: Path, value: object, model: Form) -> tuple[str, str] | None:
    if path[-2:] == ("capacity", "id") and isinstance(value, list):
        return hints.SEVERAL_RESERVATIONS
    if path == ("model",) and isinstance(value, dict) and "direction" in blocks.block_at(model, ()):
        found = "a conversion of a model that is spelt out is not supported yet"
        return found, "name a preset, or run Megatron-Bridge's own program as a torchrun job"
    return None


def _wrong_type(path: Path, detail: ErrorDetails, place: Place | None, model: Form) -> Finding:
    kind, value = detail["type"], detail["input"]
    if later := _not_yet(path, value, model):
        return Finding(Code.NOT_SUPPORTED_YET, path, *later)
    if value is None and kind in _TYPES:
        remedy = hints.of_no_value(str(path[-1])) or "give it one, or remove the key"
        if isinstance(path[-1], int):
            remedy = "write the entry behind its dash, or remove the dash"
        return Finding(Code.WRONG_TYPE, path, "no value", remedy)
    if kind == "string_type" and place and place.raw and not isinstance(value, dict | list):
        found = f"{place.raw} without quotes is not a text"
        # With quotes it would be one, and as wrong.
        pattern = blocks.pattern_at(model, path)
        quoted = pattern is None or (re.search(pattern, place.raw) and value is not True)
        remedy = f'write "{place.raw}" in quotes' if quoted else FORMATS[str(pattern)]
        return Finding(Code.UNQUOTED, path, found, remedy)
    remedy = _TYPES.get(kind, detail["msg"][:1].lower() + detail["msg"][1:])
    remedy = hints.of_shape(kind, value, path, blocks.block_at(model, path)) or remedy
    if isinstance(value, str):
        remedy = hints.of_word(kind, value, str(path[-1])) or remedy
    elif path[:-1] == ("overrides",):
        inner = next(iter(value), None) if isinstance(value, dict) else None
        remedy = f"write dotted names: {path[-1]}.{inner}: ..." if inner else "write one value"
    return Finding(Code.WRONG_TYPE, path, f"{_shown(value)} has the wrong type", remedy)


def _missing(path: Path) -> Finding:
    name = str(path[-1])
    remedy = f"add `{name}:`; docs/configuration.md explains it"
    return Finding(Code.MISSING_KEY, path, f"{name!r} is missing", remedy)


def _wrong_tag(path: Path, context: Mapping[str, Any]) -> Finding:
    name = str(context["discriminator"]).strip("'")
    if "tag" not in context:
        return _missing((*path, name))
    tag = str(context["tag"])
    allowed = [option.strip("' ") for option in str(context["expected_tags"]).split(",")]
    meant = hints.of_value(name, tag)
    known = meant if meant and meant.removeprefix("write ") in allowed else choices(tag, allowed)
    return Finding(Code.NOT_ALLOWED, (*path, name), f"unknown {name} {tag!r}", known)


def _not_a_choice(path: Path, expected: str, value: object) -> Finding:
    options = expected.replace(" or ", ", ").split(", ")
    words = [_YAML_WORDS.get(option, option).strip("' ") for option in options]
    remedy = f"write {value} without quotes"
    if not isinstance(value, str) or value not in words:
        remedy = hints.of_value(str(path[-1]), value) or choices(str(value), words)
    return Finding(Code.NOT_ALLOWED, path, f"{_shown(value)} is not allowed", remedy)


def only_invalid_items(detail: ErrorDetails) -> bool:
    """Tell whether a list seems too short only because pydantic left out its wrong entries."""
    entries = detail["input"]
    least = detail.get("ctx", {}).get("min_length", 0)
    return detail["type"] == "too_short" and isinstance(entries, list) and len(entries) >= least


def _shown(value: object) -> str:
    """Write a value briefly, without the password of an address."""
    text = _PASSWORD.sub("…@", _YAML_WORDS.get(repr(value), repr(value)))
    limit = 60
    return text if len(text) <= limit else text[: limit - 3] + "..."
