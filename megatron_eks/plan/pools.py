"""The plan of the node groups: GPU pools, and the nodes of add-ons and operators."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from megatron_eks.catalog import pins
from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.catalog.interfaces import NetworkInterface, max_pods, network_interfaces
from megatron_eks.config.cluster import Capacity, CapacityBlock, ClusterConfig, GpuPool, Reservation
from megatron_eks.plan.egress import Variables, plan_egress
from megatron_eks.plan.storage import reaches_lustre_over_efa

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
    block = capacity if isinstance(capacity, CapacityBlock) else None
    reserved = capacity if isinstance(capacity, Reservation | CapacityBlock) else None
    in_group = reserved is not None and is_group(reserved.id)
    return CapacityPlan(
        kind=capacity.type,
        node_group_type=_NODE_GROUP[capacity.type],
        reservation_id=reserved.id if reserved and not in_group else None,
        reservation_group=reserved.id if reserved and in_group else None,
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


# EKS's default quotas: nodes in a managed node group, and groups in a cluster.
NODE_GROUP_CEILING = 450
NODE_GROUPS_PER_CLUSTER = 30

POOL_LABEL = "megatron-eks/pool"


@dataclass(frozen=True)
class PoolPlan:
    """One managed node group of GPU nodes."""

    name: str
    instance: InstanceType
    zone: str
    max_nodes: int
    interfaces: tuple[NetworkInterface, ...]
    max_pods: int
    root_volume_gib: int
    kubernetes_version: str
    ami_type: Literal["AL2023_x86_64_NVIDIA"]
    ami_release: str | None
    """None: EKS's newest at creation, because this release pins none for the version."""
    placement_group: bool
    capacity: CapacityPlan
    local_storage: Literal["RAID0"] | None
    """How nodeadm joins the NVMe volumes; None where there are none."""
    labels: Mapping[str, str]

    @property
    def repairs_at_once(self) -> int:
        """The most nodes that EKS may repair at a time: more is an image, a driver or a network."""
        return max(2, self.max_nodes // 10)


@dataclass(frozen=True)
class SystemNodesPlan:
    """The node group for add-ons and operators."""

    instance_type: str
    count: int
    ami_release: str | None


def plan_system_nodes(config: ClusterConfig) -> SystemNodesPlan:
    """Plan the system nodes of a configuration that has passed the checks."""
    return SystemNodesPlan(
        instance_type=config.system_nodes.instance_type,
        count=config.system_nodes.count,
        ami_release=config.system_nodes.ami_release
        or pins.AMI_RELEASES.get(config.kubernetes_version),
    )


def plan_pool(pool: GpuPool, kubernetes_version: str) -> PoolPlan:
    """Plan a pool that has passed the checks."""
    instance = INSTANCES[pool.instance_type]
    return PoolPlan(
        name=pool.name,
        instance=instance,
        zone=pool.availability_zone,
        max_nodes=pool.max_nodes,
        interfaces=network_interfaces(instance),
        max_pods=max_pods(instance),
        root_volume_gib=pool.root_volume_gib,
        kubernetes_version=kubernetes_version,
        ami_type="AL2023_x86_64_NVIDIA",
        ami_release=pool.ami_release or pins.AMI_RELEASES.get(kubernetes_version),
        placement_group=in_placement_group(pool, instance),
        capacity=plan_capacity(pool.capacity),
        local_storage="RAID0" if instance.instance_store_gb else None,
        labels={POOL_LABEL: pool.name, **pool.labels},
    )


@dataclass(frozen=True)
class NodeSetup:
    """What the user data of every node says besides the pool's own settings."""

    variables: Variables
    """Of every service of the node."""
    ca_bundle: str | None
    """Certificates in PEM that the node trusts besides the public ones."""
    lustre_efa_pools: tuple[str, ...]
    """Pools whose nodes reach the file servers over EFA."""


def plan_node_setup(config: ClusterConfig) -> NodeSetup:
    """Plan the nodes of a configuration that has passed the checks."""
    egress = plan_egress(config)
    over_efa = (
        pool.name
        for pool in config.gpu_pools
        if config.storage.lustre.efa and reaches_lustre_over_efa(pool.instance_type)
    )
    return NodeSetup(egress.node_variables, egress.ca_bundle, tuple(over_efa))
