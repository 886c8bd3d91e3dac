"""What checks of several options together are asked about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.job import MegatronRun

Problem = tuple[str, str]
"""What an option conflicts with, and what to do instead."""


@dataclass(frozen=True)
class Asked:
    """A job, and the settings that its further arguments give."""

    job: MegatronRun
    model: ModelShape
    values: Mapping[str, Sequence[str]]
    copies: int | None
    """Data parallel size; None where the pool's type is unknown or the layout fits no GPUs."""

    def first(self, setting: str) -> str | None:
        """Return the value of a setting that has one."""
        words = self.values.get(setting, ())
        return words[0] if words else None

    def number(self, setting: str) -> int | None:
        """Return the value of a setting that is a whole number, not below 0."""
        word = self.first(setting) or ""
        return int(word) if word.isdecimal() else None

    def amount(self, setting: str) -> float | None:
        """Return the value of a setting that is a number; the parser has judged its form."""
        word = self.first(setting)
        return None if word is None else float(word)
