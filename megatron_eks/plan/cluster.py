"""The plan of a cluster: every number and name that stacks and charts render."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from megatron_eks.catalog import pins
from megatron_eks.plan.network import NetworkPlan, plan_network
from megatron_eks.plan.platform import PlatformPlan, plan_platform
from megatron_eks.plan.pools import PoolPlan, SystemNodesPlan, plan_pool, plan_system_nodes
from megatron_eks.plan.storage import StoragePlan, plan_storage
from megatron_eks.plan.subnets import MINIMUM_IPS_PER_NODE, WARM_IPS_PER_NODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from megatron_eks.config.cluster import ClusterConfig

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
        network=plan_network(config),
        system_nodes=plan_system_nodes(config),
        pools=tuple(plan_pool(pool, config.kubernetes_version) for pool in config.gpu_pools),
        storage=plan_storage(config),
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
