"""From many lines of many ranks to one cause, and what only followed from it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.diagnosis import activity, endings, launcher, memory, pods, stalls
from megatron_eks.diagnosis.lines import Line
from megatron_eks.diagnosis.signatures import Signature, Tier, named, of_the_shell
from megatron_eks.diagnosis.tally import Tally, tally

_EVIDENCE = 3
# Collectives keep ranks together, so after a rank has failed another reports one step at most.
_SURVIVED = 2
_LONGEST = 300
_OTHERS = "End what nvidia-smi shows of them, and let each rank set its own device (LOCAL_RANK)."
_OF_RANKS = frozenset({Code.LOG_COLLECTIVE_TIMED_OUT, Code.LOG_PEER_GONE})
_NEAR = 40
"""Lines in which a message says more of what it began with."""


@dataclass(frozen=True)
class Cascade:
    """A trouble that is not the cause, or not the first."""

    code: Code
    what: str
    lines: int
    first: Line


@dataclass(frozen=True)
class Diagnosis:
    """What ended a run; without a code its cause is not in the lines."""

    code: Code | None
    certain: bool
    """Whether the lines prove this cause and no other of the same words."""
    cause: str
    why: str
    remedy: str
    evidence: tuple[Line, ...]
    cascades: tuple[Cascade, ...]
    last_step: int | None
    lines: int
    ended_well: bool = False
    """Whether the run did all that it was asked to do."""

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
    tier: Tier


def diagnose(raw: Iterable[str]) -> Diagnosis:
    """Find the cause in a log, or in the logs of all ranks one after the other."""
    kept = tally(raw)
    ordered = kept.ordered()
    shows = kept.shows()
    signs = [
        _Sign(place, line, signature, signature.tier_of(line.text))
        for place, line in enumerate(ordered)
        if (signature := shows.get((line.number, line.text))) is not None
    ]
    course = _Course(signs, ordered, kept.heard)
    chosen = min(signs, key=course.preference, default=None)
    if course.ended_well:
        return _well(course, kept, signs, ordered)
    if chosen is None or course.over(chosen):
        return _nothing(kept, ordered)
    if course.outlived(chosen) and chosen.tier < Tier.CONSEQUENCE and not chosen.signature.start:
        return _went_on(course, kept, signs, ordered)
    if chosen.tier is Tier.CONSEQUENCE:
        return _not_here(chosen, kept, signs, ordered)
    return _explained(_said_better(chosen, signs), kept, signs, ordered)


def _said_better(chosen: _Sign, signs: Sequence[_Sign]) -> _Sign:
    """Return the line close by that says more exactly what a vague one began."""
    signature = chosen.signature
    if "." in signature.name and not signature.vague:
        return chosen
    close = [
        each
        for each in signs
        if abs(each.line.number - chosen.line.number) <= _NEAR
        and each.line.rank == chosen.line.rank
        and not each.signature.vague
        and (signature.vague or (each.signature.code is signature.code and _is_form(each)))
    ]
    better = [
        each
        for each in close
        if each.tier == chosen.tier and _of_others(each) <= _of_others(chosen)
    ]
    return next(iter(better), chosen)


def _is_form(sign: _Sign) -> bool:
    return "." in sign.signature.name


def _of_others(sign: _Sign) -> bool:
    """Say whether what may be a cause by itself says nothing of another one."""
    return sign.tier is Tier.POSSIBLE and (sign.signature.mild or sign.signature.echo)


class _Course:
    """What came later in the log than a place in it."""

    def __init__(
        self, signs: Sequence[_Sign], ordered: Sequence[Line], heard: Mapping[int | None, int]
    ) -> None:
        self._heard = heard
        self._ordered = ordered
        last = {line.step: place for place, line in enumerate(ordered) if line.step is not None}
        self._steps = [(place, ordered[place]) for place in sorted(last.values())]
        self.end = endings.place(ordered)
        """Where the run said that it was done; -1 if it did not."""
        self.ended_well = self.end >= 0 and not any(
            not self._ended_after(each) and each.tier <= Tier.GENERIC and not each.signature.echo
            for each in signs
        )
        self._last_own = max((each.place for each in signs if _of_the_program(each)), default=-1)
        self._last_of_ranks = max(
            (each.place for each in signs if each.signature.code in _OF_RANKS), default=-1
        )
        ends: dict[int | None, int] = {}
        for each in signs:
            if _of_the_program(each) and not each.signature.echo and not self.outlived(each):
                ends.setdefault(each.line.rank, each.place)
        # Of two ranks, one is another one than that of any sign.
        self._first_ends = [(place, rank) for rank, place in ends.items()][:2]
        self._stages = [
            (place, stage, _pod(line))
            for place, line in enumerate(ordered)
            if (stage := pods.stage(line.text))
        ]

    def preference(self, sign: _Sign) -> tuple[bool, int, int]:
        """Return what orders signs, the cause first: outlived ones last, then by tier and time."""
        tier = Tier.CONSEQUENCE if sign.signature.echo and self._followed(sign) else sign.tier
        return self.outlived(sign), tier, sign.place

    def outlived(self, sign: _Sign) -> bool:
        """Say whether the run went on after it."""
        # One step is enough after what is a warning in its own words.
        mild = sign.tier is Tier.MILD
        enough = 1 if mild else _SURVIVED
        later = sum(
            place > sign.place and (mild or self._is_later(step, sign.line))
            for place, step in self._steps[-_SURVIVED:]
        )
        outlived = later >= enough or self._ended_after(sign)
        if of_the_shell(sign.line.text):
            # What prepares a run is over when ranks talk to each other.
            outlived = outlived or self._last_of_ranks > sign.place
        if sign.signature.start:
            # The pod got its node, image and volumes in the end: its program ran.
            outlived = outlived or later > 0 or self._last_own > sign.place or self.over(sign)
        return outlived

    def _ended_after(self, sign: _Sign) -> bool:
        # The first rank says so, whose log stands first where they stand one after the other.
        timed = sign.line.timed and sign.line.rank != self._ordered[self.end].rank
        return self.end > sign.place and (
            timed or self._ordered[self.end].number > sign.line.number
        )

    def _is_later(self, later: Line, line: Line) -> bool:
        """Say whether one is later than the other: by lines of one stream, else by their times."""
        if line.rank is None or later.rank is None or line.rank == later.rank:
            return later.number > line.number
        # Logs of ranks may stand one after the other: what has no time is placed by its own rank.
        return line.timed or self._heard[line.rank] > later.number > line.number

    def _followed(self, sign: _Sign) -> bool:
        """Say whether another rank had an end of its own before."""
        return any(
            place < sign.place and rank != sign.line.rank for place, rank in self._first_ends
        )

    def over(self, sign: _Sign) -> bool:
        """Say whether the pod came further than what had held it up."""
        pod = _pod(sign.line)
        return bool(sign.signature.start) and any(
            place > sign.place and stage >= sign.signature.start and pod in (None, other)
            for place, stage, other in self._stages
        )


def _pod(line: Line) -> str | None:
    return pods.pod(line.text) or line.pod


def _of_the_program(sign: _Sign) -> bool:
    return not sign.signature.start and sign.tier <= Tier.GENERIC


def _explained(
    chosen: _Sign, kept: Tally, signs: Sequence[_Sign], ordered: Sequence[Line]
) -> Diagnosis:
    signature = chosen.signature
    own = [each for each in signs if each.signature is signature and each.place >= chosen.place]
    same = [each for each in signs if each.signature.code is signature.code]
    more = [
        each
        for each in kept.errors
        if signature.vague and abs(each.number - chosen.line.number) <= _NEAR
    ]
    cause, remedy = signature.what_of(chosen.line.text), signature.remedy
    if signature.tier is Tier.GENERIC:
        cause = f"{cause.rstrip('.')}: {_said(chosen.line)}"
        # What the program said of its input is the cause of an error that follows from it.
        above = [
            each
            for each in (*kept.errors, *kept.doubts)
            if 0 < chosen.line.number - each.number <= _NEAR
        ]
        if above:
            cause = f"{cause} - after it had said: {_said(above[0])}"
            remedy = f"Mend what it said first; the error only follows from that. Else: {remedy}"
    elif others := memory.of_others(chosen.line.text):
        cause = f"{cause} {others}"
        remedy = f"{_OTHERS} {remedy}"
    return Diagnosis(
        code=signature.code,
        certain=chosen.tier is Tier.CAUSE and not signature.vague,
        cause=cause,
        why=signature.why,
        remedy=remedy,
        evidence=_distinct([own[0].line, *more, *(sign.line for sign in (*own, *same))]),
        cascades=tuple(_cascades(kept, signs, signature.code)),
        last_step=_last_step(ordered),
        lines=kept.count,
    )


def _not_here(
    chosen: _Sign, kept: Tally, signs: Sequence[_Sign], ordered: Sequence[Line]
) -> Diagnosis:
    """Only what followed from the cause is in the log: that is said, and where to look."""
    if told := stalls.disagree(ordered):
        return _deduced("RANKS_DISAGREE.calls", told, kept, signs, ordered)
    tcp = [each for each in signs if each.signature.code is Code.LOG_TCP_INSTEAD_OF_EFA]
    if tcp and chosen.signature.code in _OF_RANKS and _last_step(ordered) is None:
        return _explained(tcp[0], kept, signs, ordered)
    told = stalls.laggard(ordered) or launcher.first_failure(ordered)
    more = f" {told[:1].upper()}{told[1:]}." if told else ""
    waited = [each.line for each in signs if each.signature.code in _OF_RANKS]
    doing, going_on = (activity.last(ordered, waited[0]) if waited else None) or (None, False)
    if doing and going_on and doing.form:
        return _deduced(doing.form, "", kept, signs, ordered)
    if doing:
        more += f" Before it {doing.name}."
    if kept.errors:
        more += f" The first that calls itself an error: {_said(kept.errors[0])}"
    return _without_code(
        kept,
        ordered,
        cause=f"not in these {kept.count} lines, which show only what followed:"
        f" {chosen.signature.what[:1].lower()}{chosen.signature.what[1:]}{more}",
        why=chosen.signature.why,
        remedy=f"{doing.remedy} {chosen.signature.remedy}" if doing else chosen.signature.remedy,
        evidence=_distinct([chosen.line, *kept.errors]),
        cascades=tuple(_cascades(kept, signs, None)),
    )


def _without_code(
    kept: Tally,
    ordered: Sequence[Line],
    *,
    cause: str,
    why: str,
    remedy: str,
    evidence: tuple[Line, ...] = (),
    cascades: tuple[Cascade, ...] = (),
    ended_well: bool = False,
) -> Diagnosis:
    return Diagnosis(
        code=None,
        certain=ended_well,
        cause=cause,
        why=why,
        remedy=remedy,
        evidence=evidence,
        cascades=cascades,
        last_step=_last_step(ordered),
        lines=kept.count,
        ended_well=ended_well,
    )


def _well(
    course: _Course, kept: Tally, signs: Sequence[_Sign], ordered: Sequence[Line]
) -> Diagnosis:
    """Explain a run that says itself that it is done, and nothing failed after that."""
    reached = endings.reached(ordered)
    return _without_code(
        kept,
        ordered,
        cause=f"the run ended well{', ' if reached else ''}{reached}",
        why="Its program says that it is done, and nothing failed after that.",
        remedy="nothing; what stands below did not end it" if signs else "nothing",
        evidence=(ordered[course.end],),
        cascades=tuple(_cascades(kept, signs, None, course)),
        ended_well=True,
    )


def _went_on(
    course: _Course, kept: Tally, signs: Sequence[_Sign], ordered: Sequence[Line]
) -> Diagnosis:
    """Explain lines of which all that they show was outlived."""
    return _without_code(
        kept,
        ordered,
        cause=f"no known trouble at the end of {kept.count} lines:"
        " training went on after what they show",
        why="The run goes on, or what ended it is in another log.",
        remedy="if it has ended, give the logs of all ranks to their end and the pods' events"
        " (kubectl describe pod)",
        cascades=tuple(_cascades(kept, signs, None, course)),
    )


def _deduced(
    name: str, told: str, kept: Tally, signs: Sequence[_Sign], ordered: Sequence[Line]
) -> Diagnosis:
    """Explain what no line says, and the lines of all ranks together show."""
    signature = named(name)
    return Diagnosis(
        code=signature.code,
        certain=False,
        cause=f"{signature.what.rstrip('.')}: {told}." if told else signature.what,
        why=signature.why,
        remedy=signature.remedy,
        evidence=_distinct(
            [each.line for each in signs if each.signature.code is Code.LOG_COLLECTIVE_TIMED_OUT]
        ),
        cascades=tuple(_cascades(kept, signs, signature.code)),
        last_step=_last_step(ordered),
        lines=kept.count,
    )


def _said(line: Line) -> str:
    return line.text.strip()[:_LONGEST]


def _distinct(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Return the first lines with different texts."""
    found: dict[str, Line] = {}
    for line in lines:
        found.setdefault(line.text, line)
    return tuple(found.values())[:_EVIDENCE]


