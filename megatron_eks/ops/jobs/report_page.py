"""The page of `meks report JOB`: first what happened, when, and what it cost; then the rest."""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.console import duration
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import DONE
from megatron_eks.ops.html import Part, table, tag
from megatron_eks.ops.html import page as whole
from megatron_eks.ops.jobs import curves, pace, records, room
from megatron_eks.ops.jobs.curves import Line
from megatron_eks.ops.jobs.report import Report, read
from megatron_eks.ops.jobs.starts import Start
from megatron_eks.ops.jobs.status_view import short
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.output import count, replace_file, usd
from megatron_eks.programs.run_log import Step

FOLDER = "reports"
"""Beside the cluster file."""
_MOST = 200
"""Lines of a list; the first and the last ones say what there is to know."""
STYLE = Path(__file__).with_name("report.css")


def run(name: str, out: Path | None, on: Opened) -> int:
    """Write the page. Raises Failure if nobody knows the job."""
    place = SharedPod(*on, records.claim_of(on.project, name))
    target = out or on.project.file.parent / FOLDER / f"{name}.html"
    replace_file(target, page(read(place, name, on)), "and write it again")
    on.console.write(f"{target}\n")
    return DONE


def page(found: Report) -> str:
    """Write it: the first screen, then the rest."""
    job, phase = found.state.look.job, found.phase
    parts = (*_first(found), *_curves(found), *_starts(found), *_health(found), *_settings(found))
    return whole(f"{job.name}: {phase}", STYLE.read_text(), *parts)


def _first(found: Report) -> Iterator[Part]:
    job, now = found.state.look.job, found.state.look.now
    yield tag("h1", job.name)
    times = f"{_at(found.begun)} to {_at(found.ended) if job.ended else 'now'}"
    yield tag("p", f"{times}, written {_at(now)} by meks report", class_="soft")
    yield tag("div", *_outcome(found, found.phase), class_=f"outcome {found.phase}")
    facts = (tag("div", tag("dt", name), tag("dd", *rest)) for name, *rest in _facts(found))
    yield tag("dl", *facts)
    for note in found.notes:
        yield tag("p", f"note: {note}", class_="soft")


def _outcome(found: Report, phase: str) -> Iterator[Part]:
    yield tag("p", tag("strong", phase))
    cause, message = found.cause, found.state.look.job.message()
    if cause is None:
        said = {"Succeeded": "The run ended well.", "Running": "It runs; nothing has ended it."}
        yield tag("p", said.get(phase, message or "Nothing is known of why."))
    else:
        yield tag("p", f"{cause.cause} [{cause.code}]" if cause.code else cause.cause)
        if cause.code:
            yield tag("p", f"What to do: {cause.remedy}")
            yield from (tag("pre", line.text.strip()[:500]) for line in cause.evidence[:1])
        if message:
            yield tag("p", message, class_="soft")
    yield from (tag("p", each.line) for each in found.state.waits)
    for finding in found.state.findings:
        yield tag("p", f"{finding.found} - {finding.remedy} [{finding.code}]")


def _facts(found: Report) -> Iterator[tuple[Part, ...]]:
    state, last = found.state, found.state.look.logs.end.last
    yield "last step", *((f"{last.step} of {last.steps}",) if last else ("none is known",))
    if last:
        yield "loss", "no number" if last.finite_loss is None else f"{last.loss:.4g}"
    saved = state.checkpoint
    none = tag("small", "no log tells of one")
    yield "last checkpoint", *((f"step {saved.step}",) if saved.step is not None else ("-", none))
    if found.seconds:
        yield "took", duration(found.seconds)
    restarts = max(len(found.starts) - 1, state.restarts.gang, 0)
    redone = sum(each.lost for each in found.starts)
    yield "restarts", str(restarts), tag("small", count(redone, "step") + " lost")
    cost = found.spending
    hours = tag("small", f"{cost.node_hours:,.2f} node-hours")
    yield "cost of its nodes", f"{usd(cost.usd_so_far)} USD", hours
    if found.useful is not None:
        yield "time that trained", f"{found.useful:.0%}", tag("small", "in steps that count")
    if state.pace.tokens_per_second:
        note = tag("small", f"MFU {state.pace.mfu:.1%}") if state.pace.mfu else None
        yield "speed", f"{state.pace.tokens_per_second:,.0f} tokens/s", note


