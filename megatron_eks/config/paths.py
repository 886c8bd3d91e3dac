"""Paths and S3 URIs that lead elsewhere than they seem to, wherever they stand in a file."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json

# Texts of the user's own, which need not be paths; folders among the variables are judged by name.
_FREE = frozenset({"build_args", "env", "labels", "tags"})

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
