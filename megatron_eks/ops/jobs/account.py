"""What has become of a run's time: its newest checkpoint, its restarts, and how much counted.

Goodput is the time of the steps that count over the time since the first start, as Kokolis et al.
2024 (arXiv 2410.21680) define the effective training time ratio, without the time in a queue:
starts, restarts, steps that are done again, saving and validation count for nothing.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.jobs.look import TAIL_LINES, Logs, Look
from megatron_eks.ops.jobs.pace import Pace
from megatron_eks.ops.kube import pods
from megatron_eks.ops.kube.jobs import CONTAINER, Rank
from megatron_eks.programs import run_log
from megatron_eks.programs.run_log import Copies

# A log whose first line is later than this after its container's start has lost its beginning.
_BEGINNING = timedelta(minutes=2)
# A pod that is so much younger than others took the place of one.
_YOUNGER = timedelta(minutes=1)


@dataclass(frozen=True)
class Checkpoint:
    """The newest whole checkpoint that the log tells of."""

    step: int | None
    at: datetime | None
    how: str
    """Where this is known from, or why nothing is known."""


@dataclass(frozen=True)
class Restarts:
    """How often a job's ranks have started again."""

    gang: int
    """All together: in new pods, or the most of any rank, as far as its pod remembers."""
    used: int
    """What counts towards the limit: those of all pods in place, or of the whole set."""
    limit: int | None
    lost_steps: int | None
    """Steps that were done again after the last one; None if the logs do not tell."""


@dataclass(frozen=True)
class Goodput:
    """The share of a run's time that counts."""

    share: float
    since: datetime
    first_start: bool
    """Whether that is the job's first start, or the earliest whose log there still is."""
    steps: int
    """Steps that count."""
    step_seconds: float


def checkpoint(look: Look) -> Checkpoint:
    """Return the newest checkpoint that the logs of the first and last rank tell of."""
    logs = (look.logs, look.before)
    saves = [mark for each in logs for log in (each.end, each.begin) for mark in log.saves]
    if saves:
        newest = max(saves, key=lambda mark: mark.step)
        return Checkpoint(newest.step, newest.at, "its log says when it was complete")
    loads = [mark for each in logs for mark in each.begin.loads if mark.step]
    if loads:
        return Checkpoint(loads[0].step, None, "it went on from it, and tells of none since")
    why = f"neither the first 256 KiB nor the last {TAIL_LINES} lines of its log tell of one"
    return Checkpoint(None, None, why if look.logs.end.last else "no step is logged yet")


def copies(look: Look) -> Copies | None:
    """Return what the run says last of its copies in S3, in its log or as its container's word."""
    told = look.logs.end.copies or look.logs.begin.copies
    if told is not None or not look.ranks:
        return told
    words = _container(look.ranks[0]).get("state", {}).get("terminated", {}).get("message", "")
    return run_log.read(words.splitlines()).copies


def restarts(look: Look) -> Restarts:
    """Count restarts."""
    spec = look.job.made["spec"]
    if policy := spec.get("failurePolicy"):
        status = look.job.made.get("status", {})
        counted = int(status.get("restartsCountTowardsMax") or 0)
        return Restarts(look.job.restarts, counted, policy.get("maxRestarts"), _lost(look))
    counts = [_container(rank).get("restartCount", 0) for rank in look.ranks]
    return Restarts(
        gang=max(counts, default=0),
        used=sum(rank.pod.restarts for rank in look.ranks if rank.pod),
        limit=(spec.get("runPolicy") or spec).get("backoffLimit"),
        lost_steps=_lost(look),
    )


def goodput(look: Look, found: Pace) -> Goodput | None:
    """Return how much of the time counted; None where the logs do not tell."""
    last = look.logs.end.last
    if last is None or not found.step_seconds or not look.ranks:
        return None
    rank = look.ranks[0]
    before = _container(rank).get("lastState", {}).get("terminated")
    state = _container(rank).get("state", {})
    now: Object = state.get("running") or state.get("terminated") or {}
    options = [(look.before, before)] if before else []
    for logs, container in [*options, (look.logs, now)]:
        begun = pods.moment((container or {}).get("startedAt"))
        first = _first_step(logs, begun)
        if begun is not None and first is not None and first <= last.step:
            break
    else:
        return None
    end = pods.moment(now.get("finishedAt")) if look.job.ended else None
    until = end or look.now
    seconds = (until - begun).total_seconds()
    counted = (last.step - first) * found.step_seconds
    if seconds <= 0:
        return None
    # The clocks of a node and of the server may differ by a second.
    return Goodput(
        share=min(1.0, counted / seconds),
        since=begun,
        first_start=_is_first(look, container is before),
        steps=last.step - first,
        step_seconds=found.step_seconds,
    )


def _container(rank: Rank) -> Object:
    known = pods.containers(rank.manifest)
    return next((each for each in known if each["name"] == CONTAINER), {})


def _first_step(logs: Logs, begun: datetime | None) -> int | None:
    """Return the step that a container went on from, if its log still has its beginning."""
    log = logs.begin
    if begun is None or log.first_at is None or log.first_at > begun + _BEGINNING:
        return None
    return log.loads[-1].step if log.loads else 0


def _is_first(look: Look, is_before: bool) -> bool:  # noqa: FBT001 -- which of two it is
    restarts = _container(look.ranks[0]).get("restartCount", 0)
    if look.job.restarts or restarts > (1 if is_before else 0):
        return False
    there = (each.manifest["metadata"] for each in look.ranks if each.manifest)
    first, *others = (datetime.fromisoformat(each["creationTimestamp"]) for each in there)
    return first - min([first, *others]) <= _YOUNGER


def _lost(look: Look) -> int | None:
    reached, loads = look.before.end.last, look.logs.begin.loads
    if reached is None or not look.logs.begin.first_at:
        return None
    went_on = loads[-1].step if loads else 0
    return max(0, reached.step - went_on)
