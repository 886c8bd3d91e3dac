"""Rules over NVIDIA's exporter of metrics: its port, its memory, and the fields that it reads."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.quantity import quantity
from megatron_eks.rules.values import items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest

_EXPORTER = re.compile(r"(^|/)dcgm-exporter([:@]|$)")
_SOCKETS = "/var/lib/kubelet/pod-resources"
_PORT = re.compile(r".*:([0-9]+)")
_TYPES = ("counter", "gauge", "histogram", "label", "summary")
_FOURTH = re.compile(r"(^|/)dcgm-exporter:4\.")
_LEAST = "512Mi"
_FIELD = re.compile(r"\s*(DCGM_(FI|EXP)_\w+)\s*,(.*)")


def ports(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an exporter that opens another port than the one its pod lists.

    NVIDIA/dcgm-exporter, README, --address and DCGM_EXPORTER_LISTEN: whoever scrapes the listed
    port finds nobody.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            if not _EXPORTER.search(text(container.body.get("image")) or ""):
                continue
            listed = [
                port
                for each in items(container.body.get("ports")) or []
                if (port := number((mapping(each) or {}).get("containerPort"))) is not None
            ]
            opened = _opened(container)
            if opened is not None and listed and opened not in listed:
                found = f"listens on {opened}, and lists {', '.join(map(str, listed))}"
                path = (*container.path[1:], "ports")
                remedy = f"write containerPort: {opened}"
                yield manifest.find(Code.MONITOR, path, found, remedy, Level.WARNING)


def sockets(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an exporter that sees another directory of the node where the kubelet's socket is.

    NVIDIA/dcgm-exporter, deployment, and Kubernetes, "Device Plugins", monitoring: by
    /var/lib/kubelet/pod-resources it learns which pod has which GPU; else metrics name no pod.
    """
    for pod in manifest.pods:
        given = {
            text((mapping(each) or {}).get("name")): text(there.get("path"))
            for each in items(pod.spec.get("volumes")) or []
            if (there := mapping((mapping(each) or {}).get("hostPath")))
        }
        for container in pod.containers:
            if not _EXPORTER.search(text(container.body.get("image")) or ""):
                continue
            for index, value in enumerate(items(container.body.get("volumeMounts")) or []):
                body = mapping(value) or {}
                host = given.get(text(body.get("name")))
                inside = (text(body.get("mountPath")) or "").rstrip("/")
                if inside == _SOCKETS and host is not None and host.rstrip("/") != _SOCKETS:
                    found = f"{shown(host)} of the node, where no kubelet listens: metrics name "
                    found += "no pod"
                    path = (*container.path[1:], "volumeMounts", index)
                    remedy = f"mount hostPath {_SOCKETS}"
                    yield manifest.find(Code.MONITOR, path, found, remedy, Level.WARNING)


def memory(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an exporter that is ended for its memory.

    NVIDIA/dcgm-exporter, issue 609: release 4 takes 400 to 500 MiB, and is OOMKilled as it starts.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            limit = container.amounts("limits").get("memory")
            most, least = quantity(limit), quantity(_LEAST)
            fourth = _FOURTH.search(text(container.body.get("image")) or "")
            if fourth and most is not None and least is not None and most < least:
                found = f"{shown(limit)}, and the exporter takes 400 to 500 MiB: it is OOMKilled"
                path = (*container.path[1:], "resources", "limits", "memory")
                remedy = f"write {_LEAST} or more; with 8 GPUs 1Gi"
                yield manifest.find(Code.PLATFORM_PART, path, found, remedy, Level.WARNING)


def _opened(container: Container) -> int | None:
    words = [word for _, word in container.words]
    said = [each.value or "" for each in container.variables if each.name == "DCGM_EXPORTER_LISTEN"]
    for index, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in {"-a", "--address"}:
            said = [value or (words[index + 1] if index + 1 < len(words) else "")]
    met = _PORT.fullmatch(said[-1]) if said else None
    return int(met[1]) if met else None


def fields(manifest: Manifest) -> Iterator[Finding]:
    """Require of a list of DCGM's fields three parts, and a type that Prometheus has.

    NVIDIA/dcgm-exporter, etc/default-counters.csv: the exporter stops at a line it cannot read.
    """
    if manifest.kind != "ConfigMap":
        return
    for key, value in (mapping(manifest.body.get("data")) or {}).items():
        for line in (text(value) or "").splitlines():
            met = _FIELD.fullmatch(line)
            if met is None:
                continue
            parts = [each.strip() for each in met[3].split(",", 1)]
            if parts[0] not in _TYPES:
                found = f"{met[1]} has the type {shown(parts[0])}: the exporter stops"
                remedy = f"use {', '.join(_TYPES)}"
                yield manifest.find(Code.MONITOR, ("data", key), found, remedy)
            elif len(parts) == 1:
                found = f"{met[1]} has no help text: the exporter stops"
                remedy = "write FIELD, TYPE, TEXT"
                yield manifest.find(Code.MONITOR, ("data", key), found, remedy)
