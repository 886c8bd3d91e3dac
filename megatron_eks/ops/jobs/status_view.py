"""What `meks status JOB` prints: lines for people, plain values for programs."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.failure import CHECK_FAILED, DONE
from megatron_eks.ops.jobs import curves
from megatron_eks.ops.jobs.pace import Pace, Planned
from megatron_eks.ops.jobs.status import State, summary
from megatron_eks.ops.kube.jobs import Rank
from megatron_eks.ops.output import count, formatted, picked, step_time, table
from megatron_eks.programs.run_log import Step

SCHEMA_VERSION = 1
_FEWEST = 3
"""Steps that make a course."""


def show(state: State, output: str, console: Console) -> int:
    """Print it; return 4 where a run has ended and its last copies are missing."""
    console.write(formatted(output, lines(state), lambda: as_json(state)))
    missing = any(each.code is Code.COPIES_MISSING for each in state.findings)
    return CHECK_FAILED if missing else DONE


def lines(state: State) -> Iterator[str]:
    """Yield all of it: figures, what ranks wait for, what to look at, ranks."""
    yield from head(state)
    yield from (each.line for each in state.waits)
    yield from map(str, state.findings)
    rows = [
        (str(rank.number), pod.name, short(pod.node), pod.phase, str(pod.restarts))
        if (pod := rank.pod)
        else (str(rank.number), "", "", "no pod", "")
        for rank in state.look.ranks
    ]
    if rows:
        yield from table(("RANK", "POD", "NODE", "STATE", "RESTARTS"), rows, right=(0, 4))


def head(state: State) -> Iterator[str]:
    """Yield how far a run is, and how it goes."""
    look, found, plan = state.look, state.pace, state.planned
    yield summary(look.job, look.ranks)
    if (last := look.logs.end.last) is not None:
        silent = found.silent_seconds
        yield f"step        {last}{'' if silent is None else f', {duration(silent)} ago'}"
        yield from _curves(look.logs.end.steps)
        if speed := _speed(found):
            yield f"speed       {speed}"
        if found.mfu is not None or plan is None:
            yield f"MFU         {_mfu(found, plan)}{'' if plan else f' ({state.no_plan})'}"
        if found.seconds_left and found.ends_at and not look.job.ended:
            left = duration(found.seconds_left)
            yield f"left        {left}, ends {found.ends_at:%Y-%m-%d %H:%M} UTC"
        yield f"checkpoint  {_checkpoint(state)}"
    if state.copies is not None:
        age = None if look.job.ended else _seconds(state.copies.at, state)
        since = "" if age is None else f", {duration(age)} ago"
        yield f"copies      {state.copies.state}: {state.copies.text} ({state.copies.uri}{since})"
    if (again := state.restarts).used or again.gang:
        limit = "" if again.limit is None else f" of {again.limit}"
        lost = again.lost_steps
        cost = "" if lost is None else f"; the last one lost {count(lost, 'step')}"
        yield f"restarts    {again.gang} of the gang, counted as {again.used}{limit}{cost}"


def _curves(steps: tuple[Step, ...]) -> Iterator[str]:
    rates = [each.tokens_per_second or (1 / each.seconds if each.seconds else 0) for each in steps]
    speed = [] if 0 in rates else rates
    for name, values in (("loss", [each.loss for each in steps]), ("pace", speed)):
        known = [each for each in values if math.isfinite(each)]
        if len(known) >= _FEWEST:
            among = f"{min(known):.5g} to {max(known):.5g}"
            more = f", steps {steps[0].step} to {steps[-1].step}" if name == "loss" else ""
            yield f"{name:12}{curves.sparkline(values)}  {among}{more}"


def short(node: str) -> str:
    """Write a node's name without the domain that all of them share."""
    return node.partition(".")[0]


def _speed(found: Pace) -> str:
    parts = [
        f"{step_time(found.step_seconds)} a step" if found.step_seconds else "",
        f"{found.tokens_per_second:,.0f} tokens/s" if found.tokens_per_second else "",
        f"{found.tflops_per_gpu:.0f} TFLOP/s a GPU" if found.tflops_per_gpu else "",
    ]
    return ", ".join(filter(None, parts))


def _mfu(found: Pace, plan: Planned | None) -> str:
    """Write a run's MFU beside the plan's: `ours 38.1 %, plan 41 % (36-45)`."""
    own = "ours not known" if found.mfu is None else f"ours {100 * found.mfu:.1f} %"
    if plan is None:
        return f"{own}, no plan"
    low, high = 100 * plan.mfu_low, 100 * plan.mfu_high
    return f"{own}, plan {100 * plan.mfu:.0f} % ({low:.0f}-{high:.0f})"


def _checkpoint(state: State) -> str:
    found = state.checkpoint
    if found.step is None:
        return f"not known: {found.how}"
    age = _seconds(found.at, state)
    old = "" if age is None else f", {duration(age)} old"
    return f"iteration {found.step}{old} ({found.how})"


def as_json(state: State) -> dict[str, Json]:
    """Return it as plain values; docs/schemas/status.json says which."""
    look, copies = state.look, state.copies
    return {
        "schema_version": SCHEMA_VERSION,
        "at": time_text(look.now),
        **picked(look.job, "name", "kind", "namespace"),
        "phase": look.job.phase(look.ranks),
        "message": look.job.message(),
        "progress": _progress(state),
        "plan": asdict(state.planned) if state.planned else None,
        "no_plan": state.no_plan,
        "checkpoint": {
            "iteration": state.checkpoint.step,
            "at": time_text(state.checkpoint.at),
            "age_seconds": _seconds(state.checkpoint.at, state),
            "how": state.checkpoint.how,
        },
        "copies": {**asdict(copies), "at": time_text(copies.at)} if copies else None,
        "restarts": asdict(state.restarts),
        "ranks": [_rank_json(rank) for rank in look.ranks],
        "waits_for": [{**asdict(each), "ranks": [*each.ranks]} for each in state.waits],
        "findings": [dict(each.as_json()) for each in state.findings],
    }


def step_json(step: Step | None) -> dict[str, Json] | None:
    """Return a step as plain values."""
    return picked(step, "step", "steps", "loss=finite_loss") if step else None


def _progress(state: State) -> Json:
    last, found = state.look.logs.end.last, state.pace
    if last is None:
        return None
    return {
        **(step_json(last) or {}),
        "at": time_text(last.at),
        **picked(found, "silent_seconds", "usual_silence_seconds=line_seconds", "step_seconds"),
        **picked(found, "tokens_per_second", "tflops_per_gpu", "mfu", "seconds_left"),
        "ends_at": time_text(found.ends_at),
    }


def _rank_json(rank: Rank) -> dict[str, Json]:
    if rank.pod is None:
        return {"rank": rank.number, "phase": "Missing"}
    fields: dict[str, Json] = asdict(rank.pod)
    return {"rank": rank.number, "pod": fields.pop("name"), **fields}


def _seconds(at: datetime | None, state: State) -> float | None:
    return None if at is None else max(0.0, (state.look.now - at).total_seconds())


def time_text(at: datetime | None) -> str | None:
    """Write a time for programs."""
    return None if at is None else at.isoformat(timespec="seconds").replace("+00:00", "Z")
