"""The plan of a cluster: every number and name that stacks and charts render."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from megatron_eks.catalog import pins
from megatron_eks.catalog.pricing import PriceList
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.job import AnyJob
from megatron_eks.plan.data_access import DataAccess, plan_data_access
from megatron_eks.plan.egress import REQUIRED_ENDPOINTS
from megatron_eks.plan.images import ImagePlan, SourcePlan, plan_image_source, plan_images
from megatron_eks.plan.network import (
    MINIMUM_IPS_PER_NODE,
    WARM_IPS_PER_NODE,
    NetworkPlan,
    makes_vpc,
    node_addresses,
    plan_network,
)
from megatron_eks.plan.platform import GPU_TAINT, PlatformPlan, plan_platform
from megatron_eks.plan.pools import (
    POOL_LABEL,
    NodeSetup,
    PoolPlan,
    SystemNodesPlan,
    plan_node_setup,
    plan_pool,
    plan_system_nodes,
)
from megatron_eks.plan.storage import StoragePlan, plan_shared_directories, plan_storage

# Bounded warm addresses make the address budget of a subnet exact; network policies are off in the
# VPC CNI unless asked for (VPC CNI README and EKS User Guide, "Configure network policies").
_ADDON_CONFIGURATION: dict[str, dict[str, object]] = {
    "vpc-cni": {
        "enableNetworkPolicy": "true",
        "env": {
            "MINIMUM_IP_TARGET": str(MINIMUM_IPS_PER_NODE),
            # Its default: `strict` closes CoreDNS before any policy can be there (decision 61).
            "NETWORK_POLICY_ENFORCING_MODE": "standard",
            "WARM_IP_TARGET": str(WARM_IPS_PER_NODE),
        },
    },
}


EVENT_TTL = "1h"
"""How long events live: the longest that EKS documents (API, KubeApiServerConfigRequest)."""


@dataclass(frozen=True)
class AddonPlan:
    """One EKS add-on."""

    name: str
    version: str | None
    """None: EKS's default, because this release pins none for the Kubernetes version."""
    service_account: str | None
    managed_policy: str | None
    """The AWS managed policy that its service account gets through Pod Identity."""
    configuration: Mapping[str, object]


@dataclass(frozen=True)
class AccessPlan:
    """Administrators, and the API endpoint."""

    admin_role_arns: tuple[str, ...]
    public_cidrs: tuple[str, ...]
    deletion_protection: bool
    bastion: bool
    """Whether an instance in the VPC forwards to the private endpoint, through SSM."""


@dataclass(frozen=True)
class ClusterPlan:
    """Everything about a cluster that is decided before AWS is asked."""

    name: str
    eks_name: str
    """Of the EKS cluster, which may be somebody else's."""
    stacks: tuple[str, ...]
    """The parts of the cluster that are stacks of this project."""
    region: str
    availability_zones: tuple[str, ...]
    kubernetes_version: str
    access: AccessPlan
    network: NetworkPlan
    system_nodes: SystemNodesPlan
    pools: tuple[PoolPlan, ...]
    storage: StoragePlan
    data_access: DataAccess
    images: tuple[ImagePlan, ...]
    image_source: SourcePlan | None
    """The repository that images are built from; None: this checkout."""
    addons: tuple[AddonPlan, ...]
    platform: PlatformPlan
    node_setup: NodeSetup
    prices: PriceList
    tags: Mapping[str, str]
    permissions_boundary_arn: str | None
    notes: tuple[str, ...]
    """What somebody must see to, because no file says it and nothing is looked up."""

    def pool(self, name: str) -> PoolPlan:
        """Return the pool of that name; a job's pool is checked before it is planned."""
        return next(pool for pool in self.pools if pool.name == name)

    @property
    def tagged_images(self) -> tuple[str, ...]:
        """Images besides those of jobs that are pinned by tag alone, as nodes pull them."""
        egress = replace(self.platform.egress, digests=())
        skipped = () if self.platform.etcd else (pins.ETCD_IMAGE,)
        found = [egress.image(uri) for uri in pins.THIRD_PARTY_IMAGES if uri not in skipped]
        if self.platform.efa_instance_types:
            found.append(pins.efa_device_plugin_image(self.region))
        return tuple(uri for uri in found if "@" not in uri)

    def with_digests(self, digests: Mapping[str, str]) -> "ClusterPlan":
        """Return the plan with digests of images that it knows by tag."""
        known = tuple((uri, digests[uri]) for uri in self.tagged_images if uri in digests)
        egress = replace(self.platform.egress, digests=known)
        return replace(self, platform=replace(self.platform, egress=egress))

    def stack(self, part: str) -> str:
        """Return the name of one of the cluster's stacks."""
        return f"{self.name}-{part}"


