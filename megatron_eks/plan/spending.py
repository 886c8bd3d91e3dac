"""What nodes that run, and ranks that hold their parts, cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from megatron_eks.plan.cluster.capacity import CapacityKind
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cost import node_price, times, total

_HOUR_SECONDS = 3600


@dataclass(frozen=True)
class RunningNode:
    """A node that is billed."""

    name: str
    pool: str
    """Empty: a system node."""
    instance_type: str
    capacity: CapacityKind
    since: datetime
    joined: bool = True
    """Whether the API server knows it."""
    busy: bool = False
    """Whether a job's pod is on it."""


@dataclass(frozen=True)
class NodeCost:
    """Nodes of one pool, type and capacity."""

    pool: str
    instance_type: str
    capacity: CapacityKind
    count: int
    idle: int
    """Of them: without any pod of a job."""
    not_joined: int
    usd_each: float | None
    """An hour; None where nobody knows it, and so the sums."""
    since: datetime
    """When the oldest of them started."""
    usd_so_far: float | None

    @property
    def usd_per_hour(self) -> float | None:
        """All of them."""
        return times(self.usd_each, self.count)

    @property
    def idle_usd_per_hour(self) -> float | None:
        """Those without a job."""
        return times(self.usd_each, self.idle)


@dataclass(frozen=True)
class RankTime:
    """How long a rank has held its part of a node of a GPU pool."""

    hours: float
    share: float
    """Of the node: what it asks for most of."""
    usd_each: float | None
    """Of the whole node, an hour."""
    runs: bool


@dataclass(frozen=True)
class JobSpending:
    """What the ranks of a job hold and have held."""

    node_hours: float
    usd_per_hour: float | None
    """Of what it holds now."""
    usd_so_far: float | None


def node_costs(
    nodes: Iterable[RunningNode], plan: ClusterPlan, now: datetime
) -> tuple[NodeCost, ...]:
    """Price nodes, those that cost the same together; pools first, in the file's order."""
    groups: dict[tuple[str, str, CapacityKind], list[RunningNode]] = {}
    for node in nodes:
        groups.setdefault((node.pool, node.instance_type, node.capacity), []).append(node)
    order = {pool.name: number for number, pool in enumerate(plan.pools)}
    found = []
    for key in sorted(groups, key=lambda key: (order.get(key[0], len(order)), key)):
        alike, each = groups[key], node_price(key[1], key[2], plan)
        hours = sum(hours_between(node.since, now) for node in alike)
        cost = NodeCost(
            *key,
            count=len(alike),
            idle=sum(bool(node.pool) and not node.busy for node in alike),
            not_joined=sum(not node.joined for node in alike),
            usd_each=each,
            since=min(node.since for node in alike),
            usd_so_far=times(each, hours),
        )
        found.append(cost)
    return tuple(found)


def job_spending(ranks: Sequence[RankTime]) -> JobSpending:
    """Sum what a job's ranks hold."""
    return JobSpending(
        node_hours=sum(rank.hours * rank.share for rank in ranks),
        usd_per_hour=total(times(rank.usd_each, rank.share) for rank in ranks if rank.runs),
        usd_so_far=total(times(rank.usd_each, rank.share * rank.hours) for rank in ranks),
    )


def hours_between(start: datetime, end: datetime) -> float:
    """Return hours; none where a clock is behind another one."""
    return max(0.0, (end - start).total_seconds() / _HOUR_SECONDS)
