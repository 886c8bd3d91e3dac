"""Findings that somebody allows on purpose, with a reason; they stay in sight."""

import re
from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, Path
from megatron_eks.config.explanations import removed

ANNOTATION = "megatron-eks/allow"
"""On a Kubernetes object: codes with their reasons, separated by semicolons."""

# Where a finding is, in whatever way a reader tells its objects apart.
PlaceT = TypeVar("PlaceT", bound=Hashable)

_COMMENT = re.compile(r"(?:^|\s)#\s*meks:\s*allow\b[ \t]*(?P<rest>.*)$")
_CODE = re.compile(r"MEKS-[0-9]{4}")
_REASON = 3
"""The fewest letters of a reason; a dash or a dot is none."""


@dataclass(frozen=True)
class Allowance(Generic[PlaceT]):
    """What one object, resource or line allows."""

    place: PlaceT
    """Equal to the place of the findings that it is about."""
    code: str
    reason: str
    file: str
    line: int
    path: Path


def on_lines(content: str, file: str) -> Iterator[Allowance[tuple[str, int]]]:
    """Return what comments of a configuration file allow to their line, or to the one below."""
    lines = content.splitlines()
    for number, line in enumerate(lines, 1):
        if not (match := _COMMENT.search(line)):
            continue
        code, _, reason = match["rest"].strip().partition(" ")
        meant = number
        while meant <= len(lines) and not lines[meant - 1].partition("#")[0].strip():
            meant += 1
        yield Allowance((file, meant), code, reason.strip(), file, number, ())


def apply(
    found: Iterable[tuple[PlaceT, Finding]],
    allowances: Iterable[Allowance[PlaceT]],
    levels: Container[Level] = (Level.ERROR, Level.WARNING),
) -> list[Finding]:
    """Return the findings, the allowed ones at their own level, and what is wrong with the rest.

    Findings of other levels than those given stay as they are.
    """
    given = list(allowances)
    said = (e for e in given if _CODE.fullmatch(e.code) and len(e.reason) >= _REASON)
    valid = {(each.place, each.code): each.reason for each in said}
    used: set[tuple[PlaceT, str]] = set()
    kept: set[tuple[PlaceT, str]] = set()
    result: list[Finding] = []
    for place, finding in found:
        key = (place, finding.code.value)
        if key in valid and finding.level in levels:
            used.add(key)
            result.append(replace(finding, level=Level.ALLOWED, remedy=f"allowed: {valid[key]}"))
        else:
            kept.add(key)
            result.append(finding)
    return result + [wrong for each in given for wrong in _wrong(each, used, kept)]


def _wrong(
    allowance: Allowance[PlaceT],
    used: Container[tuple[PlaceT, str]],
    kept: Container[tuple[PlaceT, str]],
) -> Findings:
    code, level = allowance.code, Level.ERROR
    key = (allowance.place, code)
    if not _CODE.fullmatch(code):
        found, remedy = "no code is allowed", "write it: allow MEKS-0609 REASON"
    elif key not in used and code in removed():  # which reads a long file
        found, remedy = f"{code} was removed, because {removed()[code]}", "remove the allowance"
        level = Level.WARNING
    elif len(allowance.reason) < _REASON:
        found, remedy = f"{code} is allowed without a reason", "say why, behind the code"
    elif key in kept:
        found = f"{code} is an error here, and only warnings can be allowed"
        remedy = "correct what was found"
    elif key not in used:
        found, remedy = f"{code} is allowed, and was not found here", "remove it"
        level = Level.WARNING
    else:
        return
    place = allowance.file, allowance.line
    yield Finding(Code.SUPPRESSION, allowance.path, found, remedy, level, *place)
