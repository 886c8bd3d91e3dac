"""How a pool's nodes are bought, in the words of EKS and EC2."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.config.cluster import Capacity, CapacityBlock, GpuPool, Reservation

CapacityKind = Literal["on_demand", "reservation", "capacity_block", "spot"]
NodeGroupCapacity = Literal["ON_DEMAND", "SPOT", "CAPACITY_BLOCK"]

_NODE_GROUP: dict[CapacityKind, NodeGroupCapacity] = {
    "on_demand": "ON_DEMAND",
    # EKS knows no word for it: a reservation is on-demand capacity, named in the launch template.
    "reservation": "ON_DEMAND",
    "capacity_block": "CAPACITY_BLOCK",
    "spot": "SPOT",
}


@dataclass(frozen=True)
class CapacityPlan:
    """Where nodes come from, as node group and launch template must say it together."""

    kind: CapacityKind
    node_group_type: NodeGroupCapacity
    reservation_id: str | None
    """In the launch template; without it EC2 could take any open reservation."""
    market: Literal["capacity-block"] | None
    """The launch template's market option; spot stands in the node group, where EKS wants it."""
    ends_at: datetime | None


def plan_capacity(capacity: Capacity) -> CapacityPlan:
    """Plan the capacity of a pool that has passed the checks."""
    block = capacity if isinstance(capacity, CapacityBlock) else None
    reserved = capacity if isinstance(capacity, Reservation | CapacityBlock) else None
    return CapacityPlan(
        kind=capacity.type,
        node_group_type=_NODE_GROUP[capacity.type],
        reservation_id=reserved.id if reserved else None,
        market="capacity-block" if block else None,
        ends_at=block.ends_at if block else None,
    )


def in_placement_group(pool: GpuPool, instance: InstanceType) -> bool:
    """Tell whether a pool's nodes share a cluster placement group of their own.

    On demand, one rack is worth more to EFA than a larger choice of hosts; spot takes what there
    is. A reservation made outside the group has no capacity in it (eksctl issue 7949), and a
    Capacity Block stands close together by itself (EC2 User Guide, "Work with Capacity Blocks").
    `max_nodes` has no say: it must never change a launch template.
    """
    if pool.placement_group == "auto":
        return pool.capacity.type == "on_demand" and instance.efa_interfaces > 0
    return pool.placement_group
