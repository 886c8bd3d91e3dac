"""The plan of a whole cluster, and everything that is refused of its file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date

from megatron_eks.catalog import pins
from megatron_eks.catalog.pins import POD_UID
from megatron_eks.catalog.pricing import PriceList
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.config.cluster import Access, ClusterConfig, Observability, SystemNodes
from megatron_eks.config.errors import Findings
from megatron_eks.config.images import GithubSource
from megatron_eks.config.job import AnyJob
from megatron_eks.plan.cluster.access import check_access
from megatron_eks.plan.cluster.capacity import check_capacity
from megatron_eks.plan.cluster.data_access import DataAccess, plan_data_access
from megatron_eks.plan.cluster.egress import check_egress
from megatron_eks.plan.cluster.existing import check_existing, plan_notes
from megatron_eks.plan.cluster.images import ImagePlan, check_images, check_source, plan_images
from megatron_eks.plan.cluster.lustre import check_lustre
from megatron_eks.plan.cluster.network import (
    MINIMUM_IPS_PER_NODE,
    WARM_IPS_PER_NODE,
    NetworkPlan,
    check_network,
    plan_network,
)
from megatron_eks.plan.cluster.observability import check_observability
from megatron_eks.plan.cluster.platform import PlatformPlan, check_namespace, plan_platform
from megatron_eks.plan.cluster.pools import PoolPlan, check_pools, plan_pools, plan_system_nodes
from megatron_eks.plan.cluster.queues import QueuePlan, check_scaling, plan_queues
from megatron_eks.plan.cluster.releases import check_ami_releases, check_version
from megatron_eks.plan.cluster.storage import StoragePlan, check_key, check_mount_path, plan_storage
from megatron_eks.plan.cluster.teams import TeamPlan, check_teams, plan_directories, plan_teams
from megatron_eks.plan.cluster.zones import check_region, check_tags, check_zones

# Bounded warm addresses make the address budget of a subnet exact; network policies are off in the
# VPC CNI unless asked for (VPC CNI README and EKS User Guide, "Configure network policies").
_CNI_VARIABLES = {
    "MINIMUM_IP_TARGET": str(MINIMUM_IPS_PER_NODE),
    # Its default: `strict` closes CoreDNS before any policy can be there (decision 61).
    "NETWORK_POLICY_ENFORCING_MODE": "standard",
    "WARM_IP_TARGET": str(WARM_IPS_PER_NODE),
}
_ADDON_CONFIGURATION: dict[str, dict[str, object]] = {
    "vpc-cni": {"enableNetworkPolicy": "true", "env": _CNI_VARIABLES}
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
    access: Access
    network: NetworkPlan
    system_nodes: SystemNodes
    pools: tuple[PoolPlan, ...]
    storage: StoragePlan
    data_access: DataAccess
    images: tuple[ImagePlan, ...]
    image_source: GithubSource | None
    """The repository that images are built from; None: this checkout."""
    addons: tuple[AddonPlan, ...]
    platform: PlatformPlan
    teams: tuple[TeamPlan, ...]
    observability: Observability | None
    """None: no metrics, alarms and budget."""
    prices: PriceList
    tags: Mapping[str, str]
    permissions_boundary_arn: str | None
    notes: tuple[str, ...]
    """What somebody must see to, because no file says it and nothing is looked up."""

    def pool(self, name: str) -> PoolPlan:
        """Return the pool of that name; a job's pool is checked before it is planned."""
        return next(pool for pool in self.pools if pool.name == name)

    @property
    def scaled_pools(self) -> tuple[PoolPlan, ...]:
        """Pools whose size the jobs in queues decide."""
        return tuple(pool for pool in self.pools if pool.idle_minutes is not None)

    @property
    def third_party_images(self) -> list[str]:
        """Images of others that something here runs, as their makers name them."""
        skipped = set() if self.platform.etcd else {pins.ETCD_IMAGE}
        skipped |= set() if self.platform.kueue else {pins.KUEUE_IMAGE}
        kinds = self.platform.workloads
        skipped |= {each.image for each in WORKLOADS.values() if each not in kinds}
        return [uri for uri in pins.THIRD_PARTY_IMAGES if uri not in skipped]

    def of_team(self, name: str | None) -> "ClusterPlan":
        """Return the cluster as a team has it: its namespace, user, folder, quotas and data.

        Of none it is the administrators', which is all that there is without teams.
        """
        team = next((each for each in self.teams if each.name == name), None)
        if name is None or team is None:
            return self
        platform = replace(
            self.platform,
            team=name,
            first=self.platform.first and team.namespace == self.platform.namespace,
            namespace=team.namespace,
            pod_uid=team.uid,
            quotas=team.quotas,
        )
        storage = replace(self.storage, subfolder=team.folder)
        return replace(self, platform=platform, storage=storage, data_access=team.data_access)

    @property
    def is_shared(self) -> bool:
        """Whether the cluster file has teams."""
        return any(each.role_arns for each in self.teams)

    @property
    def spaces(self) -> tuple["ClusterPlan", ...]:
        """The cluster as each namespace of jobs has it, the platform's first."""
        own = (e for e in self.teams if e.namespace != self.platform.namespace)
        return (self, *(self.of_team(each.name) for each in own))

    @property
    def queues(self) -> tuple[QueuePlan, ...]:
        """What each team has of each pool; nothing where no jobs are queued.

        Where the platform's namespace is no team's, its checks of pools use what teams leave idle.
        """
        own = self.platform.namespace
        checks = TeamPlan(own, own, (), 0, True, 0, POD_UID, "", (), self.data_access)  # noqa: FBT003 -- a field
        known = any(own in {each.name, each.namespace} for each in self.teams)
        teams = self.teams if known else (*self.teams, checks)
        return plan_queues(self.pools, teams) if self.platform.kueue else ()

    def queue_in(self, namespace: str) -> str:
        """Return the queue of a namespace's jobs; empty where they wait for nothing."""
        teams = [each.team for each in self.queues if each.team]
        return next((team.name for team in teams if team.namespace == namespace), "")

    def stack(self, part: str) -> str:
        """Return the name of one of the cluster's stacks."""
        return f"{self.name}-{part}"


