"""What to write instead of a key or value that is refused, where no table of words can say it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path as File

import yaml

from megatron_eks.catalog.bridge_recipes import RECIPES
from megatron_eks.catalog.tables import entries
from megatron_eks.config.errors import Path
from megatron_eks.config.forms import PATTERNS, TABLE
from megatron_eks.config.scalars import as_text

Keys = dict[str, bool]
"""The keys of the block that belongs at a place, and whether each is required."""

_NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")
_UNITS = {"days": " days", "gib": " GiB", "minutes": " minutes"}
_SWITCHES = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
# What a repository of Hugging Face may hold, and how its name is written.
_FETCHED = frozenset({"pretrained", "source", "tokenizer"})
_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_INSTANCE_TYPE = re.compile(r"[a-z0-9-]+\.(metal|[0-9]*x?large)")

# POSIX, "Environment Variables": uppercase letters, digits and '_'.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
# A type of EC2, such as p6-b200.48xlarge.
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")

_FORM = {pattern: name for name, pattern in PATTERNS.items()}
_NAMED = [
    (name, *said.split(" | "))
    for names, said in entries(TABLE["other_names"])
    for name in names.split()
]
"""By the form of a key's text: what names the thing in another way, and what to write."""

# Only names that are made here may change: a bucket or branch of that name exists elsewhere.
_MADE_HERE = frozenset({"dns_label", "repository_prefix"})
_LOWERCASE = _MADE_HERE | {"region", "reservation", "reservation_or_group", "zone"}
SEVERAL_RESERVATIONS = (
    "several reservations or Capacity Blocks behind one pool are not supported yet",
    "use a pool for each; of reservations, the ARN of a resource group that holds them",
)

# Keys whose text would be a command line: a blank ends a word.
_WORDS = frozenset({"args", "command", "extra_args"})
_FEW = 6


@cache
def _tables(of: str) -> Mapping[str, Mapping[str, str]]:
    """Return the remedy of each word of `keys`, by a key of their block, or of `values`."""
    text = File(__file__).with_name("aliases.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = {}
    for name, table in yaml.safe_load(text)[of].items():
        words = ((each, remedy) for remedy, listed in table.items() for each in str(listed).split())
        found[name] = {_plain(word): remedy for word, remedy in words}
    return found


def _plain(word: object) -> str:
    return re.sub(r"[-_ .]", "", str(word)).lower()


def of_value(key: str, value: object) -> str | None:
    """Say which of a key's values is meant by a word or number that others have for it."""
    return _tables("values").get(key, {}).get(_plain(value))


def of_option(option: str) -> str | None:
    """Say what stands in a job file for an option that Megatron does not have."""
    return _tables("options")["extra_args"].get(_plain(option))


def of_other_tool(key: str, known: Iterable[str]) -> str | None:
    """Say what stands here for a key that another tool has, whatever its spelling."""
    if _VARIABLE.fullmatch(key) and not {"env", "runtime"}.isdisjoint(known):
        block = "env" if "env" in known else "runtime.env"
        return f"use {block}: {key} is a variable of the environment"
    if _TYPE.fullmatch(key) and "instance_hour" in known:
        return f"use instance_hour: {{{key}: ...}}"
    plain = _plain(key)
    tables = (table for name, table in _tables("keys").items() if name in known)
    return next((table[plain] for table in tables if plain in table), None)


def of_no_value(key: str) -> str | None:
    """Say what to do about a key that has no value, and holds one itself: `{type:spot}`."""
    name, _, rest = key.partition(":")
    return f"write a blank after the colon: {name}: {rest}" if name and rest else None


def of_place(text: str, key: str) -> str | None:
    """Say what to do where the path of a folder is read, and another way to name it stands."""
    if text.startswith("s3://"):
        remedy = "use a path below storage.lustre.mount_path, such as /shared: a fetch job or "
        remedy += "storage.lustre.data_repositories brings objects there, checkpoint.s3_uri copies "
        return remedy + "checkpoints away"
    if key == "prefix" and text.endswith("/"):
        return f"that is a folder: write {text.rstrip('/')}/NAME_text_document"
    if key in _FETCHED and _HUB.fullmatch(text):
        return "use the absolute path of a folder: a fetch job brings it there from Hugging Face"
    return None


def of_word(kind: str, text: str, key: str) -> str | None:
    """Say what a text was meant to be where a switch or a number belongs, by pydantic's kind."""
    if kind == "bool_type" and (meant := _SWITCHES.get(text.lower())):
        return f"write {meant}: {text!r} is a text in YAML 1.2"
    if kind not in {"int_type", "float_type"} or _NUMBER.fullmatch(text):
        return None
    if "#" in text:
        return "write a blank before the #: only after one it starts a comment"
    unit = unit_of(key)
    return f"write the number alone, in{unit}" if unit else "write a number, in digits alone"


def unit_of(key: str) -> str:
    """Return the unit in which a key counts, with a blank before it, if its name says one."""
    return _UNITS.get(key.rpartition("_")[2], "")


def of_format(text: str, pattern: str, key: str) -> str | None:
    """Say what to write in place of a text that is another name of what is meant."""
    form = _FORM[pattern]
    if form == "absolute_path" and (place := of_place(text, key)):
        return place
    if key == "pool" and _INSTANCE_TYPE.fullmatch(text):
        return "use the name of a pool of the cluster file, gpu_pools[].name, and not its type"
    for of, other, remedy in _NAMED:
        if of == form and (found := re.fullmatch(other, text)):
            return remedy.format(found[found.lastindex or 0])
    written = (each for each in _otherwise(text, form) if re.search(pattern, each))
    remedies = (f"write {each}" for each in written if form != "recipe" or each in RECIPES)
    nothing = "leave it out, or write null" if text.lower() in {"none", "nil", "null"} else None
    return next(remedies, None) or nothing


def _otherwise(text: str, form: str) -> Iterator[str]:
    """Yield other ways to write a text: without what a slip has put around it, or of its parts."""
    yield text.strip(" ,;'\"").rstrip("/")
    if form in _LOWERCASE:
        yield text.strip().lower()
    if form in _MADE_HERE:
        plain = re.sub("[_ ]+", "-", text.strip("-_ ").lower())
        yield from (plain, f"{plain}-")
    if form == "recipe":
        yield text.lower().replace(".", "").replace("-", "_").removesuffix("()")
    yield text.replace("arn:aws:s3:::", "s3://")
    if text.startswith("arn:"):
        yield re.split("[:/]", text)[-1]
    # `mount -t lustre HOST@tcp:/NAME`, as the console of FSx shows it.
    yield from text.split("@tcp:/")
    yield text.lstrip("/")
    yield text[:-1] if re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9][a-z]", text) else ""


