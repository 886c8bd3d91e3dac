"""The plan of a cluster: every number and name that stacks and charts render."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from megatron_eks.catalog import pins
from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.plan.interfaces import NetworkInterface, max_pods, network_interfaces
from megatron_eks.plan.platform import PlatformPlan, plan_platform
from megatron_eks.plan.subnets import MINIMUM_IPS_PER_NODE, WARM_IPS_PER_NODE, Subnet, carve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from megatron_eks.config.cluster import ClusterConfig, GpuPool

# EKS's default quota of nodes in a managed node group.
NODE_GROUP_CEILING = 450

POOL_LABEL = "megatron-eks/pool"

# Bounded warm addresses make the address budget of a subnet exact; network policies are off in the
# VPC CNI unless asked for (VPC CNI README and EKS User Guide, "Configure network policies").
_ADDON_CONFIGURATION: dict[str, dict[str, object]] = {
    "vpc-cni": {
        "enableNetworkPolicy": "true",
        "env": {
            "MINIMUM_IP_TARGET": str(MINIMUM_IPS_PER_NODE),
            "WARM_IP_TARGET": str(WARM_IPS_PER_NODE),
        },
    },
}


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
    capacity_type: Literal["ON_DEMAND"]
    labels: "Mapping[str, str]"


@dataclass(frozen=True)
class SystemNodesPlan:
    """The node group for add-ons and operators."""

    instance_type: str
    count: int
    ami_release: str | None


@dataclass(frozen=True)
class NetworkPlan:
    """The VPC."""

    vpc_cidr: str
    service_cidr: str
    subnets: tuple[Subnet, ...]
    nat_zones: tuple[str, ...]
    """Zones whose public subnet holds a NAT gateway; the others route through the first."""
    interface_endpoints: tuple[str, ...]

    def nat_zone(self, zone: str) -> str | None:
        """Return the zone whose NAT gateway a zone's private subnet uses, if there is one."""
        return zone if zone in self.nat_zones else next(iter(self.nat_zones), None)


@dataclass(frozen=True)
class LustrePlan:
    """The FSx for Lustre file system."""

    capacity_gib: int
    throughput_mbps_per_tib: int
    zone: str
    mount_path: str
    version: str
    metadata_iops_mode: Literal["AUTOMATIC"]

    @property
    def throughput_mb_s(self) -> float:
        """Throughput of the whole file system, in MB/s."""
        return self.capacity_gib / 1024 * self.throughput_mbps_per_tib


@dataclass(frozen=True)
class StoragePlan:
    """File system and data bucket."""

    lustre: LustrePlan
    retain: bool


@dataclass(frozen=True)
class ImagePlan:
    """One container image, built from this checkout."""

    name: Literal["megatron", "fsdp"]
    repository: str
    tag: str
    """Hash of the build context, its arguments and pins."""
    build_args: "Mapping[str, str]"


@dataclass(frozen=True)
class AddonPlan:
    """One EKS add-on."""

    name: str
    version: str | None
    """None: EKS's default, because this release pins none for the Kubernetes version."""
    service_account: str | None
    managed_policy: str | None
    """The AWS managed policy that its service account gets through Pod Identity."""
    configuration: "Mapping[str, object]"


@dataclass(frozen=True)
class AccessPlan:
    """Administrators, and the API endpoint."""

    admin_role_arns: tuple[str, ...]
    public_cidrs: tuple[str, ...]
    deletion_protection: bool


@dataclass(frozen=True)
class ClusterPlan:
    """Everything about a cluster that is decided before AWS is asked."""

    name: str
    region: str
    availability_zones: tuple[str, ...]
    kubernetes_version: str
    access: AccessPlan
    network: NetworkPlan
    system_nodes: SystemNodesPlan
    pools: tuple[PoolPlan, ...]
    storage: StoragePlan
    images: tuple[ImagePlan, ...]
    addons: tuple[AddonPlan, ...]
    platform: PlatformPlan
    tags: "Mapping[str, str]"

    def pool(self, name: str) -> PoolPlan:
        """Return the pool of that name; a job's pool is checked before it is planned."""
        return next(pool for pool in self.pools if pool.name == name)

    def stack(self, part: str) -> str:
        """Return the name of one of the cluster's stacks."""
        return f"{self.name}-{part}"


REPOSITORIES: dict[Literal["megatron", "fsdp"], str] = {
    "megatron": "megatron-training",
    "fsdp": "fsdp",
}


def plan_cluster(config: "ClusterConfig", image_tags: "Mapping[str, str]") -> ClusterPlan:
    """Plan a cluster from a configuration that has passed the checks."""
    release = pins.AMI_RELEASES.get(config.kubernetes_version)
    lustre = config.storage.lustre
    return ClusterPlan(
        name=config.name,
        region=config.region,
        availability_zones=config.availability_zones,
        kubernetes_version=config.kubernetes_version,
        access=AccessPlan(
            admin_role_arns=config.access.admin_role_arns,
            public_cidrs=config.access.public_cidrs,
            deletion_protection=config.access.deletion_protection,
        ),
        network=_network(config),
        system_nodes=SystemNodesPlan(
            instance_type=config.system_nodes.instance_type,
            count=config.system_nodes.count,
            ami_release=release,
        ),
        pools=tuple(_pool(pool, config.kubernetes_version) for pool in config.gpu_pools),
        storage=StoragePlan(
            lustre=LustrePlan(
                capacity_gib=lustre.capacity_gib,
                throughput_mbps_per_tib=lustre.throughput_mbps_per_tib,
                zone=lustre.availability_zone or config.gpu_pools[0].availability_zone,
                mount_path=lustre.mount_path,
                version=pins.LUSTRE_VERSION,
                metadata_iops_mode="AUTOMATIC",
            ),
            retain=config.storage.retain,
        ),
        images=tuple(
            ImagePlan(
                name=name,
                repository=repository,
                tag=image_tags[name],
                build_args=getattr(config.images, name).build_args,
            )
            for name, repository in REPOSITORIES.items()
        ),
        addons=tuple(_addon(addon, config.kubernetes_version) for addon in pins.ADDONS),
        platform=plan_platform(config),
        tags=config.tags,
    )


def _addon(addon: pins.Addon, kubernetes_version: str) -> AddonPlan:
    return AddonPlan(
        name=addon.name,
        version=addon.versions.get(kubernetes_version),
        service_account=addon.service_account,
        managed_policy=addon.policy,
        configuration=_ADDON_CONFIGURATION.get(addon.name, {}),
    )


def _network(config: "ClusterConfig") -> NetworkPlan:
    network = config.network
    zones = config.availability_zones
    nat_zones: dict[object, tuple[str, ...]] = {0: (), 1: zones[:1], "per_zone": zones}
    return NetworkPlan(
        vpc_cidr=network.vpc_cidr,
        service_cidr=network.service_cidr,
        subnets=carve(network.vpc_cidr, zones),
        nat_zones=nat_zones[network.nat_gateways],
        interface_endpoints=network.interface_endpoints,
    )


def _pool(pool: "GpuPool", kubernetes_version: str) -> PoolPlan:
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
        # On demand, one rack is worth more than a larger choice of hosts.
        placement_group=bool(pool.placement_group),
        capacity_type="ON_DEMAND",
        labels={POOL_LABEL: pool.name, **pool.labels},
    )
