"""Lines of logs of many ranks: which rank wrote one, when, and how far training had come."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LONGEST = 4000
"""Characters of a line that are read: progress bars and dumps write lines of megabytes."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# `meks logs` (`[ 3] `), the kubelet's time, torchrun's tee and torch's own prefix; the last gives
# the most exact rank.
_PREFIXES = re.compile(
    r"^(?:\[\s*(?P<pod>\d+)\]\s)?(?:\d{4}-\d\d-\d\dT[\d:.]+Z\s)?(?:\[(?:default|rank)?(?P<tee>\d+)\]:?\s*)?"
    r"(?:\[rank(?P<torch>\d+)\]:\s?)?"
)
_RANK_IN_TEXT = re.compile(r"\b[Rr]ank[ :]?\s?(\d+)[\]:,]|\brank\s*[:=]\s*(\d+)\b")
_ISO = re.compile(r"\b\d{4}[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d(?:[.,]\d+)?)")
_GLOG = re.compile(r"\b[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d\.\d+)")
_PROGRESS = re.compile(
    r"\biteration\s+(\d+)/\s*\d+"
    r"|[\"']?\b(?:global_)?step[\"']?\s*[:=]?\s*(\d+)\b(?=.*\bloss\b)"
)

Moment = tuple[int, int, float]
"""Month, day and seconds of the day: not all writers give the year."""


@dataclass(frozen=True)
class Line:
    """One line, without colour and prefix."""

    number: int
    """From 1."""
    rank: int | None
    text: str
    moment: Moment | None
    """Its own, or that of the line before it."""
    step: int | None
    """The training step that it reports."""


def read(raw: Iterable[str]) -> Iterator[Line]:
    """Yield the lines, in the order given."""
    moment: Moment | None = None
    for number, each in enumerate(raw, 1):
        text = _COLOUR.sub("", each[:_LONGEST].rstrip("\r\n").rpartition("\r")[2])
        moment = _moment(text) or moment
        prefix = _PREFIXES.match(text)
        rank = _rank(text, prefix)
        rest = text[prefix.end() :] if prefix else text
        yield Line(number, rank, rest, moment, _step(rest))


def in_order(lines: Iterable[Line]) -> list[Line]:
    """Order lines by the time in them, where all of them have one."""
    found = list(lines)
    dated = [(line.moment, line.number, line) for line in found if line.moment is not None]
    if len(dated) < len(found):
        return found
    return [line for _, _, line in sorted(dated, key=lambda each: each[:2])]


def _moment(text: str) -> Moment | None:
    found = _ISO.search(text) or _GLOG.search(text)
    if found is None:
        return None
    month, day, hour, minute = (int(found.group(place)) for place in range(1, 5))
    seconds = float(found.group(5).replace(",", "."))
    return month, day, hour * 3600 + minute * 60 + seconds


def _rank(text: str, prefix: "re.Match[str] | None") -> int | None:
    named = prefix.groupdict() if prefix else {}
    inside = _RANK_IN_TEXT.search(text)
    words = [named.get("torch"), *(inside.groups() if inside else ()), named.get("tee")]
    chosen = next((word for word in (*words, named.get("pod")) if word is not None), None)
    return int(chosen) if chosen is not None else None


def _step(text: str) -> int | None:
    found = _PROGRESS.search(text)
    return int(next(group for group in found.groups() if group)) if found else None
