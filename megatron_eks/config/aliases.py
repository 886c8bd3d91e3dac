"""What stands here for keys and values that other tools have, whatever their spelling."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import yaml

# POSIX, "Environment Variables": uppercase letters, digits and '_'.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
# A type of EC2, such as p6-b200.48xlarge.
_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


@cache
def _tables(of: str) -> Mapping[str, Mapping[str, str]]:
    """Return the remedy of each word of `keys`, by a key of their block, or of `values`."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return {
        name: {
            _plain(word): remedy for remedy, words in table.items() for word in str(words).split()
        }
        for name, table in yaml.safe_load(text)[of].items()
    }


def _plain(word: object) -> str:
    """Return a word without what spellings differ in."""
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
