"""`meks report` without a job: what a cluster's jobs and nodes did for a month, as one page."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import ApiError
from megatron_eks.ops.cluster import billing
from megatron_eks.ops.cluster.billing import PoolHours
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import DONE, Failure
from megatron_eks.ops.html import Part, table, tag
from megatron_eks.ops.html import page as whole
from megatron_eks.ops.jobs import ended, starts
from megatron_eks.ops.jobs.report_page import FOLDER, STYLE
from megatron_eks.ops.jobs.starts import Start
from megatron_eks.ops.kube.teams import of_team
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.output import replace_file, usd
from megatron_eks.ops.programs import Place
from megatron_eks.plan.cost import node_price, total
from megatron_eks.plan.spending import hours_between
from megatron_eks.project import Project

_HOUR_SECONDS = 3600


@dataclass(frozen=True)
class Run:
    """A submission of a job, from its first start to its last."""

    job: str
    team: str
    phase: str
    starts: tuple[Start, ...]
    nodes: float
    """Whole ones: a rank that has half a node's GPUs has half of it."""
    pool: str
    """Empty where no job file has the name any more."""
    gpus: int
    """Of all ranks; 0 likewise."""
    usd_each: float | None

    def hours(self, since: datetime) -> float:
        """How long its nodes were held, in node-hours."""
        spans = (
            hours_between(max(x.begun, since), x.ended) for x in self.starts if x.begun and x.ended
        )
        return self.nodes * sum(spans)

    @property
    def useful(self) -> float:
        """Node-hours in steps that count."""
        return self.nodes * sum(each.useful_seconds for each in self.starts) / _HOUR_SECONDS


@dataclass(frozen=True)
class Month:
    """All that a page tells."""

    cluster: str
    since: datetime
    now: datetime
    runs: tuple[Run, ...]
    pools: tuple[PoolHours, ...]
    notes: tuple[str, ...]

    def hours(self, of: PoolHours) -> tuple[float, float]:
        """Return the hours of a pool's nodes, and those of them without a job."""
        held = self.held(each for each in self.runs if each.pool == of.pool.name)
        return of.hours, max(0.0, of.hours - held)

    def held(self, runs: Iterable[Run]) -> float:
        """Return the node-hours of some runs."""
        return sum(each.hours(self.since) for each in runs)


def run(days: int, out: Path | None, on: Opened) -> int:
    """Write the page."""
    target = out or on.project.file.parent / FOLDER / f"{on.plan.name}-{days}-days.html"
    now = on.client.now()
    notes: list[str] = []
    runs: list[Run] = []
    shared = on.plan.is_shared and on.plan.platform.team is None
    for team in [each.name for each in on.plan.teams] if shared else [None]:
        project = of_team(on.project, team)
        place = SharedPod(on.access, project, on.console, project.cluster.platform.claim)
        try:
            runs += runs_of(told(place, project, days), project, now)
        except (Failure, ApiError) as problem:
            notes.append(f"{team or 'all jobs'}: the records cannot be read: {problem}")
    since = now - timedelta(days=days)
    pools = _pools(on, since, now, notes)
    found = Month(on.plan.name, since, now, tuple(runs), tuple(pools), tuple(notes))
    replace_file(target, page(found), "and write it again")
    on.console.write(f"{target}\n")
    return DONE


def told(place: Place, project: Project, days: int) -> list[Any]:
    """Return what is told of each start, a job's in their order."""
    lines: list[str] = []
    logs = f"{project.cluster.platform.mount_path}/logs"
    ended_so = place.run("job_starts", [logs, f"--days={days}"], lines.append)
    found = []
    for line in lines:
        with suppress(ValueError):
            if isinstance(start := json.loads(line), dict):
                found.append(start)
    if ended_so.summary.get("starts") != len(found):
        text = f"{len(found)} starts of {ended_so.summary.get('starts', 'all')} came whole"
        remedy = (
            "ask for fewer --days; an image of another version may lack the program: meks build"
        )
        raise Failure(Code.SAVED_LOG_CUT, text, remedy)
    return [each for each in found if each["lines"]]


def runs_of(found: Sequence[Any], project: Project, now: datetime) -> Iterator[Run]:
    """Yield submissions: a start after one that ended well, or that counts anew, is of another."""
    group: list[Any] = []
    for each in found:
        if group and (
            each["job"] != group[0]["job"] or _well(group[-1]) or _of(each) <= _of(group[-1])
        ):
            yield _run(group, project, now)
            group = []
        group.append(each)
    if group:
        yield _run(group, project, now)


def _run(group: Sequence[Any], project: Project, now: datetime) -> Run:
    last, name = group[-1], str(group[0]["job"])
    phase = "Succeeded" if _well(last) else "Running" if last["lives"] else "Failed"
    known = starts.read([line for each in group for line in each["lines"]], phase, now)
    plan = next((each for each in project.jobs if each.name == name), None)
    ranks, team = last["ranks"], project.cluster.platform.team or ""
    pool = plan.pool if plan else None
    if plan is None or pool is None:
        return Run(name, team, phase, known, ranks, "", 0, None)
    each = node_price(pool.instance.name, pool.capacity.kind, project.cluster)
    gpus, nodes = plan.resources.gpus, ranks * plan.resources.gpus / pool.instance.gpus
    return Run(name, team, phase, known, nodes, pool.name, ranks * gpus, each)


def _of(start: Any) -> int:  # noqa: ANN401 -- JSON
    found = (ended.START.search(line) for line in start["lines"])
    return next((int(each[1]) for each in found if each), 0)


