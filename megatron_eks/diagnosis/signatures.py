"""The table of known troubles, and which of them a line shows."""

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.load import read_mapping

TABLE = Path(__file__).with_name("signatures.yaml")


class Tier(IntEnum):
    """How good an explanation is; the first is the best."""

    CAUSE = 0
    POSSIBLE = 1
    GENERIC = 2
    SLOW = 3
    CONSEQUENCE = 4


@dataclass(frozen=True)
class Signature:
    """How one trouble shows."""

    code: Code
    tier: Tier
    start: bool
    """Whether it holds up a pod before its program runs."""
    shown: "re.Pattern[str]"
    unless: "re.Pattern[str] | None"

    def fits(self, text: str) -> bool:
        """Tell whether a line shows it."""
        if not self.shown.search(text):
            return False
        return self.unless is None or not self.unless.search(text)


@cache
def signatures() -> tuple[Signature, ...]:
    """Return all of them, in the order in which a line is tried."""
    table = read_mapping(TABLE.read_text(encoding="utf-8"), TABLE.name).value
    found = []
    for name, entry in table.items() if isinstance(table, dict) else ():
        given = entry if isinstance(entry, dict) else {}
        shown, unless = (_any(given.get(key)) for key in ("lines", "unless"))
        tier = Tier[str(given.get("tier")).upper()]
        start = bool(given.get("start", False))
        found.append(
            Signature(Code[f"LOG_{name}"], tier, start, re.compile(shown), _or_none(unless))
        )
    return tuple(found)


def match(text: str) -> Signature | None:
    """Return the trouble that a line shows, or nothing."""
    # Advice that comes with an error is about other errors.
    if _ADVICE.search(text) or not _promising().search(text):
        return None
    return next((each for each in signatures() if each.fits(text)), None)


_ADVICE = re.compile(
    r"CUDA_LAUNCH_BLOCKING=1|might be asynchronously reported|TORCH_USE_CUDA_DSA"
    r"|reserved but unallocated memory is large|Consider passing|For debugging consider"
    r"|^\s*(Traceback \(most|During handling|The above exception|File \"|\^+$)"
    r"|\b(Future|Deprecation|User|Runtime)Warning\b"
)


@cache
def _promising() -> "re.Pattern[str]":
    """One expression for all: most lines of a log show nothing, and are tried once."""
    return re.compile("|".join(f"(?:{each.shown.pattern})" for each in signatures()))


def _any(patterns: object) -> str:
    return "|".join(f"(?:{each})" for each in patterns) if isinstance(patterns, list) else ""


def _or_none(pattern: str) -> "re.Pattern[str] | None":
    return re.compile(pattern) if pattern else None
