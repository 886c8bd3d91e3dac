"""What has become of a run: its newest checkpoint, its copies, and its restarts."""

from dataclasses import dataclass
from datetime import datetime

from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.jobs.look import TAIL_LINES, Look
from megatron_eks.ops.kube import pods
from megatron_eks.ops.kube.jobs import CONTAINER, Rank
from megatron_eks.programs import run_log
from megatron_eks.programs.run_log import Copies


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


def _container(rank: Rank) -> Object:
    known = pods.containers(rank.manifest)
    return next((each for each in known if each["name"] == CONTAINER), {})


def _lost(look: Look) -> int | None:
    reached, loads = look.before.end.last, look.logs.begin.loads
    if reached is None or not look.logs.begin.first_at:
        return None
    went_on = loads[-1].step if loads else 0
    return max(0, reached.step - went_on)
