"""Rule over the names that a ResourceQuota counts."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.values import is_placeholder, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Manifest

# Kubernetes, "Resource Quotas".
_NAMES = (
    *("configmaps", "cpu", "ephemeral-storage", "memory", "persistentvolumeclaims", "pods"),
    *("replicationcontrollers", "resourcequotas", "secrets", "services", "requests.storage"),
    *("services.loadbalancers", "services.nodeports", "requests.cpu", "requests.memory"),
    *("requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage"),
)
_OTHERS = re.compile(
    r"count/[a-z0-9.-]+|(requests\.)?hugepages-[0-9A-Za-z]+"
    r"|requests\.[a-z0-9.-]+/[A-Za-z0-9._-]+|.+\.storageclass\.storage\.k8s\.io/[a-z.]+"
    r"|.+\.deviceclass\.resource\.k8s\.io/devices"
)
_OF_GROUPS = {
    **dict.fromkeys(("cronjobs", "jobs"), "batch"),
    **dict.fromkeys(("daemonsets", "deployments", "replicasets", "statefulsets"), "apps"),
    **dict.fromkeys(("mpijobs", "pytorchjobs"), "kubeflow.org"),
    "jobsets": "jobset.x-k8s.io",
    "trainjobs": "trainer.kubeflow.org",
}
_CLOSE = 0.8
_DEVICES = (GPU, EFA, "nvidia.com/gpu.shared", "aws.amazon.com/neuron")
_NEARLY = 0.92
_DEVICE = re.compile(r"requests\.(?!.*(storageclass|deviceclass))[a-z0-9.-]+/[A-Za-z0-9._-]+")
_WITH_UNIT = re.compile(r"([0-9]+)[KMGTPE]i?")


def device_counts(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a number of devices with the unit of memory.

    Kubernetes, pkg/apis/core/validation, ValidateResourceQuotaSpec: any whole number will do, and
    32Gi is one; no namespace ever asks for as many.
    """
    hard = mapping(manifest.spec.get("hard")) or {}
    for name, value in hard.items() if manifest.kind == "ResourceQuota" else ():
        met = _WITH_UNIT.fullmatch(text(value) or "") if _DEVICE.fullmatch(name) else None
        if met:
            found = f"{shown(value)} is a number of bytes: as a number of devices it bounds nothing"
            path = ("spec", "hard", name)
            remedy = f'write "{met[1]}"'
            yield manifest.find(Code.QUOTA_NAME, path, found, remedy, Level.WARNING)


def quota_names(manifest: Manifest) -> Iterator[Finding]:
    """Warn of names in a quota that Kubernetes does not count.

    Kubernetes, "Resource Quotas": devices can be counted by their requests alone, which equal
    their limits.
    """
    if manifest.kind != "ResourceQuota" or manifest.group:
        return
    for name in mapping(manifest.spec.get("hard")) or {}:
        device = name.partition(".")[2] if name.startswith("requests.") else ""
        nearly = get_close_matches(device, _DEVICES, 1, _NEARLY)
        path = ("spec", "hard", name)
        if device and nearly and device not in _DEVICES:
            found = f"no node has {shown(device)}, so this counts nothing"
            remedy = f"did you mean requests.{nearly[0]}?"
            yield manifest.find(Code.QUOTA_NAME, path, found, remedy, Level.WARNING)
        plural = name.removeprefix("count/")
        if plural != name and plural in _OF_GROUPS:
            found = f"{shown(name)} counts nothing: it names no group"
            remedy = f"write {name}.{_OF_GROUPS[plural]}"
            yield manifest.find(Code.QUOTA_NAME, path, found, remedy, Level.WARNING)
        if name in _NAMES or _OTHERS.fullmatch(name) or is_placeholder(name):
            continue
        device = name.partition(".")[2] if "/" in name else ""
        close = get_close_matches(name, _NAMES, 1, _CLOSE)
        plain = f"write requests.{name}" if "/" in name else "write it as requests.nvidia.com/gpu"
        remedy = f"did you mean {close[0]}?" if close else plain
        if device and name.split(".", 1)[0] in {"limit", "limits", "request"}:
            remedy = f"write requests.{device}"
        found = f"{shown(name)} counts nothing"
        path = ("spec", "hard", name)
        yield manifest.find(Code.QUOTA_NAME, path, found, remedy, Level.WARNING)
