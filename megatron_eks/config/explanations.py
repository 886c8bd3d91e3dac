"""What each code means: level, what, why, remedy and source, from explanations.yaml."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from megatron_eks.config.load import Json, read_mapping

TABLE = Path(__file__).with_name("explanations.yaml")
_REMOVED = "removed"


@dataclass(frozen=True)
class Explanation:
    """The meaning of one code."""

    level: str
    what: str
    why: str
    remedy: str
    source: str


@cache
def explanations() -> dict[str, Explanation]:
    """Return the meaning of every code, in their order."""
    found = {}
    for code, entry in _table().items():
        texts = {key: str(value) for key, value in entry.items()} if isinstance(entry, dict) else {}
        if code != _REMOVED:
            found[code] = Explanation(**texts)
    return found


@cache
def removed() -> dict[str, str]:
    """Return why each code is gone that an earlier version reported."""
    reasons = _table()[_REMOVED]
    return {
        str(code): why
        for why, codes in (reasons.items() if isinstance(reasons, dict) else ())
        for code in (codes if isinstance(codes, list) else ())
    }


def _table() -> dict[str, Json]:
    table = read_mapping(TABLE.read_text(encoding="utf-8"), TABLE.name).value
    return table if isinstance(table, dict) else {}
