"""What each code means: level, what, why, remedy and source, from explanations.yaml."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from megatron_eks.config.codes import Code
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
def explanations() -> dict[Code, Explanation]:
    """Return the meaning of every code, in their order."""
    table = read_mapping(TABLE.read_text(encoding="utf-8"), TABLE.name).value
    found = {}
    for code, entry in table.items() if isinstance(table, dict) else ():
        texts = {key: str(value) for key, value in entry.items()} if isinstance(entry, dict) else {}
        found[Code(code)] = Explanation(**texts)
    return found
