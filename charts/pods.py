"""What pods of several charts share: how they reach GPU nodes, and what they may do there."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog.node_repair import LOST_NODE_SECONDS
from megatron_eks.plan.cluster.egress import CA_DIRECTORY
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.cluster.storage import EFS_MOUNT_PATH

# The EKS AMI with NVIDIA's driver gives its nodes this label (awslabs/amazon-eks-ami, nodeadm).
GPU_NODES = {"nvidia.com/gpu.present": "true"}

# Priority of what a node cannot work without: such pods are evicted last and preempt others.
_NODE_CRITICAL = "system-node-critical"

# Priority of what the cluster cannot work without, on whatever node it runs.
CLUSTER_CRITICAL = "system-cluster-critical"

KUBE_SYSTEM = "kube-system"

CA_BUNDLE = "ca-bundle"
"""The ConfigMap with the certificates that jobs trust."""

_HOMES = "homes"


def add_object(
    scope: Construct,
    construct_id: str,
    api_version: str,
    kind: str,
    metadata: cdk8s.ApiObjectMetadata,
    **parts: object,
) -> cdk8s.ApiObject:
    """Add an object that has no typed class, or whose parts are JSON already."""
    resource = cdk8s.ApiObject(
        scope, construct_id, api_version=api_version, kind=kind, metadata=metadata
    )
    resource.add_json_patch(
        *(cdk8s.JsonPatch.add(f"/{name}", part) for name, part in parts.items())
    )
    return resource


def scraped_at(port: int) -> dict[str, str]:
    """Return annotations by which a Prometheus finds a port; a ServiceMonitor needs a CRD."""
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }


@cache
def quantity(text: str) -> k8s.Quantity:
    """Return a quantity; each one is an object in another process, so equal ones are shared."""
    return k8s.Quantity.from_string(text)


def sizes(cpu: str, memory: str, *, limit: str | None = None) -> k8s.ResourceRequirements:
    """Request a little and limit the memory alone: who waits for a CPU is late, and not wrong."""
    return k8s.ResourceRequirements(
        requests={"cpu": quantity(cpu), "memory": quantity(memory)},
        limits={"memory": quantity(limit)} if limit else None,
    )


@cache
def count(number: int) -> k8s.Quantity:
    """Return a number of devices."""
    return k8s.Quantity.from_number(number)


def gpu_toleration(taint: str) -> k8s.Toleration:
    """Let a pod onto nodes that keep everything without a GPU away."""
    return k8s.Toleration(key=taint, operator="Exists", effect="NoSchedule")


def leave_lost_node() -> list[k8s.Toleration]:
    """Let a pod go soon from a node that is lost; Kubernetes waits for five minutes."""
    return [
        k8s.Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=seconds)
        for key, seconds in LOST_NODE_SECONDS.items()
    ]


def brought_volumes(platform: PlatformPlan) -> list[k8s.Volume]:
    """Return what pods of jobs mount besides Lustre: shared homes, and certificates to trust."""
    volumes: list[k8s.Volume] = []
    if platform.efs_claim is not None:
        claim = k8s.PersistentVolumeClaimVolumeSource(claim_name=platform.efs_claim)
        volumes.append(k8s.Volume(name=_HOMES, persistent_volume_claim=claim))
    if platform.egress.ca_bundle is not None:
        source = k8s.ConfigMapVolumeSource(name=CA_BUNDLE)
        volumes.append(k8s.Volume(name=CA_BUNDLE, config_map=source))
    return volumes


def brought_mounts(platform: PlatformPlan) -> list[k8s.VolumeMount]:
    """Return where a container finds `brought_volumes`; variables point to the certificates."""
    mounts: list[k8s.VolumeMount] = []
    if platform.efs_claim is not None:
        mounts.append(k8s.VolumeMount(name=_HOMES, mount_path=EFS_MOUNT_PATH))
    if platform.egress.ca_bundle is not None:
        mounts.append(k8s.VolumeMount(name=CA_BUNDLE, mount_path=CA_DIRECTORY, read_only=True))
    return mounts


def unprivileged_pod(uid: int) -> k8s.PodSecurityContext:
    """Run as an ordinary user; with `unprivileged_container` this passes Pod Security restricted.

    No fsGroup: the kubelet would change the owner of every file on the shared file system before
    the first container starts (aws-fsx-csi-driver, docs/troubleshooting.md).
    """
    return k8s.PodSecurityContext(
        run_as_non_root=True,
        run_as_user=uid,
        run_as_group=uid,
        seccomp_profile=k8s.SeccompProfile(type="RuntimeDefault"),
    )


def unprivileged_container(*capabilities: str) -> k8s.SecurityContext:
    """Forbid a container everything but the capabilities it names, and writes to its image."""
    return k8s.SecurityContext(
        allow_privilege_escalation=False,
        read_only_root_filesystem=True,
        capabilities=k8s.Capabilities(drop=["ALL"], add=list(capabilities) or None),
    )


def node_agent(
    scope: Construct,
    container: k8s.Container,
    volumes: Sequence[k8s.Volume],
    *,
    taint: str,
    affinity: k8s.Affinity | None = None,
    host_network: bool | None = None,
) -> None:
    """Run a container on each GPU node, or on those that an affinity names, under its own name."""
    labels = {"app.kubernetes.io/name": container.name}
    pod = k8s.PodSpec(
        containers=[container],
        volumes=volumes,
        node_selector=None if affinity else GPU_NODES,
        affinity=affinity,
        tolerations=[gpu_toleration(taint)],
        priority_class_name=_NODE_CRITICAL,
        host_network=host_network,
        automount_service_account_token=False,
    )
    k8s.KubeDaemonSet(
        scope,
        container.name,
        metadata=k8s.ObjectMeta(name=container.name, namespace=KUBE_SYSTEM, labels=labels),
        spec=k8s.DaemonSetSpec(
            selector=k8s.LabelSelector(match_labels=labels),
            update_strategy=k8s.DaemonSetUpdateStrategy(type="RollingUpdate"),
            template=k8s.PodTemplateSpec(metadata=k8s.ObjectMeta(labels=labels), spec=pod),
        ),
    )


def one_pod(
    scope: Construct,
    metadata: k8s.ObjectMeta,
    labels: Mapping[str, str],
    pod: k8s.PodSpec,
    program: str = "",
) -> None:
    """Run a pod that reads its program once, so a new program is a new pod; never two at a time."""
    digest = hashlib.sha256(program.encode()).hexdigest()[:16]
    annotations = {"megatron-eks/template": digest} if program else None
    template = k8s.ObjectMeta(labels=labels, annotations=annotations)
    k8s.KubeDeployment(
        scope,
        "deployment",
        metadata=metadata,
        spec=k8s.DeploymentSpec(
            replicas=1,
            strategy=k8s.DeploymentStrategy(type="Recreate"),
            selector=k8s.LabelSelector(match_labels=labels),
            template=k8s.PodTemplateSpec(metadata=template, spec=pod),
        ),
    )
