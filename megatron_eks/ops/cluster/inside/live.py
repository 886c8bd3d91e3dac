"""What runs in a cluster, and what should: each thing is asked for when a check looks at it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.cluster import readiness
from megatron_eks.ops.jobs import room
from megatron_eks.ops.jobs.room import NodeRoom
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.objects import CLUSTER_LABEL
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import POOL_LABEL, PoolPlan
from megatron_eks.project import Project

NVIDIA_PLUGIN = "nvidia-device-plugin"
EFA_PLUGIN = "aws-efa-k8s-device-plugin"
SET_UP = "shared-directories"
MISSING = "it is missing"

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

# The last part of an image's name, before tag and digest: mirrors keep it.
_DEVICES = {
    "k8s-device-plugin": "nvidia.com/gpu",
    "aws-efa-k8s-device-plugin": "vpc.amazonaws.com/efa",
}
_APPS = "apps/v1"


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


@dataclass
class Live:
    """A cluster to look into; what several checks need is asked for once."""

    access: Access
    project: Project

    @property
    def client(self) -> Client:
        """What asks its API server."""
        return self.access.client

    @property
    def plan(self) -> ClusterPlan:
        """What it was made by."""
        return self.project.cluster

    @cached_property
    def nodes(self) -> list[NodeRoom]:
        """All nodes, as if they were empty."""
        return room.rooms(self.client.list("v1", "Node"), ())

    @property
    def pool_nodes(self) -> Iterator[tuple[NodeRoom, PoolPlan]]:
        """The nodes of pools, each with its pool."""
        pools = {pool.name: pool for pool in self.plan.pools}
        for node in self.nodes:
            if pool := pools.get(node.labels.get(POOL_LABEL, "")):
                yield node, pool

    @cached_property
    def parts(self) -> list[tuple[Part, str | None]]:
        """Every workload that should run, and why it does not."""
        found: list[tuple[Part, str | None]] = []
        for part in parts(self.plan, is_local=self.access.is_local):
            there = self.client.find(_APPS, part.kind, part.name, part.namespace)
            named = {**(there or {}), "apiVersion": _APPS, "kind": part.kind}
            found.append((part, readiness.unready(self.client, named) if there else MISSING))
        return found

    @cached_property
    def plugins(self) -> list[Plugin]:
        """All device plugins, whoever installed them."""
        found = self.client.list(_APPS, "DaemonSet")
        return [plugin for each in found for plugin in self._plugins(each)]

    def _plugins(self, daemon_set: Object) -> Iterator[Plugin]:
        metadata, pod = daemon_set["metadata"], daemon_set["spec"]["template"]["spec"]
        uris = (each.get("image", "").partition("@")[0] for each in pod["containers"])
        images = {uri.rpartition("/")[2].partition(":")[0] for uri in uris}
        owner = (metadata.get("labels") or {}).get(CLUSTER_LABEL)
        known = {part.name for part in parts(self.plan, is_local=True)}
        ours = owner is not None or metadata["name"] in known
        for image, device in _DEVICES.items():
            if image in images:
                nodes = frozenset(each.name for each in self.nodes if each.takes(pod))
                yield Plugin(device, metadata["namespace"], metadata["name"], ours, nodes)
