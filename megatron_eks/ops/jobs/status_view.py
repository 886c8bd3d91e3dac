"""What `meks status JOB` prints: lines for people, plain values for programs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.ops.console import duration
from megatron_eks.ops.failure import CHECK_FAILED, DONE
from megatron_eks.ops.jobs import curves, node_view
from megatron_eks.ops.jobs.account import Restarts
from megatron_eks.ops.jobs.pace import Pace, Planned, span
from megatron_eks.ops.jobs.status import State, summary
from megatron_eks.ops.jobs.watching import View, fitted
from megatron_eks.ops.kube.jobs import Rank
from megatron_eks.ops.output import count, picked, table

SCHEMA_VERSION = 1
_FEWEST = 3
"""Steps that make a course."""


def view(state: State, levels: str = curves.ASCII) -> View:
    """Return it in all forms; `levels` are signs that the terminal has."""
    missing = any(each.code is Code.COPIES_MISSING for each in state.findings)
    return View(
        lines=lambda: lines(state, levels),
        screen=lambda rows: _screen(state, rows, levels),
        news=lambda: news(state),
        as_json=lambda: as_json(state),
        time=f"{state.look.now:%H:%M:%S}",
        ended=bool(state.look.job.ended),
        code=CHECK_FAILED if missing else DONE,
    )


def lines(state: State, levels: str = curves.ASCII) -> Iterator[str]:
    """Yield all of it: figures, ranks, what they wait for, what to look at."""
    yield from head(state, levels)
    yield from _table(state)
    yield from tail(state)


def news(state: State) -> Iterator[tuple[str, str]]:
    """Yield what may change: what it is known by, and a line."""
    last = state.look.logs.end.last
    text = summary(state.look.job, state.look.ranks)
    text += f", step {last}" if last else ""
    yield text, text
    yield from ((str(each), each.line) for each in state.waits)
    # What a finding says changes with the time; that there is one is told once.
    yield from ((f"{each.code}", str(each)) for each in state.findings)


def _screen(state: State, rows: int, levels: str) -> list[str]:
    """Return as much as fits: figures, what is wrong, then ranks, those that do not run first."""
    ranks = state.look.ranks
    halting_first = sorted(ranks, key=lambda each: each.runs)
    first = [*head(state, levels), *tail(state)]
    if len(first) + len(ranks) + 1 <= rows:
        return [*first, *_table(state)]
    shown = _table(state) if state.nodes is not None else rank_table(halting_first)
    return list(fitted(first, [shown], rows))


def _table(state: State) -> Iterator[str]:
    return rank_table(state.look.ranks) if state.nodes is None else node_view.lines(state.nodes)


def head(state: State, levels: str = curves.ASCII) -> Iterator[str]:
    """Yield how far a run is, and how it goes."""
    look = state.look
    yield summary(look.job, look.ranks)
    last = look.logs.end.last
    if last is not None:
        silent = state.pace.silent_seconds
        age = "" if silent is None else f", {span(silent)} ago"
        yield f"step        {last}{age}"
        yield from _curves(state, levels)
        yield from _speed(state)
        left, end = state.pace.seconds_left, state.pace.ends_at
        if left and end and not look.job.ended:
            yield f"left        {duration(left)}, ends {end:%Y-%m-%d %H:%M} UTC"
        yield f"checkpoint  {_checkpoint(state)}"
        yield f"goodput     {_goodput(state)}"
    if state.copies is not None:
        yield f"copies      {_copies(state)}"
    if text := _restarts(state.restarts):
        yield f"restarts    {text}"


def _curves(state: State, levels: str) -> Iterator[str]:
    """Yield the course of loss and speed, as far as the end of the log tells of it."""
    steps = state.look.logs.end.steps
    rates = [each.tokens_per_second or (1 / each.seconds if each.seconds else 0) for each in steps]
    speed = [] if 0 in rates else rates
    for name, values in (("loss", [each.loss for each in steps]), ("pace", speed)):
        known = [each for each in values if math.isfinite(each)]
        if len(known) >= _FEWEST:
            among = f"{min(known):.5g} to {max(known):.5g}"
            more = f", steps {steps[0].step} to {steps[-1].step}" if name == "loss" else ""
            yield f"{name:12}{curves.sparkline(values, levels)}  {among}{more}"


def rank_table(ranks: Sequence[Rank]) -> Iterator[str]:
    """Yield a line a rank."""
    rows = [
        (str(rank.number), pod.name, short(pod.node), pod.phase, str(pod.restarts))
        if (pod := rank.pod)
        else (str(rank.number), "", "", "no pod", "")
        for rank in ranks
    ]
    if rows:
        yield from table(("RANK", "POD", "NODE", "STATE", "RESTARTS"), rows, right=(0, 4))


def tail(state: State) -> Iterator[str]:
    """Yield what ranks wait for, and what is wrong."""
    yield from (each.line for each in state.waits)
    yield from map(str, state.findings)


def short(node: str) -> str:
    """Write a node's name without the domain that all of them share."""
    return node.partition(".")[0]


def _speed(state: State) -> Iterator[str]:
    found, plan = state.pace, state.planned
    parts = [
        f"{span(found.step_seconds)} a step" if found.step_seconds else "",
        f"{found.tokens_per_second:,.0f} tokens/s" if found.tokens_per_second else "",
        f"{found.tflops_per_gpu:.0f} TFLOP/s a GPU" if found.tflops_per_gpu else "",
    ]
    if any(parts):
        yield f"speed       {', '.join(part for part in parts if part)}"
    if found.mfu is not None or plan is None:
        yield f"MFU         {mfu(found, plan)}{'' if plan else f' ({state.no_plan})'}"


def mfu(found: Pace, plan: Planned | None) -> str:
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


def _copies(state: State) -> str:
    """Write what is in S3; a run that waits for it at its end says for how long."""
    found = state.copies
    assert found is not None  # noqa: S101 -- the caller has looked
    age = _seconds(found.at, state)
    since = "" if age is None or state.look.job.ended else f", {span(age)} ago"
    return f"{found.state}: {found.text} ({found.uri}{since})"


def _goodput(state: State) -> str:
    found = state.goodput
    if found is None:
        return "not known: the log has lost its beginning, or has no step"
    start = "first start" if found.first_start else "start before the last restart"
    return f"{found.share:.1%} since its {start}, {found.since:%Y-%m-%d %H:%M} UTC"


def _restarts(found: Restarts) -> str:
    if not (found.used or found.gang):
        return ""
    limit = "" if found.limit is None else f" of {found.limit}"
    lost = (
        "" if found.lost_steps is None else f"; the last one lost {count(found.lost_steps, 'step')}"
    )
    return f"{found.gang} of the gang, counted as {found.used}{limit}{lost}"


def as_json(state: State) -> dict[str, Json]:
    """Return it as plain values; docs/schemas/status.json says which."""
    look, copies, goodput = state.look, state.copies, state.goodput
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
        "goodput": {**asdict(goodput), "since": time_text(goodput.since)} if goodput else None,
        "restarts": asdict(state.restarts),
        "ranks": [_rank_json(rank) for rank in look.ranks],
        "waits_for": [{**asdict(each), "ranks": [*each.ranks]} for each in state.waits],
        "findings": [dict(each.as_json()) for each in state.findings],
        **({} if state.nodes is None else {"nodes": node_view.as_json(state.nodes)}),
    }


def _progress(state: State) -> Json:
    last, found = state.look.logs.end.last, state.pace
    if last is None:
        return None
    return {
        **picked(last, "step", "steps", "loss=finite_loss"),
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
