"""What a support bundle shows of a command line: options, and the values of those that we set."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from megatron_eks.catalog import shown

_OPTION = re.compile(r"--[a-z][a-z0-9_.-]*|-[A-Za-z]")


class Hide(Protocol):
    """Takes a value out, of a variable that a person named or of anything else."""

    def __call__(self, value: str, variable: str = "") -> str:
        """Return what stands there instead."""


def shown_arguments(
    words: Sequence[object], hide: Hide, ours: Collection[str] = shown.OPTIONS
) -> Iterator[str]:
    """Yield a command's words: all names of options, and the values of those that we set."""
    follow = 0
    for word in map(str, words):
        option, equals, value = word.partition("=")
        if _OPTION.fullmatch(option):
            known = option in ours
            yield option + equals + (value if known or not value else hide(value))
            follow = (len(words) if option in shown.LISTS else 1) if known and not equals else 0
        elif follow or shown.WORDS.fullmatch(word):
            yield word
            follow = max(0, follow - 1)
        else:
            yield hide(word)
