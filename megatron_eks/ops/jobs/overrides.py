"""Values on the command line in the place of those in a job file, checked the same way."""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Path, dotted
from megatron_eks.config.load import Document, Json, Place, read_documents
from megatron_eks.ops.failure import USAGE, Failure

_PART = re.compile(r"([^.\[\]]+)((?:\[[0-9]{1,6}\])*)")
_INDEX = re.compile(r"\[([0-9]+)\]")

Overrides = Mapping[Path, Json]


def parse(options: Sequence[str]) -> dict[Path, Json]:
    """Read `training.train_iters=20` and the like; a value is what YAML makes of it."""
    found: dict[Path, Json] = {}
    for option in options:
        name, equals, text = option.partition("=")
        documents = read_documents(text, "--set") if text else []
        if not equals or any(each.findings for each in documents) or len(documents) > 1:
            raise _wrong(option, "not PATH=VALUE", "write for example training.train_iters=20")
        found[_path(option, name)] = documents[0].value if documents else None
    return found


def applied(document: Document, overrides: Overrides) -> Document:
    """Return a job file's content with other values in it, which are at no line of it."""
    if document.findings or not overrides:
        return document
    changed = replace(document, value=deepcopy(document.value), places=dict(document.places))
    for path, value in overrides.items():
        _put(changed, path, value)
    return changed


def _path(option: str, name: str) -> Path:
    parts: list[str | int] = []
    for part in name.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            remedy = "write for example data.blend[0].weight=0.7"
            raise _wrong(option, f"{name!r} is not a path", remedy)
        parts += [match[1], *(int(each) for each in _INDEX.findall(match[2]))]
    return tuple(parts)


def _put(document: Document, path: Path, value: Json) -> None:
    here: Json = document.value
    for depth, part in enumerate(path):
        is_last = depth == len(path) - 1
        if isinstance(here, dict) and isinstance(part, str):
            if is_last:
                here[part] = value
            elif not isinstance(here.get(part), dict | list):
                if here.get(part) is not None:
                    at = dotted(path[: depth + 1])
                    raise _wrong(dotted(path), f"{at} is no mapping", f"set {at} as a whole")
                here[part] = {}
            here = here[part]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            if is_last:
                here[part] = value
            here = here[part]
        else:
            at = dotted(path[:depth])
            raise _wrong(dotted(path), f"nothing to set in {at}", f"set {at} as a whole")
    document.places = {
        place: at for place, at in document.places.items() if place[: len(path)] != path
    }
    document.places[path] = Place(0)


def _wrong(option: str, found: str, remedy: str) -> Failure:
    return Failure(Code.BAD_SET_OPTION, found, remedy, where=f"--set {option}", exit_code=USAGE)
