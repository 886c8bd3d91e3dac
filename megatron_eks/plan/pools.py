"""The plan of the node groups: GPU pools, and the nodes of add-ons and operators."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from megatron_eks.catalog import pins
from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.catalog.interfaces import NetworkInterface, max_pods, network_interfaces
from megatron_eks.config.cluster import ClusterConfig, GpuPool
from megatron_eks.plan.capacity import CapacityPlan, in_placement_group, plan_capacity

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
        ami_release=pins.AMI_RELEASES.get(config.kubernetes_version),
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
