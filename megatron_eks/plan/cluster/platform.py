"""What runs in the cluster before any job, and the names that jobs rely on."""

from dataclasses import dataclass, field
from typing import Literal

from megatron_eks.catalog import kueue
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.pins import POD_UID
from megatron_eks.catalog.workloads import WORKLOADS, AnyWorkload, Workload, WorkloadKind
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings
from megatron_eks.plan.cluster.egress import Egress, plan_egress
from megatron_eks.plan.cluster.lustre import CLAIM
from megatron_eks.plan.cluster.network import service_cidrs, vpc_cidrs
from megatron_eks.plan.cluster.storage import (
    EFS_CLAIM,
    SharedDirectories,
    plan_shared_directories,
    plan_storage,
)

TRAINING_PRIORITY = "megatron-training"
VALIDATION_PRIORITY = "megatron-validation"
CHECKED_NODES = 2
"""What a check of a pool takes at most: two nodes make a network."""

SYSTEM_PRIORITIES = ("system-cluster-critical", "system-node-critical")
"""Kubernetes' own classes, above every other; pods of any namespace may name them."""

# Pods without a GPU, such as shards of data preparation, beside one pod for each GPU.
_PODS_WITHOUT_GPU = 100

GPU_TAINT = "nvidia.com/gpu"
SYSTEM_NAMESPACE = "megatron-system"
_CONTROLLERS = [each.controller for each in (*WORKLOADS.values(), kueue.WORKLOAD)]

# Every pod of a job runs as it; its role is what they may do in AWS.
SERVICE_ACCOUNT = "jobs"

# Where ranks of `rendezvous: etcd` meet, and on which port.
ETCD_SERVICE = "etcd"
ETCD_PORT = 2379


@dataclass(frozen=True)
class PriorityClassPlan:
    """One class of pods."""

    name: str
    value: int
    """Higher comes first; a pod without a class has 0, Kubernetes' own start at two billion."""
    preempts: bool
    """Whether a pod that finds no place takes that of a lower one."""
    description: str


@dataclass(frozen=True)
class QuotaPlan:
    """A limit on what the pods of some priority classes may hold together."""

    name: str
    hard: tuple[tuple[str, int], ...]
    """Resources, each with its limit."""
    classes: tuple[str, ...] = ()
    """Empty: every pod counts."""
    operator: Literal["In", "NotIn"] = "In"


_OF_TRAINING = "Training jobs; on a full node they take the place of checks."
_OF_CHECKS = "Checks of nodes, which wait for a free GPU and give way to training."
PRIORITY_CLASSES = (
    PriorityClassPlan(TRAINING_PRIORITY, 100_000, preempts=True, description=_OF_TRAINING),
    PriorityClassPlan(VALIDATION_PRIORITY, 1_000, preempts=False, description=_OF_CHECKS),
)


def plan_quotas(config: ClusterConfig) -> tuple[QuotaPlan, ...]:
    """Limit the namespace to what all pools have at their largest.

    Training and everything else are counted apart: a quota refuses a pod before the scheduler
    sees it, so a check that holds one GPU would keep out the pod that is entitled to its place.
    """
    pools = [(INSTANCES[pool.instance_type], pool.max_nodes) for pool in config.gpu_pools]
    gpus = sum(instance.gpus * nodes for instance, nodes in pools)
    efa = sum(instance.efa_interfaces * nodes for instance, nodes in pools)
    devices = (("requests.nvidia.com/gpu", gpus), ("requests.vpc.amazonaws.com/efa", efa))
    return (
        QuotaPlan("training", devices, (TRAINING_PRIORITY,)),
        QuotaPlan("all-but-training", devices, (TRAINING_PRIORITY,), "NotIn"),
        QuotaPlan("pods", (("pods", gpus + _PODS_WITHOUT_GPU),)),
        # Nothing of a job may push a device plugin or the network off its node.
        QuotaPlan("no-system-priority", (("pods", 0),), SYSTEM_PRIORITIES),
    )


