"""What is said of a file before its keys: it is another one, or holds a token or an odd path."""

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from megatron_eks.catalog.tables import entries
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import TOKEN, Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.config.model import TABLE

_FOREIGN = dict(entries(TABLE["foreign"]))

_OF_SERVICES = {service: said.split(" | ") for service, said in entries(TABLE["tokens"])}

_CLUSTER_KEYS = frozenset(ClusterConfig.model_fields)
_RECOGNIZED = 3
"""So many keys of a cluster file are no accident."""


Kind = Literal["cluster", "job"]


def another_file(value: Mapping[str, Json], expected: Kind) -> Finding | None:
    """Name a file that another program reads, or that is the other one here, as a whole."""
    for key, program in _FOREIGN.items():
        if key in value:
            found = f"{key!r} is a key of {program}, and of no file of this project"
            remedy = "write the keys of docs/configuration.md; `meks check` reads the other file"
            return Finding(Code.UNKNOWN_KEY, (key,), found, remedy)
    if expected == "cluster" and (above := wrapping_key(value)):
        found = f"the keys of a cluster file stand below {above!r}, and belong to the top"
        remedy = f"remove the line {above}:, and the indentation of what stands below it"
        return Finding(Code.UNKNOWN_KEY, (above,), found, remedy)
    if expected == "job" and "kind" not in value and {"gpu_pools", "access"} <= value.keys():
        remedy = "move it out of jobs/, and name it by CLUSTER_CONFIG or --cluster"
        found = "a cluster file, and no job file: it has no kind"
        return Finding(Code.MISSING_KEY, ("kind",), found, remedy)
    return None


def wrapping_key(value: Mapping[str, Json]) -> str | None:
    """Return the one key below which a whole cluster file stands, as other tools have it."""
    for key, inner in value.items():
        inside = isinstance(inner, dict) and len(_CLUSTER_KEYS & inner.keys()) >= _RECOGNIZED
        if inside and key not in _CLUSTER_KEYS and not _CLUSTER_KEYS & value.keys():
            return key
    return None


def tokens(value: Json, path: Path = ()) -> Iterator[Finding]:
    """Yield where a token itself stands, instead of the name of the Secret that holds it."""
    key = str(path[-1]) if path else ""
    if token := TOKEN.search(key) or (isinstance(value, str) and TOKEN.search(value)):
        service = str(token.lastgroup)
        whose, remedy = _OF_SERVICES[service]
        found = f"{whose} stands in this file: {token[service]}…"
        yield Finding(Code.TOKEN_IN_FILE, path, found, remedy)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from tokens(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from tokens(item, (*path, index))


# Texts of the user's own, which need not be paths; folders among the variables are judged by name.
_FREE = frozenset({"args", "build_args", "command", "env", "labels", "tags"})

_ROOTS = ("/", "s3://")
# Also behind the sign of an option, and in a list of paths.
_UPWARDS = re.compile(r"(?<![^\s/=:,])\.\.(?![^\s/:,])")
_LONGEST = 57
_REMEDY = "write the path that is meant, without '.', '..' and '//'"


def odd_paths(value: Json, path: Path = ()) -> Iterator[Finding]:
    """Yield texts with a part that no path needs: '..', '.', nothing, or an unseen character."""
    if isinstance(value, str):
        if odd := odd_part(value):
            shown = ascii(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}...")
            yield Finding(Code.BAD_FORMAT, path, f"{shown} has {odd[0]}", odd[1])
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in _FREE:
                yield from odd_paths(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from odd_paths(item, (*path, index))


def odd_part(text: str) -> tuple[str, str] | None:
    """Return what is odd in a path and what to do, or None."""
    if _UPWARDS.search(text):
        return "a part '..', which leads out of its folder", _REMEDY
    root = next((each for each in _ROOTS if text.startswith(each)), None)
    if root is None:
        return None
    if not text.isprintable():
        return "a character that is not seen", "type it anew, in letters, digits and -_./"
    parts = text.removeprefix(root).split("/")
    # A slash at the end stands for what is in a folder.
    if "." in parts or "" in parts[:-1]:
        return "a part that is '.' or empty", _REMEDY
    return None
