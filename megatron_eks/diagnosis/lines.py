"""Lines of logs of many ranks: which rank wrote one, when, and how far training had come."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from megatron_eks.diagnosis.wrapping import Moment, Unwrapped, unwrap

_RANK_IN_TEXT = re.compile(r"\b[Rr]ank[ :]?\s?(\d+)[\]:,]|\brank\s*[:=]\s*(\d+)\b")
_PROGRESS = re.compile(
    r"\biteration\s+(\d+)/\s*\d+"
    r"|[\"']?\b(?:global_)?step[\"']?\s*[:=]?\s*(\d+)\b(?=.*\bloss\b)"
)
_QUARTER = 900


@dataclass(frozen=True)
class Line:
    """One line, without colour and prefix."""

    number: int
    """From 1."""
    rank: int | None
    text: str
    moment: Moment | None
    """Its own, or that of the line of its rank before it."""
    step: int | None
    """The training step that it reports."""
    pod: str | None = None


def read(raw: Iterable[str]) -> Iterator[Line]:
    """Yield the lines, in the order given; a record of JSON may hold several."""
    last: dict[object, Moment] = {}
    ahead: float | None = None
    for number, each in enumerate(raw, 1):
        for found in unwrap(each):
            rank = _rank(found)
            if ahead is None and found.inner is not None and found.moment is not None:
                # The machine's zone, from a line that gives its time in both.
                ahead = round((found.inner - found.moment) / _QUARTER) * _QUARTER
            moment = found.moment
            if moment is not None and not found.zoned:
                moment -= ahead or 0
            key = rank if rank is not None else found.pod
            moment = moment if moment is not None else last.get(key, last.get("any"))
            if moment is not None:
                last[key] = last["any"] = moment
            yield Line(number, rank, found.text, moment, _step(found.text), found.pod)


def in_order(lines: Iterable[Line]) -> list[Line]:
    """Order lines by the time in them; those before the first time stay before."""
    return sorted(lines, key=lambda line: (line.moment or 0, line.number))


def _rank(found: Unwrapped) -> int | None:
    if found.exact or "ank" not in found.text:
        return found.rank
    inside = _RANK_IN_TEXT.search(found.text)
    return int(inside.group(1) or inside.group(2)) if inside else found.rank


def _step(text: str) -> int | None:
    if "iteration" not in text and "step" not in text:
        return None
    found = _PROGRESS.search(text)
    return int(next(group for group in found.groups() if group)) if found else None
