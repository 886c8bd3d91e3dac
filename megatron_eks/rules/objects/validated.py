"""Rules over what the API server's own code checks, and no schema says."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.shapes import KUBERNETES, table
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    is_range,
    items,
    mapping,
    number,
    shown,
    text,
)
from megatron_eks.rules.workloads import Manifest

_FIELDS = re.compile(
    r"metadata\.(name|namespace|uid|(labels|annotations)(\[.+\])?)"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)
_HOST = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_BARE = re.compile(r"^(?:[a-z]+://)?(?P<host>[a-z0-9*][-a-z0-9.]*[a-z0-9])(?:[:/]|$)")
_HANDLERS = frozenset({"exec", "grpc", "httpGet", "tcpSocket"})
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_POD_SECURITY = "pod-security.kubernetes.io/"
_MODES = frozenset({"audit", "enforce", "warn"})
_VOLUMES = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "nfs"),
        *("persistentVolumeClaim", "projected", "secret"),
    }
)
_NOT_SOURCES = frozenset(
    {
        *(
            "accessModes",
            "capacity",
            "claimRef",
            "mountOptions",
            "nodeAffinity",
            "storageClassName",
        ),
        *("persistentVolumeReclaimPolicy", "volumeAttributesClassName", "volumeMode"),
    }
)


def volumes(manifest: Manifest) -> Iterator[Finding]:
    """Require a source of each volume.

    Kubernetes 1.35, pkg/apis/core/v1/defaults.go and validation.go: a volume of a pod without any
    is an emptyDir, without a word, and a PersistentVolume without any is refused.
    """
    for pod in manifest.pods:
        for index, value in enumerate(items(pod.spec.get("volumes")) or []):
            volume = mapping(value) or {}
            path = (*pod.path, "volumes", index)
            if volume and all(is_absent(each) for key, each in volume.items() if key != "name"):
                found = "no source, so an empty directory that goes with the pod"
                remedy = "name the claim, or write emptyDir: {}"
                yield Finding(Code.UNKNOWN_VOLUME, path, found, remedy, Level.WARNING)
            for key, name in (("configMap", "name"), ("secret", "secretName")):
                source = mapping(volume.get(key))
                if key in volume and source is not None and is_absent(source.get(name)):
                    found, remedy = f"Kubernetes needs {name} here", f"add {name}"
                    yield Finding(Code.MISSING_FIELD, (*path, key, name), found, remedy)
    if (
        manifest.kind == "PersistentVolume"
        and manifest.spec
        and not {*manifest.spec} - _NOT_SOURCES
    ):
        found, remedy = "no source: the API server refuses the volume", "say what it is: csi: ..."
        yield manifest.find(Code.MISSING_FIELD, ("spec",), found, remedy)


def sources(manifest: Manifest) -> Iterator[Finding]:
    """Require one source of a variable, and one of a volume.

    Kubernetes 1.35, pkg/apis/core/validation/validation.go, validateEnvVarValueFrom ("may not be
    specified when `value` is not empty") and validateVolumeSource ("may not specify more than 1
    volume type").
    """
    for pod in manifest.pods:
        for index, value in enumerate(items(pod.spec.get("volumes")) or []):
            given = [key for key, each in (mapping(value) or {}).items() if not is_absent(each)]
            kinds = [key for key in given if key in _VOLUMES]
            if len(kinds) > 1:
                found = f"{' and '.join(kinds)} in one volume: the API server refuses the pod"
                remedy = "keep one of them"
                yield Finding(Code.UNKNOWN_VOLUME, (*pod.path, "volumes", index), found, remedy)
        for container in pod.containers:
            for index, value in enumerate(items(container.body.get("env")) or []):
                variable = mapping(value) or {}
                source = mapping(variable.get("valueFrom")) or {}
                path = (*container.path, "env", index, "valueFrom")
                if source and text(variable.get("value")):
                    found = "value beside valueFrom: the API server refuses the pod"
                    yield Finding(Code.WRONG_VALUE, path, found, "keep one of the two")
                elif len(source) > 1:
                    found = f"{' and '.join(source)} together: the API server refuses the pod"
                    yield Finding(Code.WRONG_VALUE, path, found, "keep one of them")


def probes(manifest: Manifest) -> Iterator[Finding]:
    """Require of a probe what it asks, and of a variable a field that pods have.

    Kubernetes, "Configure Liveness, Readiness and Startup Probes", and "Downward API".
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for kind in _PROBES:
                probe = mapping(container.body.get(kind)) or {}
                if probe and not _HANDLERS & {*probe}:
                    found = "a probe that asks nothing: the API server refuses the pod"
                    remedy = "add httpGet, tcpSocket, exec or grpc"
                    yield Finding(Code.PROBE, (*container.path, kind), found, remedy)
                for how in ("httpGet", "tcpSocket"):
                    port = (mapping(probe.get(how)) or {}).get("port")
                    if isinstance(port, bool | list | dict):
                        path = (*container.path, kind, how, "port")
                        found, remedy = f"{shown(port)} is no port", "write a name or a number"
                        yield Finding(Code.PROBE, path, found, remedy)
            for index, value in enumerate(items(container.body.get("env")) or []):
                source = mapping((mapping(value) or {}).get("valueFrom")) or {}
                field = text((mapping(source.get("fieldRef")) or {}).get("fieldPath"))
                if field and not _FIELDS.fullmatch(field) and not is_placeholder(field):
                    path = (*container.path, "env", index, "valueFrom", "fieldRef", "fieldPath")
                    found = f"{shown(field)} is no field that a variable may have"
                    remedy = "write it as metadata.name or status.podIP"
                    yield Finding(Code.WRONG_VALUE, path, found, remedy)


def escalation(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a container that is to have every right, and to gain none.

    Kubernetes 1.35, pkg/apis/core/validation, ValidateSecurityContext.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            context = mapping(container.body.get("securityContext")) or {}
            if context.get("allowPrivilegeEscalation") is not False:
                continue
            if context.get("privileged") is True:
                found = "false beside privileged: true: the API server refuses the pod"
                path = (*container.path, "securityContext", "allowPrivilegeEscalation")
                remedy = "remove one of the two"
                yield Finding(Code.WRONG_VALUE, path, found, remedy)


def namespaces(manifest: Manifest) -> Iterator[Finding]:
    """Require labels of Pod Security that have an effect.

    Kubernetes, "Pod Security Admission": another name enforces nothing.
    """
    for key in manifest.labels if manifest.kind == "Namespace" else ():
        if not key.startswith(_POD_SECURITY):
            continue
        mode = key.removeprefix(_POD_SECURITY)
        if mode.removesuffix("-version") not in _MODES:
            found = f"{shown(key)} has no effect"
            remedy = f"use {', '.join(sorted(f'{_POD_SECURITY}{each}' for each in _MODES))}"
            yield manifest.find(Code.WRONG_VALUE, ("metadata", "labels", key), found, remedy)


def networks(manifest: Manifest) -> Iterator[Finding]:
    """Require ranges that a network policy can read, and ports of a Service.

    Kubernetes API reference, IPBlock and ServiceSpec.
    """
    if manifest.kind == "NetworkPolicy":
        for path, value in _blocks(dict(manifest.spec), ("spec",)):
            if not is_range(value):
                found = f"{shown(value)} is no range of addresses"
                yield manifest.find(Code.WRONG_VALUE, path, found, "write it as 10.0.0.0/16")
    if manifest.kind == "Service" and not manifest.group and manifest.spec:
        # With another letter it is refused, and found as that.
        headless = (text(manifest.spec.get("clusterIP")) or "").lower() == "none"
        named = manifest.spec.get("type") == "ExternalName"
        if items(manifest.spec.get("ports")) == [] and not headless and not named:
            found, remedy = "no port: the API server refuses the Service", "add one"
            yield manifest.find(Code.MISSING_FIELD, ("spec", "ports"), found, remedy)
        listed = [mapping(each) or {} for each in items(manifest.spec.get("ports")) or []]
        for index, each in enumerate(listed if len(listed) > 1 else ()):
            if is_absent(each.get("name")):
                found = (
                    "several ports, and this one has no name: the API server refuses the Service"
                )
                path = ("spec", "ports", index, "name")
                yield manifest.find(Code.MISSING_FIELD, path, found, "add a name to each")


def ends_of_ports(manifest: Manifest) -> Iterator[Finding]:
    """Require of a range of ports in a network policy that it ends after its beginning.

    Kubernetes API reference, NetworkPolicyPort, endPort: a number, beside a port that is one.
    """
    for side in ("ingress", "egress") if manifest.kind == "NetworkPolicy" else ():
        for index, value in enumerate(items(manifest.spec.get(side)) or []):
            for place, each in enumerate(items((mapping(value) or {}).get("ports")) or []):
                body = mapping(each) or {}
                first, last = body.get("port"), number(body.get("endPort"))
                low = number(first)
                if last is None or (low is not None and low <= last):
                    continue
                found = f"ends at {last}, and begins at {shown(first)}: the API server refuses it"
                path = ("spec", side, index, "ports", place, "endPort")
                yield manifest.find(
                    Code.WRONG_VALUE, path, found, "write port, then a larger endPort"
                )


def hosts(manifest: Manifest) -> Iterator[Finding]:
    """Require of an Ingress the name of a host alone, and paths from the root.

    Kubernetes, pkg/apis/networking/validation, validateIngressRules and validateHTTPIngressPath.
    """
    rules = items(manifest.spec.get("rules")) if manifest.kind == "Ingress" else []
    for index, value in enumerate(rules or []):
        rule = mapping(value) or {}
        host = text(rule.get("host"))
        place: Path = ("spec", "rules", index)
        if host and not is_placeholder(host) and not _HOST.fullmatch(host):
            met = _BARE.search(host)
            found = f"{shown(host)} is no name of a host: the API server refuses the Ingress"
            remedy = f"write {met['host']}" if met else "write it like train.example.com"
            yield manifest.find(Code.WRONG_VALUE, (*place, "host"), found, remedy)
        paths = items((mapping(rule.get("http")) or {}).get("paths")) or []
        for number_, each in enumerate(paths):
            said = text((mapping(each) or {}).get("path"))
            if said and not said.startswith("/") and not is_placeholder(said):
                found = f"{shown(said)} does not begin with /: the API server refuses the Ingress"
                path = (*place, "http", "paths", number_, "path")
                yield manifest.find(Code.WRONG_VALUE, path, found, f"write /{said}")


def _blocks(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        if key == "ipBlock" and isinstance(each, dict):
            for name in ("cidr", "except"):
                given = each.get(name)
                for one in given if isinstance(given, list) else [given]:
                    if isinstance(one, str) and not is_placeholder(one):
                        yield (*path, key, name), one
        else:
            yield from _blocks(each, (*path, key))


def names(manifest: Manifest) -> Iterator[Finding]:
    """Require a name of every object that the API server keeps.

    Kubernetes, "Object Names and IDs".
    """
    metadata = mapping(manifest.body.get("metadata"))
    known = f"{text(manifest.body.get('apiVersion'))} {manifest.kind}" in table(KUBERNETES)
    if not known or metadata is None:
        return
    # Spark names the pods that it makes of a template (Spark, "Running on Kubernetes").
    of_spark = any(
        (container.name or "").startswith("spark-kubernetes-")
        for pod in manifest.pods
        for container in pod.containers
    )
    unnamed = is_absent(metadata.get("name")) and is_absent(metadata.get("generateName"))
    if unnamed and not (of_spark and manifest.kind == "Pod"):
        found, remedy = "no name: the API server refuses the object", "add metadata.name"
        yield manifest.find(Code.MISSING_FIELD, ("metadata", "name"), found, remedy)
    name = text(metadata.get("name"))
    # RBAC's may be nearly anything, pods' names are judged with their jobs, and what is in capitals
    # altogether is to be replaced.
    free = manifest.group == "rbac.authorization.k8s.io" or manifest.pods
    if name and not free and not is_placeholder(name) and name.lower() != name != name.upper():
        found = f"{shown(name)} has capitals: the API server refuses the object"
        path = ("metadata", "name")
        yield manifest.find(Code.WRONG_VALUE, path, found, f"write {name.lower()}")
