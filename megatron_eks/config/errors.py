"""Findings: every problem the project can report, with its place and a remedy."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeAlias

from megatron_eks.programs.printable import plain

Path = tuple[str | int, ...]

TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:(?P<hugging_face>hf_)[A-Za-z0-9]{30,}"
    r"|(?P<github>gh[pousr]_|github_pat_)[A-Za-z0-9_]{36,}"
    r"|(?P<aws>AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|(?P<nvidia>nvapi-)[A-Za-z0-9_-]{40,})"
)
"""A token or key of a known service, by its form: Hugging Face's have 34 letters and digits."""

_NUMBER = re.compile(r"\d+(\.\d+)*")
_JOINTS = re.compile(r"[-_. ]")


class Level(StrEnum):
    """How much a finding weighs: an error stops everything that would act on the file.

    What somebody allows, with a reason, weighs nothing and stays in sight.
    """

    ERROR = "error"
    WARNING = "warning"
    ALLOWED = "allowed"


@dataclass(frozen=True)
class Finding:
    """One problem: where, what was found, and what to do next."""

    code: StrEnum
    """A member of `Code`, or of the guards' `Rule`."""
    path: Path
    found: str
    remedy: str
    level: Level = Level.ERROR
    file: str = ""
    line: int = 0

    def __post_init__(self) -> None:
        """Keep tokens out of every message: findings end in logs and reviews."""
        if TOKEN.search(f"{self.found} {self.remedy}"):
            object.__setattr__(self, "found", without_tokens(self.found))
            object.__setattr__(self, "remedy", without_tokens(self.remedy))

    def at(self, file: str, line: int) -> "Finding":
        """Return the same finding placed in a file."""
        return replace(self, file=file, line=line)

    @property
    def problem(self) -> str:
        """Return level, code, place and what was found: one plain line."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        # A key or value may hold line ends and terminal codes; a finding stays one plain line.
        return plain(f"{self.level} {self.code} {place} {dotted(self.path)}: {self.found}")

    def __str__(self) -> str:
        """Return the one-line form of the error contract."""
        return f"{self.problem} - {plain(self.remedy)}"

    def as_json(self) -> dict[str, str | int]:
        """Return the same as a flat mapping."""
        return {
            "level": str(self.level),
            "code": str(self.code),
            "file": self.file,
            "line": self.line,
            "path": dotted(self.path),
            "found": self.found,
            "remedy": self.remedy,
        }


Findings: TypeAlias = Iterator[Finding]
"""What a check yields."""


def warning(code: StrEnum, path: Path, found: str, remedy: str) -> Finding:
    """Return a finding that stops nothing."""
    return Finding(code, path, found, remedy, Level.WARNING)


class ConfigError(Exception):
    """A configuration cannot be used; carries every finding, warnings included."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


def dotted(path: Path) -> str:
    """Write a path as users read it: `gpu_pools[0].instance_type`; a dot for the whole file."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return without_tokens(text).removeprefix(".") or "."


def without_tokens(text: str) -> str:
    """Leave only the beginning of each token, which says whose it is."""
    return TOKEN.sub(lambda found: f"{found[str(found.lastgroup)]}…", text)


def has_errors(findings: Iterable[Finding]) -> bool:
    """Tell whether anything in the list forbids going on."""
    return any(finding.level is Level.ERROR for finding in findings)


def closest(value: str, known: Iterable[str]) -> str | None:
    """Return what was probably meant, if anything known comes near it."""
    # Other programs write the same words in capitals: HYBRID_SHARD, ON_DEMAND.
    written = {name.lower(): name for name in sorted(known)}
    value = value.lower()
    # Words are joined otherwise elsewhere: API_AND_CONFIGMAP.
    joined = [name for name in written if _JOINTS.sub("", name) == _JOINTS.sub("", value)]
    longer = [name for name in written if value and name.startswith(value)]
    # What people know as tensor_model_parallel_size is tensor here.
    shorter = [name for name in written if value.startswith((f"{name}_", f"{name}-"))]
    # Letters change places more often than into others: us-esat-2 is meant to be in the east.
    swapped = [name for name in written if sorted(name) == sorted(value)]
    close = joined or longer or shorter[-1:] or swapped or get_close_matches(value, written, n=1)
    return written[close[0]] if close else None


def choices(value: str, known: Iterable[str] | Mapping[str, object]) -> str:
    """Say what is allowed, the closest match first."""
    names = sorted(known)
    if all(_NUMBER.fullmatch(name) for name in names):
        # One number is not another one mistyped.
        in_order = sorted(names, key=lambda name: [int(part) for part in name.split(".")])
        return f"known: {', '.join(in_order)}"
    meant = closest(value, names)
    return f"{'' if meant is None else f'did you mean {meant!r}? '}known: {', '.join(names)}"