def _curves(found: Report) -> Iterator[Part]:
    state, known = found.state, found.starts
    marks = [(each.reached, str(each.number)) for each in known if each.cause and each.log.steps]

    def lines(value: Callable[[Step], float | None]) -> list[Line]:
        return [
            Line(
                [(x.step, y) for x in each.log.steps if (y := value(x)) is not None],
                each.went_on + each.counted,
            )
            for each in known
        ]

    def rate(step: Step) -> float | None:
        return pace.tokens_per_second(step, state.look.job, found.plan)

    yield tag("h2", "Loss and speed")
    note = "dashed: done again, or lost; numbers: where a start ended" if marks else ""
    yield curves.draw("Loss", lines(lambda step: step.loss), marks, note=note)
    for each in known:
        if each.cause:
            yield tag("p", tag("small", f"{each.number}: step {each.reached}, {_cause(each)}"))
    if not any(rate(step) for each in known for step in each.log.steps):
        yield curves.draw("Seconds a step", lines(lambda step: step.seconds), marks)
        return
    band, said = None, state.no_plan
    if plan := state.planned:
        of_all = plan.tokens_per_second / plan.mfu
        band = (of_all * plan.mfu_low, of_all * plan.mfu_high)
        said = f"the band is what the plan predicts: {band[0]:,.0f} to {band[1]:,.0f}"
    yield curves.draw("Speed, tokens/s", lines(rate), marks, band=band, note=said)


def _starts(found: Report) -> Iterator[Part]:
    yield tag("h2", "Starts, checkpoints and money")
    rows = [
        (
            str(each.number),
            _at(each.begun),
            duration(each.seconds) if each.begun and each.ended else "not known",
            f"{each.went_on} to {each.reached}",
            ", ".join(f"{mark.step}" for mark in each.log.saves),
            str(each.lost),
            _cause(each) if each.cause else found.phase,
        )
        for each in found.starts
    ]
    header = ("start", "began", "took", "steps", "saved after", "lost", "ended by")
    yield table(header, rows, numbers="5")
    if not any(each.log.saves for each in found.starts):
        yield tag("p", f"No checkpoint is known: {found.state.checkpoint.how}.")
    if copied := found.state.copies:
        yield tag("p", f"Copies in {copied.uri}: {copied.state}, {copied.text}")
    hours, cost = found.spending.node_hours, found.spending.usd_so_far
    lost = sum(each.lost * each.step_seconds for each in found.starts)
    part = f", {lost / found.seconds:.1%} of it in steps that were lost" if found.seconds else ""
    yield tag("p", f"In all {hours:,.2f} node-hours and {usd(cost)} USD{part}.")
    said = "Of the nodes that its ranks held, at list prices (prices.instance_hour sets another); "
    yield tag("p", f"{said}storage and network are not in it.", class_="soft")


def _cause(start: Start) -> str:
    return f"{start.cause} [{start.code}]" if start.code else start.cause


def _health(found: Report) -> Iterator[Part]:
    yield tag("h2", "Nodes and GPUs")
    look = found.state.look
    ranks: dict[str, list[int]] = {}
    for rank in look.ranks:
        if rank.pod is not None:
            ranks.setdefault(rank.pod.node, []).append(rank.number)
    rows = [
        (short(node) or "not known", ", ".join(map(str, own)), _state(look.nodes.get(node)))
        for node, own in ranks.items()
    ]
    yield table(("node", "ranks", "state now"), rows)
    if found.xids:
        yield tag("p", tag("strong", "Errors of GPUs, in the ranks' lines"))
        yield tag("pre", "\n".join(found.xids[:_MOST]))
    else:
        yield tag("p", "No line of a rank tells of a GPU's error (Xid).")


def _state(node: Object | None) -> str:
    if node is None:
        return "not in the cluster"
    cordoned = "cordoned" if node["spec"].get("unschedulable") else "ready"
    return room.trouble(node) or cordoned


def _settings(found: Report) -> Iterator[Part]:
    yield tag("h2", "Settings")
    if found.state.no_plan:
        yield tag("p", found.state.no_plan)
    if found.settings:
        said = "The job file's settings as it is now, without comments and what may be secret:"
        yield tag("p", said, class_="soft")
        yield tag("pre", found.settings)
    words = [
        str(each) for each in found.state.look.job.pod_specs[0][1]["containers"][0].get("args", ())
    ]
    if words:
        yield tag("p", "What its program was given:", class_="soft")
        yield tag("pre", "\n".join(words))
    yield tag("h2", "Versions")
    yield table(("what", "version"), found.versions)


def _at(moment: datetime | None) -> str:
    return "an unknown time" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"
