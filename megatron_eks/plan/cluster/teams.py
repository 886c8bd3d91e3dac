"""The teams that share a cluster: what each has, and what is refused of them."""

from dataclasses import dataclass

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig


@dataclass(frozen=True)
class TeamPlan:
    """A team and its part of the cluster; without `teams` in the file there is one."""

    name: str
    """As job files name it; that of the namespace where the file names no team."""
    namespace: str
    role_arns: tuple[str, ...]
    """Roles whose people work in the namespace; none where the administrators do."""
    gpus: int
    """Its share: GPUs of the cluster at its largest that are its own."""
    may_borrow: bool
    """Whether it may use GPUs that others leave idle."""
    priority: int
    """Higher comes first when nodes become free."""


def plan_teams(config: ClusterConfig) -> tuple[TeamPlan, ...]:
    """Plan the teams of a configuration that has passed the checks."""
    if not config.teams:
        name = config.platform.namespace
        return (TeamPlan(name, name, (), most_gpus(config), may_borrow=False, priority=0),)
    return tuple(
        TeamPlan(
            name=each.name,
            namespace=each.namespace or each.name,
            role_arns=each.role_arns,
            gpus=each.gpus,
            may_borrow=each.may_borrow,
            priority=each.priority,
        )
        for each in config.teams
    )


def most_gpus(config: ClusterConfig) -> int:
    """Return the GPUs of all pools at their largest."""
    return sum(INSTANCES[e.instance_type].gpus * e.max_nodes for e in config.gpu_pools)
