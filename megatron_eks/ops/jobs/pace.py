"""How fast a run is beside its plan, how long it still takes, and whether it stands still."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from megatron_eks.ops.console import duration
from megatron_eks.ops.jobs.look import Look
from megatron_eks.ops.kube import pods
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.programs.run_log import LEAST_MFU, NEWEST, Step, longest_silence

# Start, rendezvous, and reading a checkpoint, of a run that nothing is planned of.
_START_SECONDS = 1800
_STARTS = 2
# What a run of another batch than the file's would differ by, at least.
_SAME = 0.02


@dataclass(frozen=True)
class Planned:
    """What `meks plan` says of a job's speed."""

    step_seconds: float
    tokens_per_second: float
    tflops_per_gpu: float
    mfu: float
    mfu_low: float
    """Nine of ten runs lie between this and `mfu_high`."""
    mfu_high: float


@dataclass(frozen=True)
class Pace:
    """How fast a run is: medians of its newest lines."""

    step_seconds: float | None
    tokens_per_second: float | None
    """Of all GPUs together."""
    tflops_per_gpu: float | None
    mfu: float | None
    line_seconds: float | None
    """Between two lines about a step, usually."""
    silent_seconds: float | None
    """Since the newest one, or since all ranks run."""
    seconds_left: float | None
    ends_at: datetime | None


def planned(plan: JobPlan | None) -> Planned | None:
    """Return what is predicted of a job."""
    training = plan.training if plan else None
    speed = training.speed if training else None
    if training is None or speed is None:
        return None
    rate = speed.tokens_per_second_per_gpu
    return Planned(
        step_seconds=speed.step_seconds,
        tokens_per_second=rate * training.layout.gpus,
        tflops_per_gpu=speed.tflops_per_gpu,
        mfu=speed.mfu,
        mfu_low=speed.mfu * speed.low / rate,
        mfu_high=speed.mfu * speed.high / rate,
    )


def plan_of(jobs: Sequence[JobPlan], job: RunningJob) -> tuple[JobPlan | None, str]:
    """Return the plan of a running job, or why there is none to compare it with."""
    found = next((each for each in jobs if each.name == job.name), None)
    if found is None:
        return None, f"no job file has the name {job.name}"
    specs = job.pod_specs
    own = [[*(each["containers"][0].get("args") or ())] for _, each in specs]
    if job.wanted != found.nodes or any(args != list(found.args) for args in own):
        return None, f"{job.name} was submitted with other values than its file has now"
    return found, ""


def pace(look: Look, plan: JobPlan | None) -> Pace:
    """Return how fast a run is."""
    steps = look.logs.end.steps
    newest = steps[-NEWEST:]
    # The first line of a start holds compilation and the first collectives.
    counted = newest[1:] if len(newest) > 2 else newest  # noqa: PLR2004 -- something must remain
    step_seconds = _median([each.seconds for each in counted])
    tokens = _median([tokens_per_second(each, look.job, plan) for each in counted])
    tflops = _median([each.tflops_per_gpu for each in counted])
    left = _left(steps, step_seconds)
    begun = steps[-1].at if steps else _all_began(look)
    line_seconds = _line_seconds(steps)
    return Pace(
        step_seconds=step_seconds,
        tokens_per_second=tokens,
        tflops_per_gpu=tflops,
        mfu=_mfu(_median([each.mfu for each in counted]), tflops, tokens, planned(plan)),
        line_seconds=line_seconds,
        silent_seconds=max(0.0, (look.now - begun).total_seconds()) if begun else None,
        seconds_left=left,
        ends_at=None if left is None else look.now + timedelta(seconds=left),
    )


def left(newest: Step, plan: JobPlan | None) -> tuple[float | None, bool]:
    """Return how many seconds are left after a step, and whether it says itself how long one takes.

    The plan predicts it otherwise.
    """
    speed = planned(plan)
    each = speed.step_seconds if speed else None
    if measured := newest.seconds is not None:
        each = newest.seconds
    return None if each is None else each * max(0, newest.steps - newest.step), measured


def stands_still(look: Look, found: Pace, plan: JobPlan | None) -> str:
    """Say that no step comes any more, or nothing; a run may wait for longer than a step."""
    if look.job.phase(look.ranks) != "Running" or found.silent_seconds is None:
        return ""
    silent = found.silent_seconds
    last = look.logs.end.last
    if last is None:
        goodput = plan.training.goodput if plan and plan.training else None
        most = _STARTS * goodput.restart_seconds if goodput else _START_SECONDS
        return f"no step {duration(silent)} after all ranks began" if silent > most else ""
    usual = found.line_seconds or NEWEST * (found.step_seconds or 0)
    if last.step >= last.steps or not usual:
        return ""
    if silent <= longest_silence(usual):
        return ""
    return f"no step for {duration(silent)}, usual {duration(usual)}"


def _median(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return statistics.median(known) if known else None


def tokens_per_second(step: Step, job: RunningJob, plan: JobPlan | None) -> float | None:
    """Return how fast a step was, on all GPUs together."""
    if step.tokens_per_second is not None or not step.seconds:
        return step.tokens_per_second
    length = argument(job, "--seq-length")
    if step.samples and length:
        return step.samples * length / step.seconds
    if plan and plan.training:
        return plan.training.tokens / step.steps / step.seconds
    return None


def argument(job: RunningJob, name: str) -> int | None:
    """Return a number that the program is given as an option."""
    words = [str(each) for each in job.pod_specs[0][1]["containers"][0].get("args") or ()]
    for word, after in pairwise([*words, ""]):
        value = after if word == name else word.removeprefix(f"{name}=") if "=" in word else ""
        if value.isdecimal():
            return int(value)
    return None


def _mfu(
    own: float | None, tflops: float | None, tokens: float | None, plan: Planned | None
) -> float | None:
    """Return the share of the GPU's peak: the run's own word, else by the plan's peak."""
    found = own
    if own is None and plan is not None and tflops is not None:
        found = tflops / plan.tflops_per_gpu * plan.mfu
    elif own is None and plan is not None and tokens is not None:
        found = tokens / plan.tokens_per_second * plan.mfu
    return None if found is None or found < LEAST_MFU else found


def same_batch(found: Pace, plan: Planned | None) -> bool:
    """Say whether a run's steps hold as many tokens as the plan's."""
    if plan is None or found.tokens_per_second is None or not found.step_seconds:
        return True
    own, theirs = (
        each.tokens_per_second * each.step_seconds  # type: ignore[operator]
        for each in (found, plan)
    )
    return bool(abs(own / theirs - 1) < _SAME)


def _left(steps: Sequence[Step], step_seconds: float | None) -> float | None:
    """Return how long the rest takes, as the time between lines goes: saving and validation too."""
    if not steps or step_seconds is None:
        return None
    last, first = steps[-1], steps[0]
    each = step_seconds
    if last.step > first.step and last.at and first.at:
        each = max(each, (last.at - first.at).total_seconds() / (last.step - first.step))
    return max(0, last.steps - last.step) * each


def _line_seconds(steps: Sequence[Step]) -> float | None:
    times = [each.at for each in steps if each.at]
    gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
    found = _median([gap for gap in gaps if gap >= 0])
    return found or None


def _all_began(look: Look) -> datetime | None:
    begun = []
    for rank in look.ranks:
        known = pods.containers(rank.manifest)
        states = [each.get("state", {}).get("running") for each in known]
        if not states or None in states:
            return None
        begun += [datetime.fromisoformat(each["startedAt"]) for each in states]
    return max(begun, default=None)
