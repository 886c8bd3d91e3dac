"""Slips of the pen that a reader of YAML takes for something else, and what was meant."""

import re
import unicodedata
from collections.abc import Iterable

_QUOTES = frozenset("\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb")
PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\{\{.*\}\}|\$[A-Z][A-Z0-9_]+|<[A-Za-z][A-Za-z0-9 _-]*>")
"""A place of a template that nobody filled in."""

_NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")
_GROUPED = re.compile(r"[0-9]{1,3}([,_' ][0-9]{3})+|[0-9]+(_[0-9]+)+")
_WITH_COMMA = re.compile(r"([0-9]+),([0-9]+(?:[eE][-+]?[0-9]+)?)")
_COUNTED = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmbt])", re.IGNORECASE)
_BYTES = re.compile(r"([0-9]+) ?([kmg])(i?b)?", re.IGNORECASE)
_WITH_UNIT = re.compile(r"[$€]? ?[0-9][0-9.,]*([eE][-+]?[0-9]+)? ?[A-Za-z/%$€]*")
# What a repository of Hugging Face may hold, and how its name is written.
_FETCHED = frozenset({"pretrained", "source", "tokenizer"})
_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_INSTANCE_TYPE = re.compile(r"[a-z0-9-]+\.(metal|[0-9]*x?large)")
_THOUSANDS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
# As nccl-tests reads 16G.
_POWERS = {"k": 2**10, "m": 2**20, "g": 2**30}
_UNITS = {"days": "days", "gib": "GiB", "minutes": "minutes"}
_WORDS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


def of_text(text: str) -> str | None:
    """Say what to do about a sign that looks like another one, or a place that nobody filled in."""
    for sign in text:
        kind = unicodedata.category(sign)
        code = f"U+{ord(sign):04X}"
        if sign in _QUOTES:
            return f"write straight quotes, ' or \", in place of {sign} ({code})"
        if kind == "Cf":
            return f"remove the sign {code}, which nobody sees"
        if kind == "Zs" and sign != " ":
            return f"write plain spaces in place of the no-break ones ({code})"
        if kind == "Pd" and sign != "-":
            return f"write - in place of {sign} ({code})"
    left = PLACEHOLDER.search(text)
    return f"write the value in place of {left.group()}: nothing fills it in" if left else None


def of_key(key: str, known: Iterable[str]) -> str | None:
    """Say what to do about a key that is a known one but for a blank that is missing."""
    names = set(known)
    name, colon, rest = key.partition(":")
    if colon and name in names and not rest.strip(":"):
        return f"write {name}: with one colon"
    if colon and name in names:
        return f"write a blank after the colon: {name}: {rest}"
    if key.startswith("-") and key[1:] in names:
        return f"write a blank after the dash: - {key[1:]}:"
    return of_text(key) or _lookalike(key, names)


def _lookalike(key: str, names: set[str]) -> str | None:
    """Name the letter of another alphabet in what looks like a key."""
    others = [sign for sign in key if not sign.isascii() and sign.isalpha()]
    for name in names if others else ():
        same = len(name) == len(key) and all(
            sign == each or each in others for sign, each in zip(name, key, strict=True)
        )
        if same:
            code = f"U+{ord(others[0]):04X}"
            return f"write {name}: its {others[0]} is a letter of another alphabet ({code})"
    return None


def of_pool(text: str, key: str) -> str | None:
    """Say what to write where an instance type stands for a pool."""
    if key != "pool" or not _INSTANCE_TYPE.fullmatch(text):
        return None
    return "use the name of a pool of the cluster file, gpu_pools[].name, and not its type"


def of_entry(text: str, pattern: str) -> str | None:
    """Say what to do about several entries of a list that no comma divides."""
    deeper = re.split(r"\s+-\s+", text)
    if len(deeper) > 1 and all(re.search(pattern, part) for part in deeper):
        return "indent all dashes of the list alike: a deeper one goes on with the text above"
    parts = re.split(r"[\s,;]+", text)
    if len(parts) > 1 and all(re.search(pattern, part) for part in parts):
        return f"write a comma after each entry: [{', '.join(parts)}]"
    return None


def of_pairs(value: object) -> str | None:
    """Say what to write in place of a list of names and values: a pod's env, AWS's tags."""
    if not isinstance(value, list) or not value:
        return None
    pairs = [each for each in value if isinstance(each, dict) and _is_pair(each)]
    if len(pairs) < len(value):
        return None
    (name,) = (each for key, each in pairs[0].items() if key.lower() != "value")
    return f"write NAME: value lines below it, without dashes: {name}: ..."


def _is_pair(entry: dict[str, object]) -> bool:
    """Recognize a name and its value: `name` and `value`, or AWS's `Key` and `Value` of tags."""
    return {key.lower() for key in entry} in ({"name", "value"}, {"key", "value"})


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


def of_number(text: str, key: str) -> str | None:
    """Say what to do about a number that more stands beside than its digits."""
    if _NUMBER.fullmatch(text):
        return None
    if _NUMBER.fullmatch(text.rstrip(",;")):
        return f"write {text.rstrip(',;')}, without the {text[-1]} at its end"
    if "#" in text:
        return "write a blank before the #: only after one it starts a comment"
    if _GROUPED.fullmatch(text):
        return f"write {re.sub('[^0-9]', '', text)}, without separators"
    if found := _WITH_COMMA.fullmatch(text):
        return f"write {found[1]}.{found[2]}, with a point"
    return _of_unit(text, key) if _WITH_UNIT.fullmatch(text) else "write a number in digits"


def _of_unit(text: str, key: str) -> str:
    last = key.rpartition("_")[2]
    if (found := _COUNTED.fullmatch(text)) and last not in _UNITS and last != "bytes":
        return f"write {round(float(found[1]) * _THOUSANDS[found[2].lower()])}, in digits"
    if (found := _BYTES.fullmatch(text)) and last == "bytes":
        return f"write {int(found[1]) * _POWERS[found[2].lower()]}, in bytes"
    unit = _UNITS.get(last)
    return f"write the number alone, in {unit}" if unit else "write the number alone"


def of_range(key: str, value: object, limit: object) -> str:
    """Say in which unit a number counts that is out of its range, and what seconds would be."""
    unit = _UNITS.get(key.rpartition("_")[2])
    if unit == "minutes" and isinstance(value, int) and isinstance(limit, int):
        minutes, rest = divmod(value, 60)
        if value > limit >= minutes and not rest:
            return f" minutes: {value} seconds are {minutes}"
    return f" {unit}" if unit else ""


def of_nested(name: str, value: object) -> str | None:
    """Say how a block below one name is written where names are dotted."""
    if not isinstance(value, dict) or not value:
        return None
    within = next(iter(value))
    return f"write dotted names: {name}.{within}: ..."


def of_part(key: str) -> str:
    """Say what to write in place of a number with a point, such as one of terabytes."""
    unit = _UNITS.get(key.rpartition("_")[2])
    return f"write a whole number of {unit}" if unit else "write a whole number"


def of_switch(text: str) -> str | None:
    """Say what to do about a word that is a switch in YAML 1.1 only."""
    meant = _WORDS.get(text.lower())
    return f"write {meant}: {text!r} is a text in YAML 1.2" if meant else None


def of_no_value(key: str) -> str | None:
    """Say what to do about a key that has no value, and looks like a value itself."""
    name, colon, rest = key.partition(":")
    if colon and name and rest:
        return f"write a blank after the colon: {name}: {rest}"
    if key.isdecimal():
        return f"write numbers with a point: the comma before {key} ends the entry before it"
    return None
