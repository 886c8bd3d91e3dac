"""`meks cost`: what runs now and costs, since when, for which job, and what runs for none."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from megatron_eks.catalog.pricing import AS_OF, Price
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.failure import DONE
from megatron_eks.ops.jobs import pace
from megatron_eks.ops.jobs.holdings import Holdings, JobHoldings
from megatron_eks.ops.output import count, formatted, picked, table, usd
from megatron_eks.plan.cost import standing_cost, total
from megatron_eks.plan.spending import JobSpending, NodeCost, RunningNode, job_spending, node_costs
from megatron_eks.project import Project

SCHEMA_VERSION = 1
_HOUR_SECONDS = 3600


@dataclass(frozen=True)
class JobCostNow:
    """One job's line."""

    holdings: JobHoldings
    spending: JobSpending
    seconds_left: float | None
    measured: bool
    """Whether the log says how long a step takes; the plan's prediction otherwise."""

    @property
    def usd_left(self) -> float | None:
        """What its nodes cost until its last step, if nothing fails."""
        if self.seconds_left is None or self.spending.usd_per_hour is None:
            return None
        return self.spending.usd_per_hour * self.seconds_left / _HOUR_SECONDS


@dataclass(frozen=True)
class TeamCost:
    """What a team's jobs cost; without a name, what GPU nodes cost on which none runs."""

    team: str | None
    usd_per_hour: float | None


@dataclass(frozen=True)
class CostNow:
    """Everything that is printed."""

    project: Project
    at: datetime
    nodes: tuple[NodeCost, ...]
    standing: tuple[Price, ...]
    jobs: tuple[JobCostNow, ...] | None
    """None where the API server could not be asked."""
    notes: tuple[str, ...]

    @property
    def owners(self) -> Mapping[str, str]:
        """The teams of a cluster that some share, by namespace."""
        plan = self.project.cluster
        seen = plan.platform.namespaces if plan.is_shared else ()
        return {each.namespace: each.name for each in plan.teams if each.namespace in seen}

    @property
    def teams(self) -> list[TeamCost]:
        """What each team costs, and what is no team's; nothing without teams."""
        if self.jobs is None or not self.owners:
            return []
        found = []
        for space, team in self.owners.items():
            own = (x.spending.usd_per_hour for x in self.jobs if x.holdings.namespace == space)
            found.append(TeamCost(team, total(own)))
        idle = total(each.idle_usd_per_hour for each in self.nodes if each.idle)
        return [*found, TeamCost(None, idle)]

    @property
    def parts(self) -> list[float | None]:
        """What each costs an hour; None where its price is not known."""
        return [*(x.usd_per_hour for x in self.nodes), *(x.total for x in self.standing)]


def run(
    project: Project,
    holdings: Holdings | None,
    instances: Sequence[RunningNode] | None,
    notes: Iterable[str],
    *,
    output: str,
    console: Console,
) -> int:
    """Price what the API server and EC2 told; either may be missing, with a note that says why."""
    now = console.clock.now()
    nodes = _nodes(project, holdings, instances)
    found = CostNow(
        project=project,
        at=now,
        nodes=node_costs(nodes, project.cluster, now),
        standing=standing_cost(project.cluster),
        jobs=None if holdings is None else tuple(_job(each, project) for each in holdings.jobs),
        notes=(*notes, *_notes(project, nodes)),
    )
    left = [each for each in project.warnings if each.code is Code.STILL_BILLED]
    findings = [*left, *idle(found)]
    console.write(formatted(output, _lines(found), lambda: as_json(found, findings)))
    # On stderr in any case: this is what nobody should have to look for.
    console.report(findings)
    return DONE


def as_json(found: CostNow, findings: Iterable[Finding]) -> Json:
    """Return it as docs/schemas/cost.json has it."""
    price = ("item", "count", "usd_each=usd_per_hour", "usd_per_hour=total")
    return {
        "schema_version": SCHEMA_VERSION,
        **picked(found.project.cluster, "cluster=name", "region"),
        "at": found.at.isoformat(),
        "prices_as_of": AS_OF.isoformat(),
        "usd_per_hour": total(found.parts),
        "nodes": [
            {
                **picked(each, "pool", "instance_type", "capacity", "count", "idle", "not_joined"),
                **picked(each, "usd_each", "usd_per_hour", "idle_usd_per_hour"),
                "since": each.since.isoformat(),
                "usd_so_far": each.usd_so_far,
            }
            for each in found.nodes
        ],
        "standing": [picked(each, *price) for each in found.standing],
        "jobs": None
        if found.jobs is None
        else [_job_json(each, found.owners) for each in found.jobs],
        **({"teams": [asdict(each) for each in found.teams]} if found.owners else {}),
        "findings": [dict(finding.as_json()) for finding in findings],
        "notes": [*found.notes],
    }


def _job_json(each: JobCostNow, owners: Mapping[str, str]) -> Json:
    held, basis = each.holdings, "measured" if each.measured else "predicted"
    return {
        **picked(held, "name", "phase", "pool"),
        "ranks": len(held.ranks),
        "started": held.started.isoformat() if held.started else None,
        "ended": held.ended.isoformat() if held.ended else None,
        **picked(each.spending, "node_hours", "usd_per_hour", "usd_so_far"),
        **picked(each, "seconds_left", "usd_left"),
        "left_is": basis if each.seconds_left is not None else None,
        **({"team": owners.get(held.namespace)} if owners else {}),
    }


