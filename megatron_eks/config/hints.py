"""What to write instead of a key or value that is refused, where no table of words can say it."""

import re
from collections.abc import Collection, Iterable, Iterator

from megatron_eks.catalog.bridge_recipes import RECIPES
from megatron_eks.catalog.tables import entries
from megatron_eks.config import aliases
from megatron_eks.config.errors import Path
from megatron_eks.config.model import (
    ABSOLUTE_PATH,
    DNS_LABEL,
    PATTERNS,
    RECIPE,
    REGION,
    REPOSITORY_PREFIX,
    RESERVATION,
    RESERVATION_OR_GROUP,
    TABLE,
    ZONE,
)
from megatron_eks.config.scalars import as_text, odd_sign

Keys = dict[str, bool]
"""The keys of the block that belongs at a place, and whether each is required."""

_NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")
_GROUPED = re.compile(r"[0-9]{1,3}([,_' ][0-9]{3})+|[0-9]+(_[0-9]+)+")
_COUNTED = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmbt])", re.IGNORECASE)
_THOUSANDS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_UNITS = {"days": "days", "gib": "GiB", "minutes": "minutes"}
_SWITCHES = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
# What a repository of Hugging Face may hold, and how its name is written.
_FETCHED = frozenset({"pretrained", "source", "tokenizer"})
_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_INSTANCE_TYPE = re.compile(r"[a-z0-9-]+\.(metal|[0-9]*x?large)")


def of_key(key: str, known: Iterable[str]) -> str | None:
    """Say what to do about a key that is a known one but for a blank that is missing."""
    names = set(known)
    name, colon, rest = key.partition(":")
    if colon and name in names and not rest.strip(":"):
        return f"write {name}: with one colon"
    if colon and name in names:
        return of_no_value(key)
    if key.startswith("-") and key[1:] in names:
        return f"write a blank after the dash: - {key[1:]}:"
    return odd_sign(key)


def of_no_value(key: str) -> str | None:
    """Say what to do about a key that has no value, and holds one itself: `{type:spot}`."""
    name, colon, rest = key.partition(":")
    if colon and name and rest:
        return f"write a blank after the colon: {name}: {rest}"
    return None


def of_place(text: str, key: str) -> str | None:
    """Say what to do where the path of a folder is read, and another way to name it stands."""
    if text.startswith("s3://"):
        return (
            "use a path below storage.lustre.mount_path, such as /shared: a fetch job or "
            "storage.lustre.data_repositories brings objects there, checkpoint.s3_uri copies "
            "checkpoints away"
        )
    if "*" in text:
        several = ", and several corpora under blend" if key == "prefix" else ""
        return f"name one place{several}: no pattern is filled in here"
    if key == "prefix" and text.endswith("/"):
        return f"that is a folder: write {text.rstrip('/')}/NAME_text_document"
    if key in _FETCHED and _HUB.fullmatch(text):
        return "use the absolute path of a folder: a fetch job brings it there from Hugging Face"
    return None


def of_word(kind: str, text: str, key: str) -> str | None:
    """Say what a text was meant to be where a switch or a number belongs, by pydantic's kind."""
    if kind == "bool_type" and (meant := _SWITCHES.get(text.lower())):
        return f"write {meant}: {text!r} is a text in YAML 1.2"
    return _number(text, key) if kind in {"int_type", "float_type"} else None


def _number(text: str, key: str) -> str | None:
    """Say what to do about a number that more stands beside than its digits."""
    last = key.rpartition("_")[2]
    if _NUMBER.fullmatch(text):
        return None
    if "#" in text:
        return "write a blank before the #: only after one it starts a comment"
    if _GROUPED.fullmatch(text):
        return f"write {re.sub('[^0-9]', '', text)}, without separators"
    if (found := _COUNTED.fullmatch(text)) and last not in {*_UNITS, "bytes"}:
        return f"write {round(float(found[1]) * _THOUSANDS[found[2].lower()])}, in digits"
    return f"write the number alone, in {_UNITS[last]}" if last in _UNITS else "write a number"


