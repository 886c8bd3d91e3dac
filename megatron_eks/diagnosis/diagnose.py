"""From many lines of many ranks to one cause, and what only followed from it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from megatron_eks.diagnosis import activity, endings, stalls
from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.course import OF_RANKS, Course, Sign
from megatron_eks.diagnosis.lines import Line
from megatron_eks.diagnosis.signatures import Tier, named
from megatron_eks.diagnosis.tally import tally

_EVIDENCE = 3
_LONGEST = 300
_OTHERS = "End what nvidia-smi shows of them, and let each rank set its own device (LOCAL_RANK)."
# c10/cuda/CUDACachingAllocator.cpp, the text of OutOfMemoryError.
_SIZE = r"([\d.]+) ([KMGT]?i?B)"
_TOTAL = re.compile(rf"total capacity of {_SIZE} of which {_SIZE} is free")
_OWN = re.compile(rf"(?:this process has|[Oo]f the allocated memory) {_SIZE}")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# Python's own is 1, a shell's 126 and more.
_OWN_EXIT = re.compile(r"exit code (?!1\b|12[6-9]|1[3-9]\d|2\d\d)\d")
_LARGE = 0.2
_NEAR = 40
"""Lines in which a message says more of what it began with."""


@dataclass(frozen=True)
class Cascade:
    """A trouble that is not the cause, or not the first."""

    code: LogCode
    what: str
    lines: int
    first: Line


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What ended a run; without a code its cause is not in the lines."""

    code: LogCode | None = None
    certain: bool = False
    """Whether the lines prove this cause and no other of the same words."""
    cause: str
    why: str
    remedy: str
    evidence: tuple[Line, ...] = ()
    cascades: tuple[Cascade, ...] = ()
    last_step: int | None = None
    lines: int = 0
    ended_well: bool = False
    """Whether the run did all that it was asked to do."""

    @property
    def rank(self) -> int | None:
        """The rank that shows it first."""
        return next((line.rank for line in self.evidence if line.rank is not None), None)


def diagnose(raw: Iterable[str]) -> Diagnosis:
    """Find the cause in a log, or in the logs of all ranks one after the other."""
    course = Course(tally(raw))
    return replace(_found(course), last_step=course.last_step, lines=course.kept.count)


def _found(course: Course) -> Diagnosis:
    chosen = min(course.signs, key=course.preference, default=None)
    if course.ended_well:
        return _well(course)
    if chosen is None or course.over(chosen):
        return _nothing(course)
    if course.outlived(chosen) and chosen.tier is not Tier.SLOW and not chosen.signature.start:
        return _went_on(course)
    if chosen.tier is Tier.CONSEQUENCE:
        return _not_here(chosen, course)
    return _explained(_said_better(chosen, course.signs), course)


def _said_better(chosen: Sign, signs: Sequence[Sign]) -> Sign:
    """Return the line close by that says more exactly what a vague one began."""
    signature = chosen.signature
    if "." in signature.name and not signature.vague:
        return chosen
    close = [
        each
        for each in signs
        if abs(each.line.number - chosen.line.number) <= _NEAR
        and chosen.line.rank in (each.line.rank, None)
        and not each.signature.vague
        and (
            signature.vague
            or (each.signature.code is signature.code and "." in each.signature.name)
        )
    ]
    better = (e for e in close if e.tier == chosen.tier and _of_others(e) <= _of_others(chosen))
    return next(better, chosen)


def _of_others(sign: Sign) -> bool:
    """Say whether what may be a cause by itself says nothing of another one."""
    return sign.tier is Tier.POSSIBLE and (sign.signature.mild or sign.signature.echo)


def _explained(chosen: Sign, course: Course) -> Diagnosis:
    signature = chosen.signature
    own = [
        each for each in course.signs if each.signature is signature and each.place >= chosen.place
    ]
    same = [each for each in course.signs if each.signature.code is signature.code]
    more = [
        each
        for each in course.kept.errors
        if signature.vague and abs(each.number - chosen.line.number) <= _NEAR
    ]
    cause, remedy = signature.what_of(chosen.line.text), signature.remedy
    if signature.tier is Tier.GENERIC:
        cause = f"{cause.rstrip('.')}: {_said(chosen.line)}"
        # What the program said of its input is the cause of an error that follows from it.
        above = [
            each
            for each in (*course.kept.errors, *course.kept.doubts)
            if 0 < chosen.line.number - each.number <= _NEAR
        ]
        if above:
            cause = f"{cause} - after it had said: {_said(above[0])}"
            remedy = f"Mend what it said first; the error only follows from that. Else: {remedy}"
    elif others := _held_by_others(chosen.line.text):
        cause = f"{cause} {others}"
        remedy = f"{_OTHERS} {remedy}"
    return Diagnosis(
        code=signature.code,
        certain=chosen.tier is Tier.CAUSE
        and signature.certain
        and not (signature.quoted(chosen.line.text) or _rivals(chosen, course)),
        cause=cause,
        why=signature.why,
        remedy=remedy,
        evidence=_distinct([own[0].line, *more, *(sign.line for sign in (*own, *same))]),
        cascades=_cascades(course, signature.code),
    )


def _rivals(chosen: Sign, course: Course) -> bool:
    return any(
        each.signature.code is not chosen.signature.code
        and each.tier <= Tier.POSSIBLE
        and not (each.signature.echo or course.outlived(each))
        for each in course.signs
    )


