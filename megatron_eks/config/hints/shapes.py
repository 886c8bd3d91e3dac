"""What to write where a value of another shape stands: a text for a block, a list for a mapping."""

import re
from collections.abc import Callable, Collection, Sequence

from megatron_eks.config import aliases
from megatron_eks.config.errors import Path
from megatron_eks.config.hints import slips
from megatron_eks.config.model import RESERVATION
from megatron_eks.config.scalars import as_text

Keys = dict[str, bool]
"""The keys of the block that belongs at a place, and whether each is required."""

# What each kind of capacity and source is called below its `type`.
_TYPES = frozenset({"asset", "capacity_block", "github", "on_demand", "reservation", "spot"})
_TAGGED = frozenset({"capacity", "source"})
"""Keys whose kind is named by a `type` below them."""

_IMAGE = (
    "write build_args: {BASE_IMAGE: ...} below it for another base; a job names an image of its "
    "own in its key image"
)
_PAIRS = {
    "instance_hour": "write TYPE: USD lines below it, such as p4d.24xlarge: 21.96",
    "private_subnets": "write ZONE: subnet-... lines below it",
}
_WORDS = frozenset({"args", "command", "extra_args"})
"""Keys whose text would be a command line: a blank ends a word."""
_FEW = 6


def of_shape(kind: str, value: object, path: Path, keys: Keys) -> str | None:
    """Say what to write, by the kind of pydantic's error; None where its own words suffice."""
    if path and path[-1] in _TAGGED and isinstance(value, str):
        return _kind(value, str(path[-1]))
    find = _FINDERS.get(kind)
    return find(value, path, keys) if find else None


def of_missing_type(value: object) -> str | None:
    """Say where a kind belongs that stands as the key itself: {reservation: cr-...}."""
    kinds = [key for key in value if key in _TYPES] if isinstance(value, dict) else []
    return f"write type: {kinds[0]}, and its other keys beside it" if kinds else None


def of_name_as_key(key: str, block: object, known: Collection[str]) -> str | None:
    """Say where a name belongs that stands as a key of its own: `- p4d:`."""
    if "name" not in known or not isinstance(block, dict) or "name" in block:
        return None
    return f"write name: {key}" if block.get(key, key) is None else None


def _kind(text: str, name: str) -> str:
    """Write a kind, or the id of a reservation, as the block that it means."""
    if re.search(RESERVATION, text):
        other = "or type capacity_block with its ends_at"
        return f"write {name}: {{type: reservation, id: {text}}}, {other}"
    meant = aliases.of_value("type", text)
    return f"write {name}: {{type: {meant.removeprefix('write ') if meant else text}}}"


def _block(value: object, path: Path, keys: Keys) -> str | None:
    """Name the keys of a block; of a list with one entry it is the dash that is too much."""
    name = path[-1] if path else ""
    if isinstance(value, list):
        dash = "remove the dash" if len(value) == 1 else "write one block, without dashes"
        return f"{dash}: {name} is no list"
    if "build_args" in keys:
        return _IMAGE
    if isinstance(name, int):
        return f"write - {_example(keys)} for each entry" if any(keys.values()) else None
    if any(keys.values()):
        return f"write {name}: {_example(keys)}"
    rest = ", ..." if len(keys) > _FEW else ""
    shown = f"; keys are {', '.join(list(keys)[:_FEW])}{rest}" if keys else ""
    return f"write `key: value` lines below it{shown}"


def _example(keys: Keys) -> str:
    return f"{{{', '.join(f'{key}: ...' for key, required in keys.items() if required)}}}"


def _pairs(value: object, path: Path, _keys: Keys) -> str | None:
    """Write `name=value`, in a text or a list, as YAML does; the value may be a secret."""
    name = str(path[-1])
    if name in _PAIRS:
        return _PAIRS[name]
    if named := slips.of_pairs(value):
        return named
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, list) or not entries:
        return None
    first = entries[0]
    if isinstance(first, str) and (found := re.match(r"\s*-{0,2}([\w./-]+)=", first)):
        return f"write {found[1]}: and its value in a line of its own, without ="
    if isinstance(first, dict) and len(first) == 1 and all(isinstance(x, dict) for x in entries):
        return "remove the dashes: write `key: value` lines below it"
    return None


def _entries(value: object, path: Path, keys: Keys) -> str | None:
    """Write what stands alone, or below names, as the entries of a list."""
    if isinstance(value, dict) and value:
        return _entries_of_mapping(value, keys)
    if keys:
        return f"write a list, with - {_example(keys)} for each entry"
    if not isinstance(value, str):
        return None
    if path and path[-1] in _WORDS:
        return (
            f"write {_list([as_text(word) for word in value.split()])}" if value.split() else None
        )
    parts = [part.strip() for part in re.split("[,;]", value) if part.strip()]
    return f"write {_list(parts)}" if parts else None


def _entries_of_mapping(value: dict[str, object], keys: Keys) -> str | None:
    first = next(iter(value))
    if first[:1] == "-":
        return f"write a blank after each dash: - {first[1:]}:"
    if first in keys:
        return f"begin each entry with a dash: - {first}: ..."
    if keys and all(isinstance(each, dict) for each in value.values()):
        named = f"- name: {first}" if "name" in keys else "- "
        return f"write a list, each entry with a dash: {named}"
    if keys:
        return None
    texts = [each for each in value.values() if isinstance(each, str)]
    return f"write {_list(texts if len(texts) == len(value) else list(value))}"


def _text(value: object, path: Path, _keys: Keys) -> str | None:
    """Say what makes a mapping of a text, or which part of a mapping or list is the text."""
    if isinstance(value, list) and value:
        several = "write one of them"
        if path == ("data", "prefix"):
            several = "use blend: [{weight: 1, prefix: ...}, ...] for several corpora"
        return several if value[1:] else f"write {value[0]}, without brackets"
    if not isinstance(value, dict) or not value:
        return None
    key, inner = next(iter(value.items()))
    if key == "Ref" or key.startswith("Fn::"):
        return "write the value itself: nothing resolves CloudFormation's functions in this file"
    if len(value) > 1 or not isinstance(inner, str):
        return None
    if ":" in key:
        return (
            "remove the blank after the colon, or put all in quotes: it makes a mapping of a text"
        )
    return f"write {inner} alone, without {key}:"


def _switch(value: object, path: Path, _keys: Keys) -> str | None:
    """Write true for a block that would be switched on."""
    on = value.get("enabled") if isinstance(value, dict) else None
    return f"write {path[-1]}: {str(on).lower()}" if isinstance(on, bool) else None


def _list(parts: Sequence[str]) -> str:
    return f"a list: [{', '.join(parts)}]"


_FINDERS: dict[str, Callable[[object, Path, Keys], str | None]] = {
    "model_type": _block,
    "model_attributes_type": _block,
    "bool_type": _switch,
    "dict_type": _pairs,
    "tuple_type": _entries,
    "string_type": _text,
}
