"""Rule over keys of labels and annotations that are nearly a key that somebody reads."""

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import cache

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.node_labels import wanted
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_CLOSE = 0.88
_LIKE = 0.8
_ODD = re.compile(r"[-_.]")
# EKS User Guide, "Assign IAM roles to Kubernetes service accounts", "Create self-managed nodes",
# "Simplify node management with managed node groups"; Kubernetes, "Well-Known Labels, Annotations
# and Taints"; Kueue, "Labels and Annotations"; NVIDIA/k8s-device-plugin and GPU operator, labels of
# GPU feature discovery; kubeflow/trainer v1.9.4, pkg/apis; Prometheus operator's and autoscaler's
# own documents. Those that differ by little from another are here, so that neither is a slip.
_KNOWN: dict[str, tuple[str, ...]] = {
    "eks.amazonaws.com": (
        *("audience", "capacityType", "compute-type", "fargate-profile", "nodegroup"),
        *("nodegroup-image", "role-arn", "skip-containers", "sourceLaunchTemplateId"),
        *("sourceLaunchTemplateVersion", "sts-regional-endpoints", "token-expiration"),
        *("nodeclass", "instance-category", "instance-cpu", "instance-cpu-manufacturer"),
        *("instance-ebs-bandwidth", "instance-encryption-in-transit-supported"),
        *("instance-family", "instance-generation", "instance-gpu-count"),
        *("instance-gpu-manufacturer", "instance-gpu-memory", "instance-gpu-name"),
        *("instance-hypervisor", "instance-local-nvme", "instance-memory"),
        *("instance-network-bandwidth", "instance-size", "component", "pod-identity-webhook"),
        *("capacity-reservation-id", "capacity-reservation-type"),
    ),
    "kubernetes.io": (
        *("arch", "change-cause", "cluster-service", "config.hash", "config.mirror"),
        *("config.seen", "config.source", "description", "egress-bandwidth", "hostname"),
        *("ingress-bandwidth", "ingress.class", "metadata.name", "os", "role"),
        *("enforce-mountable-secrets", "legacy-token-last-used", "service-account.name"),
        *("service-account.uid", "psp", "limit-ranger", "created-by", "cluster", "name"),
    ),
    "app.kubernetes.io": (
        *("component", "created-by", "instance", "managed-by", "name", "part-of", "version"),
    ),
    "node.kubernetes.io": (
        *("instance-type", "not-ready", "unreachable", "memory-pressure", "disk-pressure"),
        *("pid-pressure", "network-unavailable", "unschedulable", "out-of-service"),
        *("exclude-from-external-load-balancers", "windows-build", "exclude-disruption"),
        *("master", "role"),
    ),
    "node-role.kubernetes.io": ("control-plane", "master", "worker", "node"),
    "topology.kubernetes.io": ("region", "zone"),
    "beta.kubernetes.io": ("arch", "fluentd-ds-ready", "instance-type", "os"),
    "failure-domain.beta.kubernetes.io": ("region", "zone"),
    "topology.k8s.aws": (
        *("network-node-layer-1", "network-node-layer-2", "network-node-layer-3", "zone-id"),
        *("network-node-layer-4", "ultraserver-id", "capacity-block-id"),
    ),
    "batch.kubernetes.io": (
        *("controller-uid", "cronjob-scheduled-timestamp", "job-completion-index", "job-index"),
        *("job-index-failure-count", "job-index-ignored-failure-count", "job-name"),
        *("job-tracking",),
    ),
    "storageclass.kubernetes.io": ("is-default-class",),
    "storageclass.beta.kubernetes.io": ("is-default-class",),
    "service.kubernetes.io": ("headless", "service-proxy-name", "topology-mode"),
    "cluster-autoscaler.kubernetes.io": (
        *("safe-to-evict", "safe-to-evict-local-volumes", "scale-down-disabled"),
        *("enable-ds-eviction", "daemonset-pod"),
    ),
    "kueue.x-k8s.io": (
        *("admission-gated-by", "cluster-queue-name", "elastic-job", "is-group-workload"),
        *("job-uid", "job-completions-equal-parallelism", "local-queue-name", "managed"),
        *("max-exec-time-seconds", "pod-group-fast-admission", "pod-group-name"),
        *("pod-group-pod-index", "pod-group-pod-index-label", "pod-group-serving"),
        *("pod-group-total-count", "pod-suspending-parent", "podset", "podset-name"),
        *("podset-group-name", "podset-preferred-topology", "podset-required-topology"),
        *("podset-slice-required-topology", "podset-slice-size", "podset-unconstrained-topology"),
        *("prebuilt-workload-name", "priority-class", "priority-boost", "queue-name"),
        *("retriable-in-group", "role-hash", "tas", "topology", "workload", "workload-name"),
        *("multikueue-origin", "multikueue-origin-uid", "provisioning", "replaced-workload"),
        *("safe-to-forcefully-delete", "topology-assignment", "node-to-replace"),
        *("allowed-resource-flavor", "podset-slice-required-topology-constraints"),
    ),
    "training.kubeflow.org": (
        *("job-name", "job-role", "operator-name", "replica-index", "replica-type"),
    ),
    "sidecar.istio.io": ("inject",),
    "prometheus.io": ("path", "port", "probe", "scheme", "scrape", "param"),
}
# Karpenter v1.8, "Scheduling", well-known labels, and pkg/apis/v1/labels.go; eksctl, nodegroups.
_KNOWN["karpenter.sh"] = (
    *("capacity-type", "discovery", "disrupted", "do-not-consolidate", "do-not-disrupt"),
    *("do-not-evict", "do-not-sync-taints", "initialized", "managed-by", "nodeclaim"),
    *("nodeclaim-min-values-relaxed", "nodeclaim-termination-timestamp", "nodepool"),
    *("nodepool-hash", "nodepool-hash-version", "provisioner-name", "registered"),
    *("termination", "unregistered"),
)
_KNOWN["karpenter.k8s.aws"] = (
    *("capacity-reservation-id", "capacity-reservation-type", "ec2nodeclass", "instance-size"),
    *("capacity-reservation-interruptible", "ec2nodeclass-hash", "ec2nodeclass-hash-version"),
    *("instance-accelerator-count", "instance-accelerator-manufacturer", "instance-memory"),
    *("instance-accelerator-name", "instance-capability-flex", "instance-category"),
    *("instance-cpu", "instance-cpu-manufacturer", "instance-cpu-sustained-clock-speed-mhz"),
    *("instance-ebs-bandwidth", "instance-encryption-in-transit-supported", "instance-family"),
    *("instance-generation", "instance-gpu-count", "instance-gpu-manufacturer"),
    *("instance-gpu-memory", "instance-gpu-name", "instance-hypervisor", "instance-local-nvme"),
    *("instance-network-bandwidth", "instance-tenancy", "nodeclass-hash"),
)
_KNOWN["alpha.eksctl.io"] = (
    *("cluster-name", "cluster-oidc-enabled", "eksctl-version", "instance-id", "nodegroup-name"),
    *("nodegroup-type", "addon-name", "iamserviceaccount-name", "managed-cloudwatch-logging"),
)
# What another tool calls the same thing.
_OTHERWISE = {
    "alpha.eksctl.io/nodegroup": "alpha.eksctl.io/nodegroup-name",
    "eks.amazonaws.com/nodegroup-name": "eks.amazonaws.com/nodegroup",
    "karpenter.sh/node-pool-name": "karpenter.sh/nodepool",
    "karpenter.sh/nodepool-name": "karpenter.sh/nodepool",
}
# NVIDIA's and EFA's keys: name by name, as their prefix is that of resources too.
_KNOWN["nvidia.com"] = (
    *("cuda.driver-version.full", "cuda.driver-version.major", "cuda.driver-version.minor"),
    *("cuda.driver-version.revision", "cuda.driver.major", "cuda.driver.minor"),
    *("cuda.driver.rev", "cuda.runtime-version.full", "cuda.runtime-version.major"),
    *("cuda.runtime-version.minor", "cuda.runtime.major", "cuda.runtime.minor"),
    *("device-plugin.config", "gfd.timestamp", "gpu", "gpu-driver-upgrade-state", "gpu.clique"),
    *("gpu.compute.major", "gpu.compute.minor", "gpu.count", "gpu.deploy.container-toolkit"),
    *("gpu.deploy.dcgm", "gpu.deploy.dcgm-exporter", "gpu.deploy.device-plugin"),
    *("gpu.deploy.driver", "gpu.deploy.gpu-feature-discovery", "gpu.deploy.mig-manager"),
    *("gpu.deploy.node-status-exporter", "gpu.deploy.nvsm", "gpu.deploy.operands"),
    *("gpu.deploy.operator-validator", "gpu.deploy.sandbox-device-plugin"),
    *("gpu.deploy.vgpu-device-manager", "gpu.deploy.vgpu-manager", "gpu.family"),
    *("gpu.deploy.sandbox-validator", "gpu.deploy.vfio-manager", "gpu.deploy.cc-manager"),
    *("gpu.deploy.dcgm-dra", "gpu.deploy.dcgm-exporter-dra", "gpu.deploy.dra-driver"),
    *("gpu.deploy.client", "gpu.deploy.dra-validator", "gpu.deploy.kata-manager"),
    "gpu.deploy.kata-sandbox-device-plugin",
    *("gpu.machine", "gpu.memory", "gpu.mode", "gpu.present", "gpu.product", "gpu.replicas"),
    *("gpu.sharing-strategy", "gpu.shared", "gpu.workload.config", "mig.capable", "mig.config"),
    *("mig.config.state", "mig.strategy", "mps.capable", "vgpu.host-driver-branch"),
    *("vgpu.host-driver-version", "vgpu.present", "vgpu.config", "vgpu.config.state"),
    *("gpu.engines.copy", "gpu.engines.decoder", "gpu.engines.encoder", "gpu.multiprocessors"),
    *("gpu.slices.ci", "gpu.slices.gi", "gpu-driver-upgrade-enabled", "dra-kubelet-plugin"),
    # Project-HAMi/HAMi, docs/config.md.
    *("use-gpuuuid", "nouse-gpuuuid", "use-gputype", "nouse-gputype", "vgpu-mode"),
)

