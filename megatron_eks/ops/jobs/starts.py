"""The starts of a job, by its record: what each one reached, what ended it, and what counted."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from megatron_eks.diagnosis.diagnose import diagnose
from megatron_eks.ops.jobs import ended
from megatron_eks.ops.kube.jobs import ENDED
from megatron_eks.programs import run_log
from megatron_eks.programs.run_log import RunLog

XID = re.compile(r"\bXid\b|NVRM|uncorrectable ECC")
WORDS = ("--all", "--objects", f"--match={run_log.TELLING}|record: |{XID.pattern}")
"""What job_logs is told for it, beside how many lines of each end."""
_BROKEN_OFF = "its record breaks off, as after an out-of-memory kill or the loss of a node"


@dataclass(frozen=True)
class Start:
    """All ranks, from when they began together until the first of them ended."""

    number: int
    begun: datetime | None
    ended: datetime | None
    """None while it runs, and where nobody knows."""
    log: RunLog
    went_on: int
    """The step of the checkpoint that it began with; 0 without one."""
    counted: int
    """Steps of it that were not done again, or lost at the end."""
    lost: int
    cause: str = ""
    """Why it ended; empty while it runs, or where it ended well."""
    code: str = ""

    @property
    def reached(self) -> int:
        """The last step."""
        return self.log.last.step if self.log.last else self.went_on

    @property
    def step_seconds(self) -> float:
        """What a step takes, usually; 0 where no line tells."""
        return statistics.median([each.seconds or 0 for each in self.log.steps] or [0])

    @property
    def seconds(self) -> float:
        """How long it took; 0 where nobody knows."""
        return (self.ended - self.begun).total_seconds() if self.ended and self.begun else 0

    @property
    def useful_seconds(self) -> float:
        """The time of the steps that count."""
        useful = self.counted * self.step_seconds
        return min(useful, self.seconds) if self.seconds else useful


def read(lines: Sequence[str], phase: str, now: datetime) -> tuple[Start, ...]:
    """Return the starts in the lines of a record; `phase` is the job's."""
    found = _by_start(lines)
    made: list[Start] = []
    last = max(found, default=0)
    # From the last one back: what the next one went on from says what counted.
    after: Start | None = None
    for number in sorted(found, reverse=True):
        ranks = found[number]
        # The record's own line about an end quotes what was printed last.
        own = (
            [line for line in said if not line.startswith("record: ")] for said in ranks.values()
        )
        log = run_log.merged(map(run_log.read, own))
        went_on = log.loads[-1].step if log.loads else 0
        reached = log.last.step if log.last else went_on
        kept = reached
        if after is not None:
            kept = min(reached, after.went_on)
        elif phase in {"Failed", "Cancelled"}:
            kept = max((each.step for each in log.saves), default=went_on)
        counted = max(0, kept - went_on)
        ends = _times(ranks, ended.END, 3)
        end = max(ends, default=after.begun if after else None)
        if number == last and phase not in ENDED:
            end = now
        failed = after is not None or phase == "Failed"
        cause, code = _why(ranks) if failed else ("", "")
        begun = min(_times(ranks, ended.START, 2), default=None)
        lost = reached - went_on - counted
        after = Start(number, begun, end, log, went_on, counted, lost, cause, code)
        made.append(after)
    return tuple(reversed(made))


def alone(log: RunLog) -> Start:
    """Return what the logs of pods tell, where there is no record."""
    return Start(1, log.first_at, None, log, 0, log.last.step if log.last else 0, 0)


def _by_start(lines: Sequence[str]) -> dict[int, dict[int, list[str]]]:
    """Sort lines by start and rank; those before the first sign of a start belong to none."""
    found: dict[int, dict[int, list[str]]] = {}
    for rank, own in ended.by_rank(lines).items():
        current: list[str] = []
        for line in own:
            if begun := ended.START.match(line):
                current = found.setdefault(int(begun[1]), {}).setdefault(rank, [])
            current.append(line)
    return found


def _times(
    ranks: Mapping[int, Sequence[str]], pattern: re.Pattern[str], group: int
) -> list[datetime]:
    found = (pattern.match(line) for own in ranks.values() for line in own)
    return [datetime.fromisoformat(each[group]) for each in found if each]


def _why(ranks: Mapping[int, Sequence[str]]) -> tuple[str, str]:
    """Return what ended a start, by what its ranks printed, or else by how the first one ended."""
    lines = (f"[{rank}] {line}" for rank, own in ranks.items() for line in own)
    found = diagnose(ended.printed([*lines]))
    if found.code:
        return found.cause, found.code.value
    return min(_ends(ranks), default=("", _BROKEN_OFF))[1], ""


def _ends(ranks: Mapping[int, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for rank, own in ranks.items():
        for end in filter(None, map(ended.END.fullmatch, own)):
            if end[1] and end[1] != "0":
                said = f": {end[4]}" if end[4] else ""
                yield end[3], f"rank {rank} was ended by exit code {end[1]}{said}"
            elif end[2]:
                # What it printed last is no reason.
                yield end[3], f"rank {rank} was ended by signal {end[2]}"