def unit_of(key: str) -> str:
    """Return the unit in which a key counts, with a blank before it, if its name says one."""
    unit = _UNITS.get(key.rpartition("_")[2])
    return f" {unit}" if unit else ""


_NAMED = [
    (PATTERNS[name], *said.split(" | "))
    for names, said in entries(TABLE["other_names"])
    for name in names.split()
]
"""By the pattern of a key: what names the thing in another way, and what to write."""

# Only names that are made here may change: a bucket or branch of that name exists elsewhere.
_MADE_HERE = frozenset({DNS_LABEL, REPOSITORY_PREFIX})
_LOWERCASE = _MADE_HERE | {REGION, RESERVATION, RESERVATION_OR_GROUP, ZONE}


def of_format(text: str, pattern: str, key: str) -> str | None:
    """Say what to write in place of a text that is another name of what is meant."""
    if pattern == ABSOLUTE_PATH and (place := of_place(text, key)):
        return place
    if key == "pool" and _INSTANCE_TYPE.fullmatch(text):
        return "use the name of a pool of the cluster file, gpu_pools[].name, and not its type"
    for of, form, remedy in _NAMED:
        if of == pattern and (found := re.fullmatch(form, text)):
            return remedy.format(found[found.lastindex or 0])
    written = (each for each in _otherwise(text, pattern) if re.search(pattern, each))
    remedies = (f"write {each}" for each in written if pattern != RECIPE or each in RECIPES)
    nothing = "leave it out, or write null" if text.lower() in {"none", "nil", "null"} else None
    return next(remedies, None) or nothing


def _otherwise(text: str, pattern: str) -> Iterator[str]:
    """Yield other ways to write a text: without what a slip has put around it, or of its parts."""
    yield text.strip(" ,;'\"").rstrip("/")
    if pattern in _LOWERCASE:
        yield text.strip().lower()
    if pattern in _MADE_HERE:
        plain = re.sub("[_ ]+", "-", text.strip("-_ ").lower())
        yield from (plain, f"{plain}-")
    if pattern == RECIPE:
        yield text.lower().replace(".", "").replace("-", "_").removesuffix("()")
    if text.startswith("arn:aws:s3:::"):
        yield text.replace("arn:aws:s3:::", "s3://")
    if text.startswith("arn:"):
        yield re.split("[:/]", text)[-1]
    # `mount -t lustre HOST@tcp:/NAME`, as the console of FSx shows it.
    host, _, name = text.partition("@tcp:/")
    yield from (host, name) if name else ()
    yield text.lstrip("/")
    yield text[:-1] if re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9][a-z]", text) else ""


SEVERAL_RESERVATIONS = (
    "several reservations or Capacity Blocks behind one pool are not supported yet",
    "use a pool for each; of reservations, the ARN of a resource group that holds them",
)


def not_yet(text: str, pattern: str) -> tuple[str, str] | None:
    """Say of what AWS has, and this project does not, that it is so, and what to use instead."""
    if pattern == ZONE and re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9]-[a-z]{3}-[0-9][a-z]", text):
        # EKS User Guide, "Launch low-latency EKS clusters with AWS Local Zones", read 2026-11.
        remedy = "use a zone of the region: EKS takes managed node groups there, but no subnet of "
        remedy += "the control plane, and this project's file system stands beside the nodes"
        return "a Local Zone is not supported yet", remedy
    if pattern == RESERVATION and re.match(r"arn:aws[a-z-]*:resource-groups:", text):
        remedy = "use the id of one, cr-...; a group goes with type: reservation"
        return "a resource group of Capacity Blocks is not supported yet", remedy
    return None


# What each kind of capacity and source is called below its `type`.
_TYPES = frozenset({"asset", "capacity_block", "github", "on_demand", "reservation", "spot"})
# Keys whose text would be a command line: a blank ends a word.
_WORDS = frozenset({"args", "command", "extra_args"})
_FEW = 6