def controlled(workload: Workload) -> tuple[WorkloadKind, ...]:
    """Return the kinds of jobs that have their controllers where the platform says a kind."""
    own = kind_of(workload)
    names = ("PyTorchJob", own.makes, own.kind)
    return tuple(WORKLOADS[each] for each in dict.fromkeys(names) if each)


def kind_of(workload: AnyWorkload) -> WorkloadKind:
    """Return what there is to know of a kind, as files write it."""
    return next(each for kind, each in WORKLOADS.items() if kind.lower() == workload)


@dataclass(frozen=True)
class PlatformPlan:
    """What runs in the cluster before any job."""

    cluster: str
    """Its name, which every object carries."""
    namespace: str
    """Of the jobs; a team's own where it is looked at as the team has it."""
    pod_security: Literal["restricted", "privileged"]
    dcgm_exporter: bool
    etcd: bool
    workload: Workload
    """What runs the ranks of jobs that do not say it."""
    kueue: bool
    """Whether jobs with GPUs wait in queues until all of their pods have a place."""
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
    gpu_taint: str = GPU_TAINT
    service_account: str = SERVICE_ACCOUNT
    """Of the pods of jobs; their credentials for S3 are bound to it."""
    team: str | None = None
    """Whose namespace it is; None where there are no teams, or it is nobody's."""
    first: bool = True
    """Whether it is the platform's own, beside which stands what all share."""
    namespaces: tuple[str, ...] = ()
    """All that jobs are in."""
    observed: bool = False
    """Whether a scraper in the VPC reaches what pods of jobs measure."""
    observed_by_pods: bool = False
    """Whether that scraper may be a pod of the cluster, `prometheus` of any namespace."""

    @property
    def workloads(self) -> tuple[WorkloadKind, ...]:
        """The kinds of jobs whose controllers run: PyTorchJobs may be left of before a change."""
        return controlled(self.workload)

    @property
    def queued(self) -> tuple[WorkloadKind, ...]:
        """The kinds of jobs that queues know."""
        return (*self.workloads, WORKLOADS["Job"])

    def claim_in(self, zone: str) -> str:
        """Return the claim on the file system that pods of a zone mount."""
        return dict(self.claims).get(zone, self.claim)


def plan_platform(config: ClusterConfig) -> PlatformPlan:
    """Plan the platform of a cluster that has passed the checks."""
    types = {pool.instance_type for pool in config.gpu_pools}
    file_systems = plan_storage(config).file_systems
    return PlatformPlan(
        cluster=config.name,
        namespace=config.platform.namespace,
        pod_security=config.platform.pod_security,
        dcgm_exporter=config.platform.dcgm_exporter,
        etcd=config.platform.etcd,
        workload=config.platform.workload,
        kueue=config.platform.kueue,
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
        observed=config.observability.enabled,
        observed_by_pods=config.observability.metrics == "own",
        quotas=plan_quotas(config),
        namespaces=namespaces(config),
    )


def namespaces(config: ClusterConfig) -> tuple[str, ...]:
    """Return where jobs are: the platform's own namespace, and that of each team."""
    of_teams = (each.namespace or each.name for each in config.teams)
    return tuple(dict.fromkeys((config.platform.namespace, *of_teams)))


def check_namespace(config: ClusterConfig) -> Findings:
    """Yield a namespace that is not the user's to choose."""
    name = config.platform.namespace
    if is_reserved(name):
        found = f"{name} belongs to Kubernetes or to this project's own parts"
        remedy = "use a namespace of your own, such as megatron-workshop"
        yield Finding(Code.NAMESPACE, ("platform", "namespace"), found, remedy)


def is_reserved(name: str) -> bool:
    """Tell a namespace of Kubernetes or of this project's own parts."""
    own = {SYSTEM_NAMESPACE, "default", *(each[0] for each in _CONTROLLERS if each)}
    return name in own or name.startswith("kube-")