KNOWN_DOMAINS = frozenset(_KNOWN)
"""Domains of keys that are judged here."""


def keys(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a key that is a slip of one that EKS, Kubernetes, Kueue or NVIDIA's parts read.

    The documents named at the table: a key that nobody reads does nothing, and no error says so.
    """
    for path, key in _places(manifest):
        close = _near(key) if not is_placeholder(key) else None
        if close is not None:
            found = f"nobody reads {shown(key)}"
            # Nodes have the older form only where a cloud still gives it.
            remedy = f"did you mean {close.replace('failure-domain.beta.', 'topology.')}?"
            yield manifest.find(Code.MISSPELT_KEY, path, found, remedy, Level.WARNING)


def _places(manifest: Manifest) -> Iterator[tuple[Path, str]]:
    metadata = mapping(manifest.body.get("metadata")) or {}
    yield from _of((), metadata)
    for pod in manifest.pods:
        # The template of the pod is around its spec; a Pod itself has the one above.
        above = pod.path[1:-1]
        body: Json = dict(manifest.body)
        for part in above:
            body = (
                body[part]
                if isinstance(body, list) and isinstance(part, int)
                else (mapping(body) or {}).get(str(part))
            )
        if above:
            yield from _of(above, mapping((mapping(body) or {}).get("metadata")) or {})
        yield from _of_placing(pod)


def _of(above: Path, metadata: Mapping[str, Json]) -> Iterator[tuple[Path, str]]:
    where: Path = (*above, "metadata") if above else ("metadata",)
    for part in ("annotations", "labels"):
        for key in mapping(metadata.get(part)) or {}:
            yield (*where, part, key), key


def _of_placing(pod: Pod) -> Iterator[tuple[Path, str]]:
    path = pod.path[1:]
    for place, key, _ in wanted(pod):
        yield place[1:], key
    for part, name in (("tolerations", "key"), ("topologySpreadConstraints", "topologyKey")):
        for index, value in enumerate(items(pod.spec.get(part)) or []):
            written = text((mapping(value) or {}).get(name))
            if written is not None:
                yield (*path, part, index, name), written


@cache
def _near(key: str) -> str | None:
    """Return the known key of which another is a slip; None where it may be one of its own."""
    domain, slash, name = key.rpartition("/")
    if key in _OTHERWISE:
        return _OTHERWISE[key]
    if not slash or name in _KNOWN.get(domain, ()):
        return None
    if domain in _KNOWN:
        return next((f"{domain}/{each}" for each in _KNOWN[domain] if _slip(name, each)), None)
    for each, names in _KNOWN.items():
        if name in names and _slip(domain, each):
            return f"{each}/{name}"
    return None


def _slip(one: str, other: str) -> bool:
    """Tell whether two words are one but for a letter or two, or for case and dashes."""
    plain, known = (_ODD.sub("", each).lower() for each in (one, other))
    if plain == known:
        return True
    numbers = [re.findall(r"[0-9]+", each) for each in (plain, known)]
    same = sorted(plain) == sorted(known)
    ratio = SequenceMatcher(None, plain, known).ratio()
    return numbers[0] == numbers[1] and ratio >= (_LIKE if same else _CLOSE)
