"""What each team's jobs cost, and nodes on which no job runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from megatron_eks.ops.jobs.holdings import JobHoldings
from megatron_eks.ops.output import table, usd
from megatron_eks.plan.cost import total
from megatron_eks.plan.spending import JobSpending, NodeCost, hours_between


@dataclass(frozen=True)
class TeamCost:
    """What a team's jobs cost; without a name, what GPU nodes cost on which none runs."""

    team: str | None
    usd_per_hour: float | None
    usd_this_month: float | None
    """Of jobs that Kubernetes still keeps; None for nodes, whose idle hours nobody counts."""


def by_team(
    owners: Mapping[str, str],
    jobs: Sequence[tuple[JobHoldings, JobSpending]],
    nodes: Iterable[NodeCost],
    at: datetime,
) -> Iterator[TeamCost]:
    """Yield what each team costs, by the namespaces that `owners` have; nothing without teams."""
    for space, team in owners.items():
        own = [each for each in jobs if each[0].namespace == space]
        hourly = total(spending.usd_per_hour for _, spending in own)
        yield TeamCost(team, hourly, total(_since(_month(at), at, *each) for each in own))
    if owners:
        yield TeamCost(None, total(each.idle_usd_per_hour for each in nodes if each.idle), None)


def lines(found: Sequence[TeamCost], at: datetime) -> Iterator[str]:
    """Yield a line a team, and what is no team's."""
    if not found:
        return
    rows = [
        (
            each.team or "nodes without a job",
            usd(each.usd_per_hour),
            usd(each.usd_this_month) if each.team else "",
        )
        for each in found
    ]
    yield ""
    yield from table(("TEAM", "USD/HOUR", "THIS MONTH"), rows, right=(1, 2))
    yield f"THIS MONTH: from {_month(at):%Y-%m-%d}, of jobs that are kept (runtime.keep_days)."


def _month(at: datetime) -> datetime:
    return at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _since(
    begin: datetime, now: datetime, held: JobHoldings, spending: JobSpending
) -> float | None:
    """Return what a job has cost since a time, as if all of its hours cost the same."""
    started, spent = held.started, spending.usd_so_far
    if started is None or started >= begin or not spent:
        return spent
    end = held.ended or now
    whole = hours_between(started, end)
    return spent * hours_between(begin, end) / whole if whole else 0.0
