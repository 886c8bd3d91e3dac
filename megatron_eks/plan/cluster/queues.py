"""The queues in which jobs wait until all of their pods have a place: one for each team."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from megatron_eks.catalog import kueue
from megatron_eks.catalog.instances import NETWORK_LABEL
from megatron_eks.config.cluster import ClusterConfig, GpuPool
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings
from megatron_eks.plan.cluster.platform import PRIORITY_CLASSES
from megatron_eks.plan.cluster.pools import PoolPlan
from megatron_eks.plan.cluster.teams import TeamPlan

READY_SECONDS = 3600
"""How long all pods of a job may take to run: nodes are there, images of 20 GB come within that."""


POOL_SCALER = "pool-scaler"
"""The pod that sizes pools with `scale: queue`, its service account, and what belongs to them."""


@dataclass(frozen=True)
class PoolShare:
    """What a team has of a pool."""

    pool: str
    gpus: int
    efa: int


@dataclass(frozen=True)
class QueuePlan:
    """The queue of a team; without a team, what is nobody's."""

    team: TeamPlan | None
    shares: tuple[PoolShare, ...]

    @property
    def priorities(self) -> Iterator[tuple[str, int]]:
        """Yield the classes of its jobs, and which come first among those of all teams."""
        if self.team is not None:
            for each in PRIORITY_CLASSES:
                yield job_class(self.team.name, each.name), each.value + self.team.priority


def topology(pool: PoolPlan) -> str:
    """Return the name of the Topology of a pool's nodes, which others of its depth have too."""
    return f"network-of-{pool.instance.network_layers}-layers"


def topology_levels(pool: PoolPlan) -> tuple[str, ...]:
    """Return the labels that say where a node is, from the widest part of the network to itself.

    A node without one of them would count for nothing.
    """
    layers = range(1, pool.instance.network_layers + 1)
    return (*(f"{NETWORK_LABEL}{each}" for each in layers), "kubernetes.io/hostname")


def queue_labels(queue: str, priority_class: str) -> dict[str, str]:
    """Return the labels by which a job waits in a queue; a class of one's own counts as it is."""
    if not queue:
        return {}
    ours = priority_class in {each.name for each in PRIORITY_CLASSES}
    coming = {kueue.PRIORITY_LABEL: job_class(queue, priority_class)} if ours else {}
    return {kueue.QUEUE_LABEL: queue, **coming}


def job_class(team: str, priority_class: str) -> str:
    """Return the name of a class of jobs: of that of their pods, for a team."""
    return f"{team}.{priority_class}"


def plan_queues(pools: Sequence[PoolPlan], teams: Sequence[TeamPlan]) -> tuple[QueuePlan, ...]:
    """Share out the pools at their largest: to each team whole nodes of each, then what is missing.

    A last one holds what is nobody's, if anything, for those who borrow.
    """
    every = {pool.name: pool.instance.gpus * pool.max_nodes for pool in pools}
    free, total, found = dict(every), sum(every.values()), []
    for team in teams:
        taken = {}
        for pool in pools:
            each, share = pool.instance.gpus, team.gpus * every[pool.name] // total
            taken[pool.name] = min(free[pool.name], share // each * each)
        for pool in pools:
            left = min(team.gpus - sum(taken.values()), free[pool.name] - taken[pool.name])
            taken[pool.name] += left
            free[pool.name] -= taken[pool.name]
        found.append(QueuePlan(team, tuple(_share(pool, taken[pool.name]) for pool in pools)))
    rest = QueuePlan(None, tuple(_share(pool, free[pool.name]) for pool in pools))
    return (*found, rest) if any(free.values()) else tuple(found)


def scaling_of(pool: PoolPlan) -> dict[str, object]:
    """Return what the pod that sizes pools is told of one; `keep_until` null is for ever.

    What is reserved costs the same whether nodes run or not: a block until its end, a reservation
    until somebody cancels it.
    """
    end = pool.capacity.ends_at.timestamp() if pool.capacity.ends_at else None
    kept = end if pool.capacity.kind in {"reservation", "capacity_block"} else 0.0
    instance = pool.instance
    devices = {"nvidia.com/gpu": instance.gpus, "vpc.amazonaws.com/efa": instance.efa_interfaces}
    return {
        "name": pool.name,
        "devices": {name: number for name, number in devices.items() if number},
        "max_nodes": pool.max_nodes,
        "idle_seconds": 60 * (pool.idle_minutes or 0),
        "keep_until": kept,
    }


def check_scaling(config: ClusterConfig) -> Findings:
    """Yield pools that nothing would scale, and times that mean nothing."""
    for index, pool in enumerate(config.gpu_pools):
        path = ("gpu_pools", index)
        if pool.scale == "manual":
            if pool.idle_minutes != GpuPool.model_fields["idle_minutes"].default:
                found = f"{pool.idle_minutes}, and `meks scale` alone sizes {pool.name}"
                remedy = "remove it, or scale: queue"
                yield Finding(Code.POOL_SCALE, (*path, "idle_minutes"), found, remedy)
        elif config.existing_cluster is not None:
            found = f"the owner of cluster {config.existing_cluster} decides about its nodes"
            yield Finding(Code.POOL_SCALE, (*path, "scale"), found, "use scale: manual")
        elif not config.platform.kueue:
            found = "the cluster has no queues, whose jobs would bring the nodes"
            remedy = "set platform.kueue: true, or use scale: manual"
            yield Finding(Code.POOL_SCALE, (*path, "scale"), found, remedy)


def _share(pool: PoolPlan, gpus: int) -> PoolShare:
    """Add the network cards; a part of a node has at least one."""
    return PoolShare(pool.name, gpus, -(-gpus * pool.instance.efa_interfaces // pool.instance.gpus))
