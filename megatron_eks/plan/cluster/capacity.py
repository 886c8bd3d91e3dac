"""How the nodes of a pool are bought, and what AWS refuses or never gives."""

from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime
from typing import Literal

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.cluster import Capacity, CapacityBlock, ClusterConfig, GpuPool, Reservation
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, Path
from megatron_eks.plan.cluster.zones import check_arn_region

_BLOCK_WARNING_DAYS = 3

# EC2 User Guide, "Find and purchase Capacity Blocks" and "How Capacity Blocks work".
_FARTHEST_END_DAYS = 182 + 8 * 7
_BLOCK_END = (11, 30)

CapacityKind = Literal["on_demand", "reservation", "capacity_block", "spot"]
NodeGroupCapacity = Literal["ON_DEMAND", "SPOT", "CAPACITY_BLOCK"]
# EKS knows no word for a reservation: it is on-demand capacity, named in the launch template.
_NODE_GROUP: dict[CapacityKind, NodeGroupCapacity] = {
    "on_demand": "ON_DEMAND",
    "reservation": "ON_DEMAND",
    "capacity_block": "CAPACITY_BLOCK",
    "spot": "SPOT",
}


def check_capacity(config: ClusterConfig, today: date) -> Findings:
    """Yield what AWS refuses, or never gives, about where nodes come from."""
    owners: dict[str, GpuPool] = {}
    for index, pool in enumerate(config.gpu_pools):
        capacity = pool.capacity
        path: Path = ("gpu_pools", index)
        if isinstance(capacity, CapacityBlock):
            yield from _window((*path, "capacity", "ends_at"), capacity, today)
            instance = INSTANCES.get(pool.instance_type)
            if instance is not None and not instance.capacity_blocks:
                found = f"AWS sells no Capacity Blocks of {pool.instance_type}"
                remedy = "use type: on_demand, reservation or spot"
                yield Finding(Code.CAPACITY_BLOCK_TYPE, (*path, "capacity", "type"), found, remedy)
        if isinstance(capacity, Reservation | CapacityBlock):
            if pool.placement_group is True:
                found = "a new placement group holds nothing of a reservation made before it"
                remedy = "use auto: reserved nodes stand where their reservation is"
                yield Finding(Code.PLACEMENT_GROUP, (*path, "placement_group"), found, remedy)
            place = (*path, "capacity", "id")
            if is_group(capacity.id):  # which may hold reservations of several types and zones
                thing, effect = "resource group", "holds no reservation"
                yield from check_arn_region(place, capacity.id, config.region, thing, effect)
            else:
                yield from _shared(place, capacity.id, pool, owners.setdefault(capacity.id, pool))


def _window(path: Path, block: CapacityBlock, today: date) -> Findings:
    end, level = block.ends_at, Level.ERROR
    days = (_day(end) - today).days if end.tzinfo else 0
    if end.tzinfo is None:
        found, remedy = f"{end.isoformat()} has no time zone", f"write it: {end.isoformat()}Z"
    elif days < 0:
        found = f"the Capacity Block ended on {end:%Y-%m-%d}: EC2 starts no node in it"
        remedy = "name a new block and its end, or remove the pool"
    elif days > _FARTHEST_END_DAYS:
        found = f"no block ends on {end:%Y-%m-%d}: AWS sells them 8 weeks ahead, for 182 days"
        remedy = "use the end that `aws ec2 describe-capacity-reservations` prints"
    elif days <= _BLOCK_WARNING_DAYS:
        when, level = {0: "today", 1: "tomorrow"}.get(days, f"in {days} days"), Level.WARNING
        found = f"the Capacity Block ends {when}, and EKS scales to 0 nodes 40 minutes before"
        remedy = "save a checkpoint before, and name the next block and its end"
    elif (end.astimezone(UTC).hour, end.astimezone(UTC).minute) != _BLOCK_END:
        level = Level.WARNING
        found = f"{end.isoformat()}, and all Capacity Blocks end at 11:30 UTC"
        remedy = f"write {end.astimezone(UTC):%Y-%m-%d}T11:30:00Z, or the end that EC2 prints"
    else:
        return
    yield Finding(Code.CAPACITY_BLOCK_WINDOW, path, found, remedy, level)


def _day(moment: datetime) -> date:
    """Return the day in UTC; of the first and last year its own, where UTC's may be none."""
    inside = MINYEAR < moment.year < MAXYEAR
    return (moment.astimezone(UTC) if inside else moment).date()


def _shared(path: Path, reservation: str, pool: GpuPool, owner: GpuPool) -> Findings:
    here = (pool.instance_type, pool.availability_zone, pool.capacity.type)
    there = (owner.instance_type, owner.availability_zone, owner.capacity.type)
    capacities = (pool.capacity, owner.capacity)
    ends = [each.ends_at for each in capacities if isinstance(each, CapacityBlock)]
    if here == there and len(set(ends)) > 1:
        found = f"{reservation} ends at {ends[1].isoformat()} for pool {owner.name!r}"
        remedy = "write the same end: a Capacity Block has one"
        yield Finding(Code.SHARED_RESERVATION, (*path[:-1], "ends_at"), found, remedy)
    if here != there:
        found = f"{reservation} is pool {owner.name!r}'s: {there[0]} in {there[1]}, as {there[2]}"
        remedy = "name another: a reservation has one instance type, one zone and one kind"
        yield Finding(Code.SHARED_RESERVATION, path, found, remedy)


@dataclass(frozen=True)
class CapacityPlan:
    """Where nodes come from, as node group and launch template must say it together."""

    kind: CapacityKind
    node_group_type: NodeGroupCapacity
    reservation_id: str | None
    """In the launch template; without it EC2 could take any open reservation."""
    reservation_group: str | None
    """The ARN of a resource group in its place."""
    market: Literal["capacity-block"] | None
    """The launch template's market option; spot stands in the node group, where EKS wants it."""
    ends_at: datetime | None


def is_group(reservation: str) -> bool:
    """Tell whether a group of reservations is named in the place of one."""
    return reservation.startswith("arn:")


def plan_capacity(capacity: Capacity) -> CapacityPlan:
    """Plan the capacity of a pool that has passed the checks."""
    reserved = capacity.id if isinstance(capacity, Reservation | CapacityBlock) else None
    in_group = reserved is not None and is_group(reserved)
    return CapacityPlan(
        kind=capacity.type,
        node_group_type=_NODE_GROUP[capacity.type],
        reservation_id=None if in_group else reserved,
        reservation_group=reserved if in_group else None,
        market="capacity-block" if capacity.type == "capacity_block" else None,
        ends_at=capacity.ends_at if isinstance(capacity, CapacityBlock) else None,
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