def _cascades(
    kept: Tally, signs: Sequence[_Sign], cause: Code | None, course: _Course | None = None
) -> list[Cascade]:
    went_on = " It did not end the run."
    groups: dict[str, _Sign] = {}
    for sign in signs:
        if sign.signature.code is not cause:
            groups.setdefault(sign.signature.name, sign)
    return [
        Cascade(
            each.signature.code,
            each.signature.what_of(each.line.text)
            + (went_on if course and course.outlived(each) else ""),
            kept.lines_of(each.signature),
            each.line,
        )
        for each in groups.values()
    ]


def _nothing(kept: Tally, ordered: Sequence[Line]) -> Diagnosis:
    unknown = ""
    if kept.errors:
        unknown = f"; the first that calls itself an error: {_said(kept.errors[0])}"
    elif kept.doubts:
        unknown = f"; the first that tells of something gone wrong: {_said(kept.doubts[0])}"
    return _without_code(
        kept,
        ordered,
        cause=f"no known trouble in {kept.count} lines{unknown}",
        why="The cause is in another log, or is not known yet.",
        remedy="give the logs of all ranks from their start, of the container before this one"
        " (--previous) and the pods' events (kubectl describe pod), with NCCL_DEBUG=INFO",
        evidence=tuple(kept.errors or kept.doubts),
    )


def _last_step(ordered: Sequence[Line]) -> int | None:
    return next((line.step for line in reversed(ordered) if line.step is not None), None)
