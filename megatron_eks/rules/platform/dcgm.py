"""Rules over NVIDIA's exporter of metrics: its port, its memory, and the fields that it reads."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.quantity import quantity
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.shapes import DCGM, table
from megatron_eks.rules.values import items, mapping, number, shown, text, truth
from megatron_eks.rules.workloads import Container, Manifest, Pod

_EXPORTER = re.compile(r"(^|/)dcgm-exporter([:@]|$)")
_SOCKETS = "/var/lib/kubelet/pod-resources"
_PORT = re.compile(r".*:([0-9]+)")
_TYPES = ("counter", "gauge", "histogram", "label", "summary")
_FOURTH = re.compile(r"(^|/)dcgm-exporter:4\.")
_LEAST = "512Mi"
_FIELD = re.compile(r"\s*(DCGM_(FI|EXP)_\w+)\s*,(.*)")
_BARE = re.compile(r"\s*(DCGM_(?:FI|EXP)_[A-Z0-9_]+)\s+\S")
_LISTEN, _OF_PODS = "DCGM_EXPORTER_LISTEN", "DCGM_EXPORTER_KUBERNETES"
_CLOSE = 0.85
_RIGHT = "SYS_ADMIN"
# The fields are read by another program, with its own rights.
_ELSEWHERE = ("-r", "--remote-hostengine-info", "DCGM_REMOTE_HOSTENGINE_INFO")


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
            said = _said(container)
            if said and said.isdigit():
                found = f"{shown(said)} is no address to listen on: the exporter stops"
                path = next(
                    (
                        (*container.path[1:], "env", each.index, "value")
                        for each in container.variables
                        if each.name == _LISTEN and each.value == said
                    ),
                    container.path[1:],
                )
                yield manifest.find(Code.MONITOR, path, found, f'write ":{said}"')
            opened = _opened(said)
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
            mounts = items(container.body.get("volumeMounts"))
            named = [(text((mapping(each) or {}).get("mountPath")) or "") for each in mounts or []]
            asked = any(
                each.name == _OF_PODS and truth(each.value) is True for each in container.variables
            )
            # A directory above it holds it too.
            if (
                asked
                and mounts is not None
                and not any(f"{_SOCKETS}/".startswith(f"{each.rstrip('/')}/") for each in named)
            ):
                found = f"{_OF_PODS}, and no {_SOCKETS} of the node: metrics name no pod"
                path = (*container.path[1:], "volumeMounts")
                remedy = f"mount hostPath {_SOCKETS} there"
                yield manifest.find(Code.MONITOR, path, found, remedy, Level.WARNING)
            for index, value in enumerate(mounts or []):
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


def _said(container: Container) -> str | None:
    words = [word for _, word in container.words]
    said = [each.value or "" for each in container.variables if each.name == _LISTEN]
    for index, word in enumerate(words):
        name, _, value = word.partition("=")
        if name in {"-a", "--address"}:
            said = [value or (words[index + 1] if index + 1 < len(words) else "")]
    return said[-1] if said else None


def _opened(said: str | None) -> int | None:
    met = _PORT.fullmatch(said or "")
    return int(met[1]) if met else None


@cache
def _names() -> frozenset[str]:
    return frozenset(
        f"{prefix}{each}" for prefix, listed in table(DCGM).items() for each in str(listed).split()
    )


def nearest(name: str) -> str | None:
    """Return the field that a name which DCGM does not have nearly is."""
    close = [] if name in _names() else get_close_matches(name, sorted(_names()), 5, _CLOSE)
    inside = [each for each in close if name.startswith(each) or each.startswith(name)]
    return next(iter(inside or close), None)


def profiled(together: ManifestSet) -> Iterator[Found]:
    """Warn of fields of profiling in a list that an exporter mounts, and may not read.

    NVIDIA/dcgm-exporter, docker/Dockerfile and deployment: DCGM_FI_PROF_ needs SYS_ADMIN.
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            for container in pod.containers:
                context = mapping(container.body.get("securityContext"))
                if not _EXPORTER.search(text(container.body.get("image")) or "") or not context:
                    continue
                added = items((mapping(context.get("capabilities")) or {}).get("add")) or []
                words = {word.partition("=")[0] for _, word in container.words}
                words |= {each.name for each in container.variables}
                may = any(each in ("ALL", _RIGHT) for each in added)
                if may or context.get("privileged") is True or not words.isdisjoint(_ELSEWHERE):
                    continue
                name = _profiles(manifest, pod, together)
                if name is not None:
                    found = f"ConfigMap/{name} has fields of profiling, and the exporter no "
                    found += f"{_RIGHT}: they are missing"
                    path = (*container.path[1:], "securityContext", "capabilities")
                    remedy = f"add {_RIGHT} to capabilities.add, or take out DCGM_FI_PROF_..."
                    finding = manifest.find(Code.MONITOR, path, found, remedy, Level.WARNING)
                    yield manifest, finding


def _profiles(manifest: Manifest, pod: Pod, together: ManifestSet) -> str | None:
    """Return the name of a ConfigMap of the pod that lists a field of profiling."""
    for value in items(pod.spec.get("volumes")) or []:
        source = mapping((mapping(value) or {}).get("configMap")) or {}
        name = text(source.get("name"))
        config = together.named(manifest, "ConfigMap", name) if name else None
        for written in (mapping(config.body.get("data")) or {}).values() if config else ():
            listed = [_FIELD.fullmatch(line) for line in (text(written) or "").splitlines()]
            if any(met and met[1].startswith("DCGM_FI_PROF_") for met in listed):
                return name
    return None


def fields(manifest: Manifest) -> Iterator[Finding]:
    """Require of a list of DCGM's fields three parts, a field there is, and a type of Prometheus.

    NVIDIA/dcgm-exporter, etc/default-counters.csv, and internal/pkg/counters: the exporter stops at
    a line that it cannot read, and at a field that NVIDIA/go-dcgm does not know.
    """
    if manifest.kind != "ConfigMap":
        return
    for key, value in (mapping(manifest.body.get("data")) or {}).items():
        for line in (text(value) or "").splitlines():
            bare = _BARE.match(line)
            if bare and "," not in line:
                found = f"{bare[1]} without a comma: the exporter stops"
                yield manifest.find(Code.MONITOR, ("data", key), found, "write FIELD, TYPE, TEXT")
            met = _FIELD.fullmatch(line)
            if met is None:
                continue
            near = nearest(met[1]) if met[2] == "FI" else None
            if near is not None:
                found = f"DCGM has no field {met[1]}: the exporter stops"
                remedy = f"did you mean {near}?"
                yield manifest.find(Code.MONITOR, ("data", key), found, remedy)
            parts = [each.strip() for each in met[3].split(",", 1)]
            if parts[0] not in _TYPES:
                found = f"{met[1]} has the type {shown(parts[0])}: the exporter stops"
                remedy = f"use {', '.join(_TYPES)}"
                yield manifest.find(Code.MONITOR, ("data", key), found, remedy)
            elif len(parts) == 1:
                found = f"{met[1]} has no help text: the exporter stops"
                remedy = "write FIELD, TYPE, TEXT"
                yield manifest.find(Code.MONITOR, ("data", key), found, remedy)
