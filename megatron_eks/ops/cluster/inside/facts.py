"""What was read of a cluster, and what the platform should consist of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from megatron_eks.ops.checks import Unknown
from megatron_eks.ops.jobs.room import NodeRoom
from megatron_eks.plan.cluster.cluster import ClusterPlan

NVIDIA_PLUGIN = "nvidia-device-plugin"
EFA_PLUGIN = "aws-efa-k8s-device-plugin"
SET_UP = "shared-directories"

_KUBE_SYSTEM = "kube-system"
_DAEMON_SET, _DEPLOYMENT = "DaemonSet", "Deployment"

# What EKS add-ons install (their own manifests, at the versions of catalog/pins.py).
_OF_ADDONS: dict[str, tuple[tuple[str, str], ...]] = {
    "aws-ebs-csi-driver": ((_DAEMON_SET, "ebs-csi-node"), (_DEPLOYMENT, "ebs-csi-controller")),
    "aws-efs-csi-driver": ((_DAEMON_SET, "efs-csi-node"), (_DEPLOYMENT, "efs-csi-controller")),
    "aws-fsx-csi-driver": ((_DAEMON_SET, "fsx-csi-node"), (_DEPLOYMENT, "fsx-csi-controller")),
    "coredns": ((_DEPLOYMENT, "coredns"),),
    "eks-node-monitoring-agent": ((_DAEMON_SET, "eks-node-monitoring-agent"),),
    "eks-pod-identity-agent": ((_DAEMON_SET, "eks-pod-identity-agent"),),
    "kube-proxy": ((_DAEMON_SET, "kube-proxy"),),
    "metrics-server": ((_DEPLOYMENT, "metrics-server"),),
    "vpc-cni": ((_DAEMON_SET, "aws-node"),),
}


@dataclass(frozen=True)
class Part:
    """A workload that should run."""

    kind: str
    namespace: str
    name: str
    addon: str | None = None
    """The EKS add-on that installs it; None: `meks apply` does."""

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{self.kind} {self.namespace}/{self.name}"


def parts(plan: ClusterPlan, *, is_local: bool) -> Iterator[Part]:
    """Yield what should run; a local cluster has no add-ons, its controllers are processes."""
    platform = plan.platform
    yield Part(_DAEMON_SET, _KUBE_SYSTEM, NVIDIA_PLUGIN)
    if platform.efa_instance_types:
        yield Part(_DAEMON_SET, _KUBE_SYSTEM, EFA_PLUGIN)
    if platform.dcgm_exporter:
        yield Part(_DAEMON_SET, _KUBE_SYSTEM, "dcgm-exporter")
    if is_local:
        return
    for each in platform.workloads:
        if each.controller:
            yield Part(_DEPLOYMENT, *each.controller)
    for addon in plan.addons:
        for kind, name in _OF_ADDONS.get(addon.name, ()):
            yield Part(kind, _KUBE_SYSTEM, name, addon.name)


@dataclass(frozen=True)
class PartState:
    """A workload as it was found."""

    part: Part
    exists: bool
    why: str | None
    """Why it does not work; None: it does."""


@dataclass(frozen=True)
class Plugin:
    """A DaemonSet that offers a device."""

    device: str
    namespace: str
    name: str
    ours: bool
    nodes: frozenset[str]
    """Where its pods may run."""

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Claim:
    """A claim on a shared file system."""

    namespace: str
    name: str
    phase: str | None
    """None: there is none."""


@dataclass
class Live:
    """Everything that was read."""

    plan: ClusterPlan
    is_local: bool
    missing_namespaces: Sequence[str] = ()
    nodes: Sequence[NodeRoom] = ()
    parts: Sequence[PartState] = ()
    plugins: Sequence[Plugin] = ()
    missing_definitions: Sequence[str] = ()
    """Kinds of jobs that the API server should know, and does not."""
    webhooks: Sequence[tuple[str, str]] = ()
    """Webhooks of the controllers, and what is wrong with each."""
    claims: Sequence[Claim] = ()
    mounts: Sequence[tuple[str, str]] = ()
    """Pods that wait for a mount, and why."""
    set_up: str | None = None
    """Why the shared directories are not the pods' yet."""
    missing_secrets: Sequence[tuple[str, str, str]] = ()
    """Job, Secret and key."""
    unknown: list[Unknown] = field(default_factory=list)
