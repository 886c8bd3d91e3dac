"""The nodes of a planned cluster, for a local one that has no node groups."""

from megatron_eks.kubernetes.client import Object
from megatron_eks.localcloud.kubernetes.nodes import Instance, eks_node
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.platform import GPU_TAINT
from megatron_eks.plan.cluster.pools import PoolPlan

_SYSTEM = "system"


def gpu_node(pool: PoolPlan, number: int) -> Object:
    """Return one node of a pool."""
    instance = Instance(
        name=f"{pool.name}-{number}",
        group=pool.name,
        instance_type=pool.instance.name,
        zone=pool.zone,
        root_volume_gib=pool.root_volume_gib,
        labels=pool.labels,
        taints=[{"key": GPU_TAINT, "value": "true", "effect": "NoSchedule"}],
        capacity_type=pool.capacity.node_group_type,
    )
    return eks_node(instance, number)


def system_nodes(plan: ClusterPlan) -> list[Object]:
    """Return the nodes for everything that is not a training pod."""
    system, zones = plan.system_nodes, plan.availability_zones
    instances = [
        Instance(
            name=f"{_SYSTEM}-{number}",
            group=_SYSTEM,
            instance_type=system.instance_type,
            zone=zones[number % len(zones)],
            labels={"role": _SYSTEM},
            taints=[],
        )
        for number in range(system.count)
    ]
    return [eks_node(each, number) for number, each in enumerate(instances)]


def all_nodes(plan: ClusterPlan, each_pool: int = 0) -> list[Object]:
    """Return the system nodes and so many nodes of each pool; all that it may have, for 0."""
    pools = [
        gpu_node(pool, number)
        for pool in plan.pools
        for number in range(min(each_pool or pool.max_nodes, pool.max_nodes))
    ]
    return [*system_nodes(plan), *pools]