def not_yet(text: str, pattern: str) -> tuple[str, str] | None:
    """Say of what AWS has, and this project does not, that it is so, and what to use instead."""
    form = _FORM[pattern]
    if form == "zone" and re.fullmatch(r"[a-z]{2}(-[a-z]+)+-[0-9]-[a-z]{3}-[0-9][a-z]", text):
        # EKS User Guide, "Launch low-latency EKS clusters with AWS Local Zones", read 2026-11.
        remedy = "use a zone of the region: EKS takes managed node groups there, but no subnet of "
        remedy += "the control plane, and this project's file system stands beside the nodes"
        return "a Local Zone is not supported yet", remedy
    if form == "reservation" and re.match(r"arn:aws[a-z-]*:resource-groups:", text):
        remedy = "use the id of one, cr-...; a group goes with type: reservation"
        return "a resource group of Capacity Blocks is not supported yet", remedy
    return None


def of_shape(kind: str, value: object, path: Path, keys: Keys) -> str | None:
    """Say what to write where a value of another shape stands, by the kind of pydantic's error."""
    name = path[-1] if path else ""
    if name in {"capacity", "source"} and isinstance(value, str):
        kind_of = (of_value("type", value) or value).removeprefix("write ")
        known = re.search(PATTERNS["reservation"], value)
        of_id = f"reservation, id: {value}" if known else kind_of
        return f"write {name}: {{type: {of_id}}}"
    if kind.startswith("model_"):
        return _block(name, keys)
    if kind == "tuple_type":
        return _list(value, name, keys)
    return _text(value, path) if kind == "string_type" and isinstance(value, list) else None


def _block(name: str | int, keys: Keys) -> str | None:
    if any(keys.values()):
        return f"write {'-' if isinstance(name, int) else f'{name}:'} {_example(keys)}"
    rest = ", ..." if len(keys) > _FEW else ""
    shown = f"; keys are {', '.join(list(keys)[:_FEW])}{rest}" if keys else ""
    return f"write `key: value` lines below it{shown}"


def _example(keys: Keys) -> str:
    return f"{{{', '.join(f'{key}: ...' for key, required in keys.items() if required)}}}"


def _list(value: object, name: str | int, keys: Keys) -> str | None:
    if keys:
        return f"write a list, with - {_example(keys)} for each entry"
    if not isinstance(value, str) or not value.strip(" ,;"):
        return None
    words = [as_text(word) for word in value.split()]
    parts = words if name in _WORDS else [each.strip() for each in re.split("[,;]", value)]
    return f"write a list: [{', '.join(filter(None, parts))}]"


def _text(value: list[object], path: Path) -> str | None:
    if path == ("data", "prefix"):
        return "use blend: [{weight: 1, prefix: ...}, ...] for several corpora"
    return "write one of them" if value[1:] or not value else f"write {value[0]}, without brackets"