def plan_cluster(
    config: ClusterConfig, image_tags: Mapping[str, str], jobs: Iterable[AnyJob] = ()
) -> ClusterPlan:
    """Plan a cluster for jobs, from a configuration that has passed the checks."""
    brought = config.existing_cluster is not None
    data_access = plan_data_access(jobs)
    return ClusterPlan(
        name=config.name,
        eks_name=config.existing_cluster or config.name,
        stacks=("Storage", "Images") if brought else ("Network", "Storage", "Images", "Cluster"),
        region=config.region,
        availability_zones=config.availability_zones,
        kubernetes_version=config.kubernetes_version,
        access=AccessPlan(
            admin_role_arns=config.access.admin_role_arns,
            public_cidrs=config.access.public_cidrs,
            deletion_protection=config.access.deletion_protection,
            bastion=config.access.private_route == "ssm_bastion",
        ),
        network=plan_network(config),
        system_nodes=plan_system_nodes(config),
        pools=tuple(plan_pool(pool, config.kubernetes_version) for pool in config.gpu_pools),
        storage=plan_storage(config),
        data_access=data_access,
        images=plan_images(config, image_tags),
        image_source=plan_image_source(config),
        addons=tuple(
            _addon(addon, config.kubernetes_version)
            for addon in (*pins.ADDONS, *([pins.EFS_ADDON] if config.storage.efs else []))
        ),
        platform=plan_platform(config),
        node_setup=plan_node_setup(config),
        prices=PriceList(
            config.region,
            config.prices.instance_hour,
            config.prices.control_plane_hour,
            config.prices.nat_hour,
            config.prices.endpoint_hour,
            config.prices.lustre_gib_month,
        ),
        tags=config.tags,
        permissions_boundary_arn=config.permissions_boundary_arn,
        notes=tuple(plan_notes(config, data_access)),
    )


def _addon(addon: pins.Addon, kubernetes_version: str) -> AddonPlan:
    return AddonPlan(
        name=addon.name,
        version=addon.versions.get(kubernetes_version),
        service_account=addon.service_account,
        managed_policy=addon.policy,
        configuration=_ADDON_CONFIGURATION.get(addon.name, {}),
    )


def plan_notes(config: ClusterConfig, data_access: DataAccess) -> Iterator[str]:
    """Yield what somebody must see to before deploying."""
    if config.existing_cluster is not None:
        yield from _existing_cluster(config, config.existing_cluster)
    elif not makes_vpc(config):
        yield from _existing_vpc(config)
    if config.storage.lustre.existing is not None:
        lustre = config.storage.lustre.existing
        yield f"{lustre.id} must admit the nodes on TCP 988 and 1018-1023, and reach them there"
        yield f"on {lustre.id} the set-up Job of `meks apply` {plan_shared_directories(config)}"
    if config.storage.kms_key_arn is not None:
        yield (
            f"the policy of {config.storage.kms_key_arn} must let this account's IAM policies "
            "grant its use, and FSx make grants on it"
        )
    if data_access.buckets:
        names = ", ".join(each.bucket for each in data_access.buckets)
        yield (
            f"the jobs' role (JobRoleArn of {config.name}-Storage) may use {names}; a bucket of "
            "another account must let it in, and so must a KMS key that encrypts its objects"
        )
    if config.images.mirror is not None:
        yield (
            f"copy the images of other registries to {config.images.mirror}, each under its own "
            "path and digest; `meks plan -o json` lists them as `mirrored_images`"
        )


def _existing_vpc(config: ClusterConfig) -> Iterator[str]:
    nodes = dict.fromkeys(config.network.private_subnets, config.system_nodes.count)
    for pool in config.gpu_pools:
        nodes[pool.availability_zone] = nodes.get(pool.availability_zone, 0) + pool.max_nodes
    for zone, subnet in config.network.private_subnets.items():
        yield f"{subnet} needs {node_addresses(nodes[zone])} free addresses for nodes and pods"
    endpoints = f"endpoints for {', '.join(REQUIRED_ENDPOINTS)}"
    out = "a way out (NAT or proxy)" if config.network.nat_gateways else endpoints
    yield (
        f"the private subnets need {out}, a route to S3 (a gateway endpoint costs nothing), and "
        "DNS hostnames switched on in the VPC"
    )


def _existing_cluster(config: ClusterConfig, name: str) -> Iterator[str]:
    for pool in config.gpu_pools:
        yield (
            f"nodes of pool {pool.name} ({pool.instance_type}, {pool.availability_zone}) must "
            f"carry label and taint: aws eks update-nodegroup-config --region {config.region} "
            f"--cluster-name {name} --nodegroup-name NODEGROUP "
            f"--labels 'addOrUpdateLabels={{{POOL_LABEL}={pool.name}}}' --taints "
            f"'addOrUpdateTaints=[{{key={GPU_TAINT},value=true,effect=NO_SCHEDULE}}]'"
        )
    yield (
        "these nodes must come from the AL2023 NVIDIA AMI, whose label nvidia.com/gpu.present the "
        "device plugins look for, with their EFA interfaces in a group that admits itself both ways"
    )
    drivers = "aws-fsx-csi-driver" + (", aws-efs-csi-driver" if config.storage.efs else "")
    yield (
        f"{name} needs the add-ons {drivers} and eks-pod-identity-agent, and vpc-cni with "
        "enableNetworkPolicy"
    )
    yield (
        f"{name} must run no NVIDIA or EFA device plugin and no training operator of its own: "
        "dist/platform/ brings them"
    )
    if config.network.proxy is not None or config.network.ca_bundle is not None:
        yield f"proxy and certificates reach the jobs; the nodes of {name} need them from you"
