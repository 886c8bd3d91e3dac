"""From many lines of many ranks to one cause, and what only followed from it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.explanations import explanations
from megatron_eks.diagnosis import stalls
from megatron_eks.diagnosis.lines import Line, in_order, read
from megatron_eks.diagnosis.signatures import Signature, Tier, match

_EVIDENCE = 3
# Collectives keep ranks together, so after a rank has failed another reports one step at most.
_SURVIVED = 2


@dataclass(frozen=True)
class Cascade:
    """A trouble that is not the cause, or not the first."""

    code: Code
    lines: int
    first: Line


@dataclass(frozen=True)
class Diagnosis:
    """What ended a run; without a code nothing known was found."""

    code: Code | None
    cause: str
    why: str
    remedy: str
    evidence: tuple[Line, ...]
    cascades: tuple[Cascade, ...]
    last_step: int | None
    lines: int

    @property
    def rank(self) -> int | None:
        """The rank that shows it first."""
        return next((line.rank for line in self.evidence if line.rank is not None), None)


@dataclass(frozen=True)
class _Sign:
    """A line that shows a known trouble; `place` is its place in time."""

    place: int
    line: Line
    signature: Signature


def diagnose(raw: Iterable[str]) -> Diagnosis:
    """Find the cause in a log, or in the logs of all ranks one after the other."""
    kept: list[tuple[Line, Signature | None]] = []
    count = 0
    for line in read(raw):
        count += 1
        signature = None if line.step is not None else match(line.text)
        if signature is not None or line.step is not None or stalls.tells(line.text):
            kept.append((line, signature))
    signature_of = {line.number: signature for line, signature in kept}
    ordered = in_order(line for line, _ in kept)
    signs = [
        _Sign(place, line, signature)
        for place, line in enumerate(ordered)
        if (signature := signature_of[line.number]) is not None
    ]
    if not signs:
        return _nothing(ordered, count)
    chosen = min(signs, key=_Course(signs, ordered).preference)
    return _explained(chosen, signs, ordered, count)


class _Course:
    """What came later in the log than a place in it."""

    def __init__(self, signs: Sequence[_Sign], ordered: Sequence[Line]) -> None:
        last = {line.step: place for place, line in enumerate(ordered) if line.step is not None}
        self._steps = sorted(last.values())
        self._last = signs[-1].place
        own = [sign.place for sign in signs if _is_of_the_program(sign.signature)]
        self._last_own = max(own, default=-1)

    def preference(self, sign: _Sign) -> tuple[bool, int, int]:
        """Return what orders signs, the cause first: outlived ones last, then by tier and time."""
        later = sum(place > sign.place for place in self._steps[-_SURVIVED:])
        outlived = later == _SURVIVED and self._last > sign.place
        if sign.signature.start:
            # The pod got its node, image and volumes in the end: its program ran.
            outlived = outlived or later > 0 or self._last_own > sign.place
        return outlived, sign.signature.tier, sign.place


def _is_of_the_program(signature: Signature) -> bool:
    return not signature.start and signature.tier <= Tier.GENERIC


def _explained(
    chosen: _Sign, signs: Sequence[_Sign], ordered: Sequence[Line], count: int
) -> Diagnosis:
    code = chosen.signature.code
    meaning = explanations()[code]
    own = [sign for sign in signs if sign.signature.code is code and sign.place >= chosen.place]
    cause = meaning.what
    if chosen.signature.tier is Tier.CONSEQUENCE:
        told = stalls.laggard(ordered)
        cause = f"{cause} {told[:1].upper()}{told[1:]}." if told else cause
    return Diagnosis(
        code=code,
        cause=cause,
        why=meaning.why,
        remedy=meaning.remedy,
        evidence=_distinct([sign.line for sign in own]),
        cascades=tuple(_cascades(signs, code)),
        last_step=_last_step(ordered),
        lines=count,
    )


def _distinct(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Return the first lines with different texts."""
    found: dict[str, Line] = {}
    for line in lines:
        found.setdefault(line.text, line)
    return tuple(found.values())[:_EVIDENCE]


def _cascades(signs: Sequence[_Sign], cause: Code) -> list[Cascade]:
    groups: dict[Code, list[Line]] = {}
    for sign in signs:
        if sign.signature.code is not cause:
            groups.setdefault(sign.signature.code, []).append(sign.line)
    return [Cascade(code, len(lines), lines[0]) for code, lines in groups.items()]


def _nothing(ordered: Sequence[Line], count: int) -> Diagnosis:
    return Diagnosis(
        code=None,
        cause=f"no known trouble in {count} lines",
        why="The cause is in another log, or is not known yet.",
        remedy="give the logs of all ranks from their start, with NCCL_DEBUG=WARN at least",
        evidence=(),
        cascades=(),
        last_step=_last_step(ordered),
        lines=count,
    )


def _last_step(ordered: Sequence[Line]) -> int | None:
    return next((line.step for line in reversed(ordered) if line.step is not None), None)
