"""The plan of what runs in the cluster before any job, and the names that jobs rely on."""

from dataclasses import dataclass, field
from typing import Literal

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.plan.egress import Egress, plan_egress
from megatron_eks.plan.network import service_cidrs, vpc_cidrs
from megatron_eks.plan.quotas import PRIORITY_CLASSES, PriorityClassPlan, QuotaPlan, plan_quotas
from megatron_eks.plan.shared_directories import (
    POD_UID,
    SharedDirectories,
    plan_shared_directories,
)
from megatron_eks.plan.storage import CLAIM, EFS_CLAIM, plan_storage

GPU_TAINT = "nvidia.com/gpu"
SYSTEM_NAMESPACE = "megatron-system"
OPERATOR_NAMESPACE = "kubeflow"

# Every pod of a job runs as it; its role is what they may do in AWS.
SERVICE_ACCOUNT = "jobs"

# Where ranks of `rendezvous: etcd` meet, and on which port.
ETCD_SERVICE = "etcd"
ETCD_PORT = 2379


@dataclass(frozen=True)
class PlatformPlan:
    """What runs in the cluster before any job."""

    namespace: str
    pod_security: Literal["restricted", "privileged"]
    dcgm_exporter: bool
    etcd: bool
    claim: str
    mount_path: str
    capacity_gib: int
    shared_directories: SharedDirectories
    """Of the pods' user."""
    pod_uid: int
    vpc_cidrs: tuple[str, ...]
    service_cidrs: tuple[str, ...]
    efa_instance_types: tuple[str, ...]
    """Types whose nodes run the EFA device plugin."""
    quotas: tuple[QuotaPlan, ...]
    """Of the namespace of jobs."""
    claims: tuple[tuple[str, str], ...] = ()
    """Zones with a file system of their own, and the claim on it."""
    efs_claim: str | None = None
    """The claim on the file system for code and homes."""
    egress: Egress = field(default_factory=Egress)
    priority_classes: tuple[PriorityClassPlan, ...] = PRIORITY_CLASSES
    system_namespace: str = SYSTEM_NAMESPACE
    operator_namespace: str = OPERATOR_NAMESPACE
    gpu_taint: str = GPU_TAINT
    service_account: str = SERVICE_ACCOUNT
    """Of the pods of jobs; their credentials for S3 are bound to it."""

    def claim_in(self, zone: str) -> str:
        """Return the claim on the file system that pods of a zone mount."""
        return dict(self.claims).get(zone, self.claim)


def plan_platform(config: ClusterConfig) -> PlatformPlan:
    """Plan the platform of a cluster that has passed the checks."""
    types = {pool.instance_type for pool in config.gpu_pools}
    file_systems = plan_storage(config).file_systems
    return PlatformPlan(
        namespace=config.platform.namespace,
        pod_security=config.platform.pod_security,
        dcgm_exporter=config.platform.dcgm_exporter,
        etcd=config.platform.etcd,
        claim=CLAIM,
        mount_path=config.storage.lustre.mount_path,
        capacity_gib=config.storage.lustre.capacity_gib,
        shared_directories=plan_shared_directories(config),
        pod_uid=POD_UID,
        vpc_cidrs=vpc_cidrs(config),
        service_cidrs=service_cidrs(config),
        efa_instance_types=tuple(sorted(name for name in types if INSTANCES[name].efa_interfaces)),
        claims=tuple((each.zone, each.claim) for each in file_systems),
        efs_claim=EFS_CLAIM if config.storage.efs else None,
        egress=plan_egress(config),
        quotas=plan_quotas(config),
    )
