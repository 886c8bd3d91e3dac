"""The plan of what runs in the cluster before any job, and the names that jobs rely on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.plan.quotas import PRIORITY_CLASSES, PriorityClassPlan, QuotaPlan, plan_quotas

if TYPE_CHECKING:
    from megatron_eks.config.cluster import ClusterConfig

GPU_TAINT = "nvidia.com/gpu"
CLAIM = "fsx-shared-pvc"
SYSTEM_NAMESPACE = "megatron-system"
OPERATOR_NAMESPACE = "kubeflow"

# Pods run as this user; it owns the directories that the set-up Job makes on the file system.
POD_UID = 10001

# What every cluster has below the mount path.
SHARED_DIRECTORIES = ("data", "tokenizer", "checkpoints", "logs", "cache")


@dataclass(frozen=True)
class PlatformPlan:
    """What runs in the cluster before any job."""

    namespace: str
    pod_security: Literal["restricted", "privileged"]
    dcgm_exporter: bool
    claim: str
    mount_path: str
    capacity_gib: int
    shared_directories: tuple[str, ...]
    """What belongs to the pods' user: the root of the file system, and the usual places in it."""
    pod_uid: int
    vpc_cidr: str
    service_cidr: str
    efa_instance_types: tuple[str, ...]
    """Types whose nodes run the EFA device plugin."""
    quotas: tuple[QuotaPlan, ...]
    """Of the namespace of jobs."""
    priority_classes: tuple[PriorityClassPlan, ...] = PRIORITY_CLASSES
    system_namespace: str = SYSTEM_NAMESPACE
    operator_namespace: str = OPERATOR_NAMESPACE
    gpu_taint: str = GPU_TAINT


def plan_platform(config: "ClusterConfig") -> PlatformPlan:
    """Plan the platform of a cluster that has passed the checks."""
    types = {pool.instance_type for pool in config.gpu_pools}
    mount_path = config.storage.lustre.mount_path
    return PlatformPlan(
        namespace=config.platform.namespace,
        pod_security=config.platform.pod_security,
        dcgm_exporter=config.platform.dcgm_exporter,
        claim=CLAIM,
        mount_path=mount_path,
        capacity_gib=config.storage.lustre.capacity_gib,
        shared_directories=(mount_path, *(f"{mount_path}/{name}" for name in SHARED_DIRECTORIES)),
        pod_uid=POD_UID,
        vpc_cidr=config.network.vpc_cidr,
        service_cidr=config.network.service_cidr,
        efa_instance_types=tuple(sorted(name for name in types if INSTANCES[name].efa_interfaces)),
        quotas=plan_quotas(config),
    )