def _well(start: Any) -> bool:  # noqa: ANN401 -- JSON
    ends = [found[1] for line in start["lines"] if (found := ended.END.search(line))]
    return bool(ends) and set(ends) == {"0"}


def _pools(on: Opened, since: datetime, now: datetime, notes: list[str]) -> Iterator[PoolHours]:
    from megatron_eks.ops.aws import session  # noqa: PLC0415 -- boto3 takes a while

    if on.access.is_local:
        notes.append("this is a cluster of `meks local up`: it has no nodes that are billed")
        return
    try:
        aws = session.open_session(on.plan.region, os.environ)
        for pool in on.plan.pools:
            if found := billing.node_hours(on.plan, pool, aws, since, now):
                yield found
    except session.ERRORS as error:
        why = session.explained(error)
        notes.append(f"nodes are not in this report: {why.found} - {why.remedy}")


def page(found: Month) -> str:
    """Write it."""
    title = f"{found.cluster}: {found.since:%Y-%m-%d} to {found.now:%Y-%m-%d}"
    parts = [
        tag("h1", title),
        tag("p", f"written {found.now:%Y-%m-%d %H:%M} UTC by meks report", class_="soft"),
        tag(
            "dl", *(tag("div", tag("dt", name), tag("dd", *rest)) for name, *rest in _facts(found))
        ),
        *(tag("p", f"note: {note}", class_="soft") for note in found.notes),
    ]
    return whole(title, STYLE.read_text(), *parts, *_jobs(found), *_causes(found), *_nodes(found))


def _facts(found: Month) -> Iterator[tuple[Part, ...]]:
    runs = found.runs
    phases = [
        f"{sum(x.phase == p for x in runs)} {p.lower()}" for p in ("Succeeded", "Failed", "Running")
    ]
    yield "runs", str(len(runs)), tag("small", ", ".join(phases))
    gpu_hours = sum(x.gpus / x.nodes * x.hours(found.since) for x in runs if x.nodes)
    restarts, held, useful, price = _summed(runs, found.since)
    yield "GPU-hours of jobs", f"{gpu_hours:,.0f}", tag("small", f"{held} node-hours")
    yield "cost of jobs", f"{price} USD", tag("small", "of nodes, list prices")
    yield "time that trained", useful, tag("small", "in steps that count")
    yield "restarts", restarts
    if found.pools:
        whole, idle = ([*rows] for rows in zip(*map(found.hours, found.pools), strict=True))
        for name, hours in (("nodes", whole), ("nodes without a job", idle)):
            prices = (_priced(x, y.usd_each) for x, y in zip(hours, found.pools, strict=True))
            yield name, f"{sum(hours):,.1f} h", tag("small", f"{usd(total(prices))} USD")


def _priced(hours: float, usd_each: float | None) -> float | None:
    return 0.0 if not hours else None if usd_each is None else hours * usd_each


def _summed(runs: Sequence[Run], since: datetime) -> tuple[str, str, str, str]:
    """Return restarts, node-hours, the share of them that trained, and USD, as they are shown."""
    hours = [each.hours(since) for each in runs]
    held = sum(hours)
    useful = f"{min(1, sum(x.useful for x in runs) / held):.0%}" if held else "-"
    price = total(_priced(x, each.usd_each) for x, each in zip(hours, runs, strict=True))
    restarts = sum(len(each.starts) - 1 for each in runs)
    return str(restarts), f"{held:,.1f}", useful, usd(price)


def _jobs(found: Month) -> Iterator[Part]:
    for key in ("team", "job"):
        groups: dict[str, list[Run]] = defaultdict(list)
        for run in found.runs:
            groups[getattr(run, key)].append(run)
        if key == "team" and set(groups) <= {""}:
            continue
        yield tag("h2", f"By {key}")
        header = (key, "runs", "restarts", "node-hours", "trained", "USD", "last run")
        rows = [
            (name or "-", str(len(runs)), *_summed(runs, found.since), runs[-1].phase)
            for name, runs in sorted(groups.items(), key=lambda x: -found.held(x[1]))
        ]
        yield table(header, rows, numbers="12345")
    if not found.runs:
        yield tag("p", "No job has left a record in this time.")


def _causes(found: Month) -> Iterator[Part]:
    causes: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in found.runs:
        for start in each.starts:
            if start.cause:
                lost = each.nodes * start.lost * start.step_seconds / _HOUR_SECONDS
                causes[start.cause, start.code].append(lost)
    if causes:
        yield tag("h2", "What ended starts")
        rows = [
            (str(len(lost)), f"{sum(lost):,.1f}", f"{cause} [{code}]" if code else cause)
            for (cause, code), lost in sorted(causes.items(), key=lambda x: (-len(x[1]), x[0]))
        ]
        yield table(("times", "node-hours of lost steps", "cause"), rows, numbers="01")


def _nodes(found: Month) -> Iterator[Part]:
    if found.pools:
        yield tag("h2", "Nodes")
        rows = []
        for each in found.pools:
            hours = found.hours(each)
            money = (usd(_priced(x, each.usd_each)) for x in hours)
            shown = (f"{x:,.1f}" for x in hours)
            rows.append((each.pool.name, each.pool.instance.name, str(each.nodes), *shown, *money))
        header = ("pool", "type", "nodes", "hours", "without a job", "USD", "USD without a job")
        yield table(header, rows, numbers="23456")
        said = "When nodes came and went is what Auto Scaling keeps, which is six weeks."
        yield tag("p", said, class_="soft")
