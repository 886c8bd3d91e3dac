"""The verdict on every environment variable that people set for NCCL, EFA, torch and Megatron.

The verdicts, with their reasons and sources, stand in environment.txt.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from megatron_eks.catalog.tables import by_name, sections


class Verdict(StrEnum):
    """What the project does with a variable."""

    SET = "set"
    """Set by the plan; what a job file says instead wins, at the cost named."""
    ALLOWED = "allowed"
    ADVISED_AGAINST = "advised against"
    REFUSED = "refused"
    NO_EFFECT = "no effect"


@dataclass(frozen=True)
class Policy:
    """One variable: the verdict, why, and what to do instead."""

    verdict: Verdict
    reason: str
    instead: str


REMOVE = "remove it"
"""What to do with most of what should not be there."""


def allowed(reason: str) -> Policy:
    """Let a variable stand."""
    return Policy(Verdict.ALLOWED, reason, REMOVE)


def advised_against(reason: str, instead: str = REMOVE) -> Policy:
    """Warn of a variable."""
    return Policy(Verdict.ADVISED_AGAINST, reason, instead)


def refused(reason: str, instead: str = REMOVE) -> Policy:
    """Refuse a variable with which a run stops, hangs or loses its work."""
    return Policy(Verdict.REFUSED, reason, instead)


def no_effect(reason: str) -> Policy:
    """Warn of a variable that nothing reads."""
    return Policy(Verdict.NO_EFFECT, reason, REMOVE)


TABLE = sections("environment.txt")


def _policies() -> Iterator[tuple[str, Policy]]:
    for verdict in Verdict:
        for name, said in by_name(TABLE[verdict.name.lower()]).items():
            reason, _, instead = said.partition(" | ")
            yield name, Policy(verdict, reason, instead or REMOVE)


POLICIES = dict(_policies())
PREFIXES = {name[:-1]: POLICIES.pop(name) for name in [*POLICIES] if name.endswith("*")}
IMAGE_VARIABLES = by_name(TABLE["image"])
"""Each with the reason."""

OF_OUR_IMAGE = frozenset(
    ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "HOME", "NCCL_NET_PLUGIN")
)
"""What the project's image sets; another image may need another value."""

FOLDERS = frozenset(TABLE["folders"].split())
"""Folders that programs make, or files that they write."""

WRITTEN = FOLDERS | {"NCCL_DEBUG_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TRANSFORMERS_CACHE"}
"""What is written even where nothing else fails by it."""

# The last words of a name say what its value is: HF_TOKEN is a secret; MAX_TOKENS, HF_TOKEN_PATH
# and TOKENIZERS_PARALLELISM are not, and EOS_TOKEN belongs to a tokenizer.
_SECRET_NAME = re.compile(
    r"(.*_)?(?<!BOS_)(?<!EOS_)(?<!PAD_)(?<!UNK_)(?<!SEP_)(?<!CLS_)(?<!MASK_)"
    r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE|SECRET)_?KEY(_ID)?)"
)
_NO_SECRET_VALUE = re.compile(
    r"|true|false|[0-9]{1,5}|none|null|empty|dummy|fake|unused|x+|-", re.IGNORECASE
)


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable holds a secret itself, and not a path to it or a switch."""
    named = _SECRET_NAME.fullmatch(name.upper()) is not None
    return named and not _NO_SECRET_VALUE.fullmatch(value)


# Names that differ by a slip, not by a meaning.
_CLOSE = 0.9
_SHORTEST = 7

_HEADS = {"nccl": "NCCL_", "efa": "FI_EFA_", "libfabric": "", "torch": ""}
READ = frozenset(f"{head}{name}" for of, head in _HEADS.items() for name in TABLE[of].split())
"""What NCCL, its EFA provider and torch read; another version may read more."""

_GUESSED = {
    guess: name for name, guesses in by_name(TABLE["guesses"]).items() for guess in guesses.split()
}


def meant(name: str, known: Collection[str]) -> str | None:
    """Return the variable that was meant by a name, if it differs by a slip from a known one."""
    upper = name.upper()
    if name in known or name in READ:
        return None
    if upper in known or upper in READ:
        return upper
    if upper in _GUESSED:
        return _GUESSED[upper]
    if len(upper) < _SHORTEST:
        return None
    near = get_close_matches(upper, known, 1, _CLOSE) or _swapped(upper, known)
    near = near or get_close_matches(upper, READ, 1, _CLOSE) or _swapped(upper, READ)
    return near[0] if near else None


def _swapped(name: str, known: Collection[str]) -> list[str]:
    """Return names of the same letters in another order: two of them have changed places."""
    letters = sorted(name)
    return sorted(
        each
        for each in known
        if len(each) == len(name) and each[0] == name[0] and sorted(each) == letters
    )
