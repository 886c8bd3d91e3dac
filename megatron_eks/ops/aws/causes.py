"""Why something failed on AWS, by what was said: what it means, what to do, and what passes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_eks.config.load import read_mapping


@dataclass(frozen=True)
class Cause:
    """One kind of failure, of causes.yaml."""

    pattern: str
    """Where it shows in what was said."""
    remedy: str
    found: str = ""
    """Empty where the words of AWS say it themselves."""
    passes: bool = False
    """Another try may go better, without any change."""


_FILE = Path(__file__).with_suffix(".yaml")
_TABLE: Any = read_mapping(_FILE.read_text(encoding="utf-8"), _FILE.name).value
BUILDS, NODES, STACKS = (
    tuple(Cause(**each) for each in _TABLE[of]) for of in ("builds", "nodes", "stacks")
)


def first_of(causes: Sequence[Cause], text: str) -> Cause:
    """Return the first cause that shows in a text; the last one of a table shows in every text."""
    return next(each for each in causes if re.search(each.pattern, text))


def cause_of(lines: Sequence[str]) -> Cause | None:
    """Return the first cause that shows in the last lines of a build; None: none that we know."""
    text = "\n".join(lines)
    return next((each for each in BUILDS if re.search(each.pattern, text, re.IGNORECASE)), None)
