"""What each code means: level, what, why, remedy and source, from explanations.yaml."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from megatron_eks.config.load import read_mapping

TABLE = Path(__file__).with_name("explanations.yaml")


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
    return {code: Explanation(**entry) for code, entry in _table().items() if code != "removed"}


def removed() -> dict[str, str]:
    """Return why each code is gone that an earlier version reported."""
    return {code: why for why, codes in _table()["removed"].items() for code in codes}


@cache
def _table() -> dict[str, Any]:
    table = read_mapping(TABLE.read_text(encoding="utf-8"), TABLE.name).value
    return cast("dict[str, Any]", table)  # the file is this package's own
