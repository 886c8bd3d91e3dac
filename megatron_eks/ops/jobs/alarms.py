"""What has become of a run, and what somebody should look at: warnings, all of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.checks import in_kubernetes
from megatron_eks.ops.console import duration
from megatron_eks.ops.jobs.look import TAIL_LINES, Look
from megatron_eks.ops.jobs.pace import Pace, Planned, argument, stands_still
from megatron_eks.ops.kube import pods
from megatron_eks.ops.kube.jobs import CONTAINER, Rank
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.programs import run_log
from megatron_eks.programs.run_log import Copies

# EC2 begins to end instances 30 minutes before their block (EC2 User Guide, "How Capacity Blocks
# work"), and EKS scales its node group down ten minutes earlier (EKS User Guide, "Create a managed
# node group with Capacity Blocks").
_BEFORE_END = timedelta(minutes=40)
# One save may be under way, or just have failed.
_INTERVALS = 2


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


def alarms(
    look: Look,
    cluster: ClusterPlan,
    plan: JobPlan | None,
    found: Pace,
    *,
    predicted: Planned | None,
    newest: Checkpoint,
) -> list[Finding]:
    """Return what is wrong with a run, or will be."""
    if look.job.ended:
        return [*_copies(look)]
    still, explain = stands_still(look, found, plan), f"meks logs {look.job.name} --explain"
    return [
        *_copies(look),
        *([_warning(look, Code.RUN_STANDS_STILL, still, explain)] if still else []),
        *_block(look, cluster, found),
        *_slow(look, found, predicted),
        *_overdue(look, plan, newest),
        *_loss(look),
    ]


def _copies(look: Look) -> Iterator[Finding]:
    copied = copies(look)
    if copied is None or copied.state == "whole":
        return
    found, _, remedy = copied.text.rpartition(" - ")
    if copied.state == "missing" or look.job.ended == "Succeeded":
        text = f"finished, copies missing in {copied.uri}: {found or copied.text}"
        yield _warning(look, Code.COPIES_MISSING, text, f"meks ckpt push {look.job.name}")
    elif copied.state == "failing":
        text = f"no copies in {copied.uri}: {found or copied.text}"
        yield _warning(
            look, Code.COPIES_FAIL, text, remedy or f"meks logs {look.job.name} --rank 0"
        )


def _block(look: Look, cluster: ClusterPlan, found: Pace) -> Iterator[Finding]:
    pool = next((each for each in cluster.pools if each.name == look.job.pool), None)
    if pool is None or pool.capacity.ends_at is None or found.ends_at is None:
        return
    last = pool.capacity.ends_at - _BEFORE_END
    if found.ends_at > last:
        short = duration((found.ends_at - last).total_seconds())
        text = (
            f"it ends at {found.ends_at:%Y-%m-%d %H:%M} UTC, {short} after the Capacity Block of "
            f"{pool.name} begins to take its nodes away ({last:%Y-%m-%d %H:%M})"
        )
        remedy = "save before that, and go on in another block; or train for fewer steps"
        yield _warning(look, Code.RUN_OUTLASTS_BLOCK, text, remedy)


def _slow(look: Look, found: Pace, predicted: Planned | None) -> Iterator[Finding]:
    if predicted is None or found.mfu is None or found.mfu >= predicted.mfu_low:
        return
    text = f"MFU {found.mfu:.1%}, and nine of ten such runs reach {predicted.mfu_low:.0%} or more"
    remedy = f"find the slow GPU: meks shell {look.job.name} --all-ranks -- nvidia-smi"
    yield _warning(look, Code.SLOWER_THAN_PLAN, text, remedy)


def _overdue(look: Look, plan: JobPlan | None, newest: Checkpoint) -> Iterator[Finding]:
    last, interval = look.logs.end.last, save_interval(look, plan)
    if last is None or not interval or newest.step is None or newest.at is None:
        return
    without = last.step - newest.step
    if without >= _INTERVALS * interval:
        text = f"{without} steps since the newest checkpoint, and one is due every {interval}"
        remedy = f"meks logs {look.job.name} --rank 0 | grep checkpoint"
        yield _warning(look, Code.CHECKPOINT_OVERDUE, text, remedy)


def save_interval(look: Look, plan: JobPlan | None) -> int | None:
    """Return how many steps lie between two checkpoints."""
    if found := argument(look.job, "--save-interval"):
        return found
    training = plan.training if plan else None
    if training is None or training.speed is None or training.goodput is None:
        return None
    return round(training.goodput.interval_seconds / training.speed.step_seconds)


def _loss(look: Look) -> Iterator[Finding]:
    last = look.logs.end.last
    if last is not None and not math.isfinite(last.loss):
        text = f"step {last.step} has no loss that is a number"
        remedy = (
            f"meks cancel {look.job.name}, and go on from the last good checkpoint with a lower "
            "learning rate (MEKS-0981) or without the data of these steps"
        )
        yield _warning(look, Code.LOSS_IS_NO_NUMBER, text, remedy)


def _warning(look: Look, code: StrEnum, text: str, remedy: str) -> Finding:
    return in_kubernetes(code, (f"{look.job.kind}/{look.job.name}",), text, remedy, Level.WARNING)
