"""The course of a run in its log: what shows a trouble, and what came later than it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from megatron_eks.diagnosis import endings, pods
from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.lines import Line
from megatron_eks.diagnosis.signatures import Signature, Tier, of_the_shell, raised
from megatron_eks.diagnosis.tally import Tally

OF_RANKS = frozenset({LogCode.COLLECTIVE_TIMED_OUT, LogCode.PEER_GONE})
"""What a rank sees of another one's end."""

OF_WATCHERS = frozenset({"ENDED_BY_OTHERS.watcher", "ERROR_OF_A_PROGRAM.blocked"})
"""What a watcher says before it kills the ranks of its node."""

_KERNEL = re.compile(r"\b(Lustre|LNet)(Error)?: ")
"""What a node's kernel says: no sign that a pod's program runs."""

_TOLD = re.compile(
    r"OOMKilled|Evicted|ErrImagePull|BackOff|[Ee]xit [Cc]ode:? +137|\bXid\b"
    r"|^\[[a-z]+\] .*CUDA out of"
)
"""What ends a pod from outside: no program tells it of itself, and then ends by an error."""
_ONLY_KUBERNETES = re.compile(r"OOMKilled|\bEvicted\b")
_FIRST_HAND = re.compile(
    r"^\s*(Reason|State|Last State|Message|Exit Code)\b|^\s*[\w./-]+ {2,}\S|^\s*\{|\t"
    r"|^([\w.]+\s+)?(Warning|Normal)\s.*(pod|job)\S*/|^(\S+ )?NVRM"
)
"""Kubernetes and the driver themselves."""
_OTHER_JOB = re.compile(
    r"\b(job|run|task) [\"'\w./-]+ +(is |has |was )?(FAILED|[Ff]ailed|died|crashed|killed|ended)\b"
)
"""A report of other jobs, where the program ends by an error of its own later."""
_PASSED_OVER = re.compile(r"\b(is|are|was|were|been) (skipped|ignored)\b|\b[Ss]kipping\b")
"""The program itself goes on without it."""
_CONTAINER = re.compile(r"\s*(Reason: +OOMKilled|Exit Code: +137)")
_OF_GPUS = re.compile(r"CUDA|NCCL|GPU|memory|[Kk]illed")
_FINAL = re.compile(r"^\s*(Message|Reason): ")
"""What Kubernetes says of a pod that has ended, wherever it stands."""

_AFTER_SIGNAL = frozenset({LogCode.GROUP_NOT_INITIALISED, LogCode.MEETING_TIMED_OUT})
"""What a launcher or a rank says of its group when a signal from outside has ended it."""

# Collectives keep ranks together, so after a rank has failed another reports one step at most.
_SURVIVED = 2
_ON = 10
"""Lines after a request that is tried again which say that one of them was answered."""


@dataclass(frozen=True)
class Sign:
    """A line that shows a known trouble; `place` is its place in time."""

    place: int
    line: Line
    signature: Signature
    tier: Tier


