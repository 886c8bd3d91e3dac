"""Takes out of templates what changes without meaning, and nothing else."""

import re
from collections.abc import Mapping

_HASH = re.compile(r"\b[0-9a-f]{64}\b|\b[0-9a-f]{20}\b")


def template(body: Mapping[str, object], hashes: dict[str, str]) -> dict[str, object]:
    """Drop bootstrap noise and name content hashes in order of appearance.

    Logical ids stay: a changed one is a replacement, which is what a reviewer must see.
    """
    kept = {key: value for key, value in body.items() if key not in {"Rules", "Parameters"}}
    named = _named(kept, hashes)
    assert isinstance(named, dict)
    return named


def text(body: str, hashes: dict[str, str]) -> str:
    """Name content hashes in a text."""
    return _HASH.sub(lambda found: hashes.setdefault(found[0], f"<hash-{len(hashes) + 1}>"), body)


def _named(value: object, hashes: dict[str, str]) -> object:
    if isinstance(value, dict):
        return {key: _named(item, hashes) for key, item in value.items() if key != "Metadata"}
    if isinstance(value, list):
        return [_named(item, hashes) for item in value]
    return text(value, hashes) if isinstance(value, str) else value