def _not_here(chosen: Sign, course: Course) -> Diagnosis:
    """Only what followed from the cause is in the log: that is said, and where to look."""
    if told := stalls.disagree(course.ordered):
        return _deduced("RANKS_DISAGREE.calls", told, course)
    tcp = [each for each in course.signs if each.signature.code is LogCode.TCP_INSTEAD_OF_EFA]
    if tcp and chosen.signature.code in OF_RANKS and course.last_step is None:
        return _explained(tcp[0], course)
    told = stalls.laggard(course.ordered) or endings.first_failure(course.ordered)
    if course.kept.errors and _OWN_EXIT.search(told):
        said = course.kept.errors[0]
        found = _deduced("EXCEPTION", _said(said), course)
        return replace(found, evidence=_distinct([said, chosen.line]))
    more = f" {told[:1].upper()}{told[1:]}." if told else ""
    waited = [each.line for each in course.signs if each.signature.code in OF_RANKS]
    last = activity.last(course.ordered, waited[0]) if waited else None
    doing, going_on = last or (None, False)
    if doing and going_on and doing.form:
        return _deduced(doing.form, "", course)
    if doing:
        more += f" Before it {doing.name}."
    if course.kept.errors:
        more += f" The first that calls itself an error: {_said(course.kept.errors[0])}"
    return Diagnosis(
        cause=f"not in {_count(course, 'these')}, which show only what followed:"
        f" {chosen.signature.what[:1].lower()}{chosen.signature.what[1:]}{more}",
        why=chosen.signature.why,
        remedy=f"{doing.remedy} {chosen.signature.remedy}" if doing else chosen.signature.remedy,
        evidence=_distinct([chosen.line, *course.kept.errors]),
        cascades=_cascades(course, None),
    )


def _well(course: Course) -> Diagnosis:
    """Explain a run that says itself that it is done, and nothing failed after that."""
    reached = endings.reached(course.ordered)
    return Diagnosis(
        cause=f"the run ended well{', ' if reached else ''}{reached}",
        why="Its program says that it is done, and nothing failed after that.",
        remedy="nothing; what stands below did not end it" if course.signs else "nothing",
        evidence=(course.ordered[course.end],),
        cascades=_cascades(course, None, ended=False),
        ended_well=True,
        certain=True,
    )


def _went_on(course: Course) -> Diagnosis:
    """Explain lines of which all that they show was outlived."""
    return Diagnosis(
        cause=f"no known trouble at the end of {_count(course)}:"
        " training went on after what they show",
        why="The run goes on, or what ended it is in another log.",
        remedy="if it has ended, give the logs of all ranks to their end and the pods' events"
        " (kubectl describe pod)",
        cascades=_cascades(course, None, ended=False),
    )


def _deduced(name: str, told: str, course: Course) -> Diagnosis:
    """Explain what no line says, and the lines of all ranks together show."""
    signature = named(name)
    return Diagnosis(
        code=signature.code,
        cause=f"{signature.what.rstrip('.')}: {told}." if told else signature.what,
        why=signature.why,
        remedy=signature.remedy,
        evidence=_distinct(
            [
                each.line
                for each in course.signs
                if each.signature.code is LogCode.COLLECTIVE_TIMED_OUT
            ]
        ),
        cascades=_cascades(course, signature.code),
    )


def _held_by_others(text: str) -> str:
    """Say how much of the GPU other processes hold, where the allocator says that it is much."""
    total, own = _TOTAL.search(text), _OWN.search(text)
    if not total or not own:
        return ""
    whole, free, used = (
        float(size) * _UNITS.get(unit, 1)
        for size, unit in (total.group(1, 2), total.group(3, 4), own.group(1, 2))
    )
    others = whole - free - used
    if others < _LARGE * whole:
        return ""
    return (
        f"Other processes hold {others / 2**30:.1f} GiB of this GPU:"
        " several ranks chose it, or a process was left over."
    )


def _count(course: Course, these: str = "") -> str:
    number = course.kept.count
    lines = "1 line" if number == 1 else f"{number} lines"
    return f"{these if number != 1 else these and 'this'} {lines}".lstrip()


def _said(line: Line) -> str:
    return line.text.strip()[:_LONGEST]


def _distinct(lines: Iterable[Line]) -> tuple[Line, ...]:
    found: dict[str, Line] = {}
    for line in lines:
        found.setdefault(line.text, line)
    return tuple(found.values())[:_EVIDENCE]


def _cascades(course: Course, cause: LogCode | None, *, ended: bool = True) -> tuple[Cascade, ...]:
    went_on = " It did not end the run."
    groups: dict[str, Sign] = {}
    for sign in course.signs:
        if sign.signature.code is not cause:
            groups.setdefault(sign.signature.name, sign)
    return tuple(
        Cascade(
            each.signature.code,
            each.signature.what_of(each.line.text)
            + ("" if ended or not course.outlived(each) else went_on),
            course.kept.lines_of(each.signature),
            each.line,
        )
        for each in groups.values()
    )


def _nothing(course: Course) -> Diagnosis:
    unknown = ""
    if course.kept.errors:
        unknown = f"; the first that calls itself an error: {_said(course.kept.errors[0])}"
    elif course.kept.doubts:
        unknown = f"; the first that tells of something gone wrong: {_said(course.kept.doubts[0])}"
    return Diagnosis(
        cause=f"no known trouble in {_count(course)}{unknown}",
        why="The cause is in another log, or is not known yet.",
        remedy="give the logs of all ranks from their start, of the container before this one"
        " (--previous) and the pods' events (kubectl describe pod), with NCCL_DEBUG=INFO",
        evidence=tuple(course.kept.errors or course.kept.doubts),
    )