def of_missing_type(value: object) -> str | None:
    """Say where a kind belongs that stands as the key itself: {reservation: cr-...}."""
    kinds = [key for key in value if key in _TYPES] if isinstance(value, dict) else []
    return f"write type: {kinds[0]}, and its other keys beside it" if kinds else None


def of_name_as_key(key: str, block: object, known: Collection[str]) -> str | None:
    """Say where a name belongs that stands as a key of its own: `- p4d:`."""
    if "name" not in known or not isinstance(block, dict) or "name" in block:
        return None
    return f"write name: {key}" if block.get(key, key) is None else None


def of_shape(kind: str, value: object, path: Path, keys: Keys) -> str | None:
    """Say what to write where a value of another shape stands, by the kind of pydantic's error."""
    name = path[-1] if path else ""
    if name in {"capacity", "source"} and isinstance(value, str):
        kind_of = (aliases.of_value("type", value) or value).removeprefix("write ")
        of_id = f"reservation, id: {value}" if re.search(RESERVATION, value) else kind_of
        return f"write {name}: {{type: {of_id}}}"
    if kind.startswith("model_"):
        return _block(value, name, keys)
    if kind == "bool_type" and isinstance(value, dict) and isinstance(value.get("enabled"), bool):
        return f"write {name}: {str(value['enabled']).lower()}"
    if kind == "dict_type":
        return _pairs(value)
    if kind == "tuple_type":
        return _entries(value, name, keys)
    return _text(value, path) if kind == "string_type" else None


def _block(value: object, name: str | int, keys: Keys) -> str | None:
    """Name the keys of a block; of a list with one entry it is the dash that is too much."""
    if isinstance(value, list):
        dash = "remove the dash" if len(value) == 1 else "write one block, without dashes"
        return f"{dash}: {name} is no list"
    if any(keys.values()):
        return f"write {'-' if isinstance(name, int) else f'{name}:'} {_example(keys)}"
    rest = ", ..." if len(keys) > _FEW else ""
    shown = f"; keys are {', '.join(list(keys)[:_FEW])}{rest}" if keys else ""
    return f"write `key: value` lines below it{shown}"


def _example(keys: Keys) -> str:
    return f"{{{', '.join(f'{key}: ...' for key, required in keys.items() if required)}}}"


def _pairs(value: object) -> str | None:
    """Write names and values, in a text or a list, as YAML does; a value may be a secret."""
    entries = value.split(",") if isinstance(value, str) else value
    first = entries[0] if isinstance(entries, list) and entries else None
    if isinstance(first, dict) and "value" in map(str.lower, first):  # a pod's env, AWS's tags
        names = [each for key, each in first.items() if key.lower() in {"name", "key"}]
        return f"write NAME: value lines below it, without dashes: {[*names, 'NAME'][0]}: ..."
    if isinstance(first, str) and (found := re.match(r"\s*-{0,2}([\w./-]+)=", first)):
        return f"write {found[1]}: and its value in a line of its own, without ="
    return "remove the dashes: write `key: value` lines below it" if first else None


def _entries(value: object, name: str | int, keys: Keys) -> str | None:
    """Write what stands alone, or below names, as the entries of a list."""
    if isinstance(value, dict) and value:
        first = next(iter(value))
        if first[:1] == "-":
            return f"write a blank after each dash: - {first[1:]}:"
        named = "name: ..." if "name" in keys else "..."
        return f"begin each entry with a dash: - {f'{first}: ...' if first in keys else named}"
    if keys:
        return f"write a list, with - {_example(keys)} for each entry"
    if not isinstance(value, str):
        return None
    words = [as_text(word) for word in value.split()]
    parts = words if name in _WORDS else [each.strip() for each in re.split("[,;]", value)]
    listed = ", ".join(filter(None, parts))
    return f"write a list: [{listed}]" if value.strip(" ,;") else None


def _text(value: object, path: Path) -> str | None:
    """Say which part of a mapping or list is the text that belongs here."""
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
    return f"write {inner} alone, without {key}:" if isinstance(inner, str) else None