def plan_cluster(
    config: ClusterConfig, image_tags: Mapping[str, str], jobs: Iterable[AnyJob] = ()
) -> ClusterPlan:
    """Plan a cluster for jobs, from a configuration that has passed the checks."""
    brought = config.existing_cluster is not None
    jobs, source = tuple(jobs), config.images.source
    data_access = plan_data_access(job for job in jobs if job.team is None)
    hourly = config.prices.model_dump(exclude={"instance_hour"}, exclude_none=True)
    teams = plan_teams(config, jobs)
    made = ("Storage", "Images") if brought else ("Network", "Storage", "Images", "Cluster")
    observability = config.observability if config.observability.enabled else None
    addons = (*pins.ADDONS, pins.EFS_ADDON) if config.storage.efs else pins.ADDONS
    platform = plan_platform(config)
    directories = plan_directories(platform.shared_directories, platform.mount_path, teams)
    plan = ClusterPlan(
        name=config.name,
        eks_name=config.existing_cluster or config.name,
        stacks=(*made, "Observability") if observability else made,
        region=config.region,
        availability_zones=config.availability_zones,
        kubernetes_version=config.kubernetes_version,
        access=config.access,
        network=plan_network(config),
        system_nodes=plan_system_nodes(config),
        pools=plan_pools(config),
        storage=plan_storage(config),
        data_access=data_access,
        images=plan_images(config, image_tags),
        image_source=source if isinstance(source, GithubSource) else None,
        addons=tuple(_addon(each, config.kubernetes_version) for each in addons),
        platform=replace(platform, shared_directories=directories),
        teams=teams,
        observability=observability,
        prices=PriceList(config.region, config.prices.instance_hour, hourly),
        tags=config.tags,
        permissions_boundary_arn=config.permissions_boundary_arn,
        notes=tuple(plan_notes(config, plan_data_access(jobs))),
    )
    own = (each.name for each in teams if each.namespace == platform.namespace)
    return plan.of_team(next(own, None) if config.teams else None)


def _addon(addon: pins.Addon, kubernetes_version: str) -> AddonPlan:
    return AddonPlan(
        name=addon.name,
        version=addon.versions.get(kubernetes_version),
        service_account=addon.service_account,
        managed_policy=addon.policy,
        configuration=_ADDON_CONFIGURATION.get(addon.name, {}),
    )


def check_cluster(config: ClusterConfig, today: date) -> Findings:
    """Yield everything wrong with a cluster, errors and warnings."""
    yield from check_version(config, today)
    yield from check_region(config)
    yield from check_zones(config)
    yield from check_access(config)
    yield from check_network(config)
    yield from check_existing(config)
    yield from check_egress(config, today)
    yield from check_pools(config)
    yield from check_ami_releases(config, today)
    yield from check_capacity(config, today)
    yield from check_lustre(config)
    yield from check_mount_path(config)
    yield from check_key(config)
    yield from check_images(config)
    yield from check_source(config)
    yield from check_namespace(config)
    yield from check_scaling(config)
    yield from check_teams(config)
    yield from check_observability(config)
    yield from check_tags(config)