class Course:
    """The lines in their order, what shows a trouble, and what came later than a place."""

    def __init__(self, kept: Tally) -> None:
        self.kept, self.ordered = kept, kept.ordered()
        shows, ordered = kept.shows(), self.ordered
        self.signs: Sequence[Sign] = [
            Sign(place, line, signature, signature.tier_of(line.text))
            for place, line in enumerate(ordered)
            if (signature := shows.get((line.number, line.text))) is not None
            and not (_reports(line.text) and any(e.number > line.number for e in kept.errors))
        ]
        reports = ((place, each.progress) for place, each in enumerate(ordered))
        last = {progress: place for place, progress in reports if progress is not None}
        self._steps = [(place, ordered[place]) for place in sorted(last.values())]
        for is_other, tier in (
            (self._was_told, Tier.CONSEQUENCE),
            (self._is_of_another, Tier.MILD),
        ):
            self.signs = [
                replace(each, tier=tier) if is_other(each) else each for each in self.signs
            ]
        signs = self.signs
        self.end = endings.place(ordered)
        """Where the run said that it was done; -1 if it did not."""
        self.ended_well = self.end >= 0 and not any(
            not self._ended_after(each) and each.tier <= Tier.GENERIC and not each.signature.echo
            for each in signs
        )
        self._last_own = max((each.place for each in signs if _of_the_program(each)), default=-1)
        self._last_of_ranks = max(
            (each.place for each in signs if each.signature.code in OF_RANKS), default=-1
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
        alive = [each for each in signs if each.tier <= Tier.GENERIC and not self.outlived(each)]
        if self.end < 0 and kept.closing and not (alive or kept.errors):
            self.end, self.ended_well = ordered.index(kept.closing[-1]), True

    @property
    def last_step(self) -> int | None:
        """The last step that a line names."""
        return next((line.step for line in reversed(self.ordered) if line.step is not None), None)

    def preference(self, sign: Sign) -> tuple[bool, int, int]:
        """Return what orders signs, the cause first: outlived ones last, then by tier and time."""
        tier = Tier.CONSEQUENCE if sign.signature.echo and self._followed(sign) else sign.tier
        return self.outlived(sign), tier, sign.place

    def outlived(self, sign: Sign) -> bool:
        """Say whether the run went on after it."""
        final = _FINAL.match(sign.line.text) and not sign.line.timed and sign.tier is Tier.CAUSE
        if final and not sign.signature.start:
            return self._ended_after(sign)
        # One step is enough after what is a warning in its own words.
        mild = sign.tier is Tier.MILD
        if mild and _PASSED_OVER.search(sign.line.text):
            return True
        enough = 1 if mild else _SURVIVED
        later = sum(
            place > sign.place and (mild or self._is_later(step, sign.line))
            for place, step in self._steps[-_SURVIVED:]
        )
        outlived = (
            later >= enough
            or self._ended_after(sign)
            or ((mild or _is_said(sign)) and self._quiet(sign))
        )
        if of_the_shell(sign.line.text):
            # What prepares a run is over when ranks talk to each other.
            outlived = outlived or self._last_of_ranks > sign.place
        if sign.signature.start:
            # The pod got its node, image and volumes in the end: its program ran.
            outlived = outlived or later > 0 or self._last_own > sign.place or self.over(sign)
        return outlived

    def _quiet(self, sign: Sign) -> bool:
        """Say whether its rank wrote on for a while, and no line shows anything worse since."""
        on = self.kept.heard[sign.line.rank] - sign.line.number
        mild = sign.tier is Tier.MILD
        if mild and self.kept.answered.get(sign.line.rank, 0) > sign.line.number:
            return True
        later = (each for each in self.signs if each.place > sign.place)
        return (
            on >= _ON
            and all(each.tier is Tier.MILD for each in later)
            and not any(each.number > sign.line.number for each in self.kept.errors)
        )

    def _ended_after(self, sign: Sign) -> bool:
        # The first rank says so, whose log stands first where they stand one after the other.
        timed = sign.line.timed and sign.line.rank != self.ordered[self.end].rank
        later = self.ordered[self.end].number >= sign.line.number
        return self.end >= sign.place and (timed or later)

    def _is_later(self, later: Line, line: Line) -> bool:
        """Say whether one is later than the other: by lines of one stream, else by their times."""
        if line.rank is None or later.rank is None or line.rank == later.rank:
            return later.number > line.number
        # Logs of ranks may stand one after the other: what has no time is placed by its own rank.
        return line.timed or self.kept.heard[line.rank] > later.number > line.number

    def _was_told(self, sign: Sign) -> bool:
        """Say whether it only follows: a watcher, or a signal from outside, had ended the ranks."""
        before: frozenset[str] = frozenset()
        if sign.signature.code is LogCode.KILLED:
            before = OF_WATCHERS
        elif sign.signature.code in _AFTER_SIGNAL:
            before = frozenset({"LAUNCHER_SIGNALLED.term"})
        return any(
            each.signature.name in before
            and each.line.rank in (sign.line.rank, None)
            and each.place < sign.place
            and not any(each.place < place < sign.place for place, _ in self._steps)
            for each in self.signs
        )

    def _is_of_another(self, sign: Sign) -> bool:
        """Say whether a program tells of some pod's or node's end, and may end by itself later."""
        text = sign.line.text
        if _reports(text):
            return True
        # A container that was killed raises nothing: its next start did, or another container.
        of_container, first_hand = _CONTAINER.match(text), _FIRST_HAND.search(text)
        if not _TOLD.search(text) or (first_hand and not of_container):
            return False
        if not first_hand and _ONLY_KUBERNETES.search(text) and sign.tier <= Tier.GENERIC:
            return True
        return any(
            each.place > sign.place
            and each.tier <= Tier.GENERIC
            and not _OF_GPUS.search(each.line.text)
            and (of_container or (each.line.rank, each.line.pod) == (sign.line.rank, sign.line.pod))
            and raised(each.line.text)
            for each in self.signs
        )

    def _followed(self, sign: Sign) -> bool:
        return any(
            place < sign.place and rank != sign.line.rank for place, rank in self._first_ends
        )

    def over(self, sign: Sign) -> bool:
        """Say whether the pod came further than what had held it up."""
        pod = _pod(sign.line)
        return bool(sign.signature.start) and any(
            place > sign.place and stage >= sign.signature.start and pod in (None, other)
            for place, stage, other in self._stages
        )


def _pod(line: Line) -> str | None:
    return pods.pod(line.text) or line.pod


def _is_said(sign: Sign) -> bool:
    """Say whether it is a line of a program that may go on, and no exception."""
    text = sign.line.text
    ends = raised(text) or _FIRST_HAND.search(text) or _KERNEL.search(text)
    return not (ends or sign.signature.start)


def _reports(text: str) -> bool:
    return bool(_OTHER_JOB.search(text)) and not _FIRST_HAND.search(text)


def _of_the_program(sign: Sign) -> bool:
    own = not sign.signature.start and sign.tier <= Tier.GENERIC
    return own and not _KERNEL.search(sign.line.text)