def idle(found: CostNow) -> Iterator[Finding]:
    """Say which GPU nodes run for nobody, where it is known."""
    scaled = {pool.name: pool.idle_minutes for pool in found.project.cluster.scaled_pools}
    for each in found.nodes:
        if not each.idle or found.jobs is None:
            continue
        nodes = f"{count(each.count, 'node')} {each.instance_type}"
        which = f"no job runs on its {nodes}"
        if each.idle < each.count:
            which = f"{each.idle} of its {nodes} run without a job"
        price = each.idle_usd_per_hour
        cost = "a price that is not known" if price is None else f"{price:,.2f} USD an hour"
        remedy = f"meks scale {each.pool} {each.count - each.idle}"
        if each.pool in scaled:
            remedy = f"they go after {scaled[each.pool]} minutes without a job"
        path, text = ("gpu_pools", each.pool), f"{which}: {cost}"
        yield Finding(Code.IDLE_NODES, path, text, remedy, Level.WARNING, file="kubernetes")


def _nodes(
    project: Project, holdings: Holdings | None, instances: Sequence[RunningNode] | None
) -> list[RunningNode]:
    """Join what both tell: EC2 knows since when, and what has not joined yet."""
    pools = {pool.name: pool for pool in project.cluster.pools}
    ours = "Cluster" in project.cluster.stacks
    told = {each.name: each for each in instances or ()}
    found = []
    for node in holdings.nodes if holdings else ():
        # In somebody else's cluster the other nodes are theirs.
        if not (node.pool or ours):
            continue
        instance = told.pop(holdings.instance_ids[node.name], None) if holdings else None
        found.append(replace(node, since=instance.since) if instance else node)
    for instance in told.values():
        pool = pools.get(instance.pool)
        if pool is None and not ours:
            continue
        # EC2 does not say of an instance that it is in a reservation.
        reserved = pool is not None and pool.capacity.kind == "reservation"
        found.append(
            replace(
                instance,
                pool=pool.name if pool else "",
                capacity="reservation" if reserved else instance.capacity,
                joined=holdings is None,
            )
        )
    return found


def _job(held: JobHoldings, project: Project) -> JobCostNow:
    seconds, measured = None, False
    if (newest := held.newest) is not None:
        job = next((each for each in project.jobs if each.name == held.name), None)
        seconds, measured = pace.left(newest, job)
    return JobCostNow(held, job_spending(held.ranks), seconds, measured)


def _notes(project: Project, nodes: Iterable[RunningNode]) -> Iterator[str]:
    kinds = {node.capacity for node in nodes}
    types = {node.instance_type for node in nodes}
    if "spot" in kinds:
        yield "spot prices change, and never exceed the on-demand one: prices.instance_hour"
    if "capacity_block" in kinds:
        yield "a Capacity Block was paid when it was bought: prices.instance_hour shares it out"
    for pool in project.cluster.pools:
        if pool.capacity.kind == "reservation":
            yield f"{pool.name}: a reservation is billed whether its nodes run or not"
    if own := sorted(types & project.cluster.prices.instances.keys()):
        yield f"at the configuration's price: {', '.join(own)}"
    if "Cluster" not in project.cluster.stacks:
        yield "nodes of no pool of this file belong to the cluster's owner, and are not counted"


def _lines(found: CostNow) -> Iterator[str]:
    plan = found.project.cluster
    yield f"Cluster {plan.name} in {plan.region}, {found.at:%Y-%m-%d %H:%M} UTC"
    yield ""
    rows = [
        (
            f"{each.instance_type} ({each.pool or 'system'})"
            + ("" if each.capacity == "on_demand" else f" {each.capacity.replace('_', ' ')}")
            + (f", {each.not_joined} not joined" if each.not_joined else ""),
            str(each.count),
            usd(each.usd_each, 5),
            usd(each.usd_per_hour),
            duration((found.at - each.since).total_seconds()),
            usd(each.usd_so_far),
        )
        for each in found.nodes
    ]
    rows += [
        (each.item, f"{each.count:g}", usd(each.usd_per_hour, 5), usd(each.total), "", "")
        for each in found.standing
    ]
    known = usd(sum(filter(None, found.parts)))
    rows.append(("Sum", "", "", f"> {known}" if None in found.parts else known, "", ""))
    header = ("BILLED NOW", "COUNT", "USD EACH", "USD/HOUR", "SINCE", "SO FAR")
    yield from table(header, rows, right=(1, 2, 3, 4, 5))
    if found.jobs:
        yield ""
        yield from _job_lines(found.jobs)
    elif found.jobs is not None:
        yield ""
        yield "No jobs."
    if found.teams:
        yield ""
        teams = [(x.team or "nodes without a job", usd(x.usd_per_hour)) for x in found.teams]
        yield from table(("TEAM", "USD/HOUR"), teams, right=(1,))
    yield f"List prices of {AS_OF}, without volumes, traffic, logs, builds and S3."
    yield from (f"note: {note}" for note in found.notes)


def _job_lines(jobs: Sequence[JobCostNow]) -> Iterator[str]:
    rows = [
        (
            each.holdings.name,
            each.holdings.phase,
            f"{each.spending.node_hours:,.1f}",
            usd(each.spending.usd_per_hour),
            usd(each.spending.usd_so_far),
            "" if each.seconds_left is None else f"{about}{duration(each.seconds_left)}",
            "" if each.usd_left is None else f"{about}{usd(each.usd_left)}",
        )
        for each in jobs
        for about in ["" if each.measured else "~"]
    ]
    header = ("JOB", "PHASE", "NODE-HOURS", "USD/HOUR", "SO FAR", "LEFT", "USD LEFT")
    yield from table(header, rows, right=(2, 3, 4, 5, 6))
    yield "Of GPU nodes that ranks hold; LEFT at the pace of the last step, ~ as predicted."
