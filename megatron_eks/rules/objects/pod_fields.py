"""Rules over what the API server refuses in a pod, but not in a custom resource that makes pods.

The schema of a PyTorchJob says of most fields no more than their type: the job is accepted, and
each of its pods is refused later, with a word in an event and none in the job's status.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, HUGEPAGES, Container, Manifest

_LABEL_LENGTH = 63
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)

_PORT_LENGTH = 15
# A letter somewhere, and no two dashes in a row.
_PORT_NAME = re.compile(r"(?=[-0-9]*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
# distribution/reference: a tag and a registry's host may have upper-case letters, a repository not.
_NAME = re.compile(r"/[^:@]*[A-Z]|^[^:@/]*[A-Z][^:@/]*([:@]|$)")
_VARIABLE = re.compile(r"[ -<>-~]+")

_NAMED = re.compile(r"\$\([A-Za-z_]\w*\)")
_PAGES = ("2Mi", "1Gi")
_OF_A_POD = frozenset({"cpu", "memory"})
_OF_A_CONTAINER = _OF_A_POD | {"ephemeral-storage"}
# Names that NVIDIA's plugin gives to parts of a GPU.
_PARTS = ("nvidia.com/gpu.shared", "nvidia.com/mig-")
_EFA_ELSEWHERE = re.compile(r"[a-z0-9.-]*(amazon|aws)[a-z0-9.-]*/efa")
_GPU_ELSEWHERE = re.compile(r"(gpu\.)?nvidia(\.[a-z]+)?(/gpus?)?|[a-z0-9.-]*amazonaws\.com/gpus?")
_CLOSE = 0.85


def labels(manifest: Manifest) -> Iterator[Finding]:
    """Require labels of pods in the form that Kubernetes reads.

    Kubernetes, "Labels and Selectors", syntax and character set.
    """
    for pod in manifest.pods:
        path = (*pod.path[:-1], "metadata", "labels")
        for key, value in pod.labels.items():
            prefix, slash, name = key.rpartition("/")
            if is_placeholder(key):
                continue
            if not _is_label(name) or not name or (slash and not _PREFIX.fullmatch(prefix)):
                found = f"{shown(key)} is no key of a label: the API server refuses the pod"
                yield Finding(Code.POD_LABEL, (*path, key), found, _LABEL_FORM)
            written = text(value)
            if written is not None and not is_placeholder(written) and not _is_label(written):
                found = f"{shown(value)} is no value of a label: the API server refuses the pod"
                yield Finding(Code.POD_LABEL, (*path, key), found, _LABEL_FORM)


_LABEL_FORM = "use up to 63 letters, digits, '-', '_' and '.', a letter or digit at both ends"


def _is_label(written: str) -> bool:
    return len(written) <= _LABEL_LENGTH and _LABEL_VALUE.fullmatch(written) is not None


# Volumes that the operator adds to every pod (kubeflow/mpi-operator, pkg/controller).
_OF_THE_MPI_OPERATOR = {"mpi-job-config", "mpi-job-kubectl", "ssh-auth"}
# And KubeRay, to those of a cluster that asks Kubernetes who may enter
# (ray-operator/controllers/ray/common/pod.go).
_OF_KUBERAY = {"ray-token"}


def mounts(manifest: Manifest) -> Iterator[Finding]:
    """Require a volume for every mount.

    Kubernetes, "Volumes"; those of a StatefulSet and of a LeaderWorkerSet may also come from claim
    templates, and those of a JobSet from its volumeClaimPolicies.
    """
    holder = mapping((mapping(manifest.spec.get("template")) or {}).get("spec")) or {}
    claims = [each.get("volumeClaimPolicies") for each in (manifest.spec, holder)]
    groups = mapping(manifest.spec.get("leaderWorkerTemplate")) or {}
    claims.append(groups.get("volumeClaimTemplates"))
    if manifest.kind == "StatefulSet" or any(not is_absent(each) for each in claims):
        return
    for pod in manifest.pods:
        volumes = items(pod.spec.get("volumes"))
        if volumes is None:
            continue
        known = {text((mapping(volume) or {}).get("name")) for volume in volumes}
        known |= _OF_THE_MPI_OPERATOR if manifest.kind == "MPIJob" else set()
        known |= _OF_KUBERAY if manifest.group == "ray.io" else set()
        for container in pod.containers:
            # What stands a level too deep is found there.
            if "volumes" in container.body:
                continue
            for index, mount in enumerate(items(container.body.get("volumeMounts")) or []):
                name = text((mapping(mount) or {}).get("name"))
                if name is not None and name not in known and not is_placeholder(name):
                    path = (*container.path, "volumeMounts", index, "name")
                    found = f"no volume {shown(name)}: the API server refuses the pod"
                    names = ", ".join(sorted(filter(None, known))) or "none"
                    yield Finding(
                        Code.UNKNOWN_VOLUME, path, found, f"add it to volumes; there: {names}"
                    )


def parts_of_volumes(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a part of a volume that is named from the root, or above the volume.

    Kubernetes, pkg/apis/core/validation, validateLocalDescendingPath: subPath and subPathExpr.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for index, mount in enumerate(items(container.body.get("volumeMounts")) or []):
                plain = text((mapping(mount) or {}).get("subPath")) or ""
                if _NAMED.search(plain):
                    found = f"{shown(plain)} is taken as it is written: no variable is put in"
                    path = (*container.path, "volumeMounts", index, "subPath")
                    yield Finding(Code.REFUSED_IN_POD, path, found, "write it as subPathExpr")
                if text((mapping(mount) or {}).get("mountPath")) == "/":
                    found = "a volume over the whole image: nothing is left to start"
                    path = (*container.path, "volumeMounts", index, "mountPath")
                    yield Finding(Code.REFUSED_IN_POD, path, found, "mount it below, as at /data")
                for key in ("subPath", "subPathExpr"):
                    part = text((mapping(mount) or {}).get(key)) or ""
                    if part.startswith("/") or ".." in part.split("/"):
                        path = (*container.path, "volumeMounts", index, key)
                        found = f"{shown(part)} is no path inside a volume: the API server refuses "
                        remedy = "write it without the first /, and without .."
                        yield Finding(Code.REFUSED_IN_POD, path, found + "the pod", remedy)


def names(manifest: Manifest) -> Iterator[Finding]:
    """Require names of ports and variables, and images, as the API server accepts them.

    Kubernetes 1.35, pkg/apis/core/validation/validation.go: port names are service names after
    RFC 6335, names of variables are printable ASCII without '='.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            yield from _ports(container)
            for variable in container.variables:
                if not _VARIABLE.fullmatch(variable.name) and not is_placeholder(variable.name):
                    path = (*container.path, "env", variable.index, "name")
                    found = f"{shown(variable.name)} is no name of a variable"
                    yield Finding(Code.REFUSED_IN_POD, path, found, "use letters, digits and '_'")
            image = text(container.body.get("image"))
            if image is not None and not is_placeholder(image) and _has_capitals(image):
                found = f"{shown(image)} has an upper-case letter in its repository"
                remedy = "write it in lower case, as the registry has it"
                yield Finding(Code.REFUSED_IN_POD, (*container.path, "image"), found, remedy)
            if image is not None and image != image.strip():
                found = f"{shown(image)} has a space at its end: the API server refuses the pod"
                yield Finding(Code.REFUSED_IN_POD, (*container.path, "image"), found, "remove it")


def _has_capitals(image: str) -> bool:
    """Tell whether a repository has capitals, and is no word that a script will replace."""
    return _NAME.search(image) is not None and any(char.islower() for char in image)


def _ports(container: Container) -> Iterator[Finding]:
    for index, value in enumerate(items(container.body.get("ports")) or []):
        name = text((mapping(value) or {}).get("name"))
        if not name or is_placeholder(name):
            continue
        if len(name) > _PORT_LENGTH or not _PORT_NAME.fullmatch(name):
            path = (*container.path, "ports", index, "name")
            found = f"{shown(name)} is no name of a port: the API server refuses the pod"
            remedy = f"use up to {_PORT_LENGTH} lower-case letters, digits and '-'"
            yield Finding(Code.REFUSED_IN_POD, path, found, remedy)


def resources(manifest: Manifest) -> Iterator[Finding]:
    """Require names of resources that exist, or may exist.

    Kubernetes, "Resource Management for Pods and Containers": a name without a domain is one of
    Kubernetes' own, and a pod that asks for a device which no plugin offers stays Pending.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for kind in ("requests", "limits"):
                for name, value in container.amounts(kind).items():
                    if not is_absent(value):
                        yield from _resource(container, kind, name)


def of_pods(manifest: Manifest) -> Iterator[Finding]:
    """Refuse devices among the resources of a whole pod.

    Kubernetes, component-helpers, resource/helpers.go, SupportedPodLevelResources: cpu, memory and
    huge pages; everything else belongs to a container.
    """
    for pod in manifest.pods:
        common = mapping(pod.spec.get("resources")) or {}
        given = [
            name
            for kind in ("limits", "requests")
            for name, value in (mapping(common.get(kind)) or {}).items()
            if not is_absent(value) and not is_placeholder(name)
        ]
        devices = {each for each in given if each not in _OF_A_POD}
        devices = {each for each in devices if not each.startswith(HUGEPAGES)}
        if devices:
            found = f"{', '.join(sorted(devices))} for the whole pod: the API server refuses it"
            remedy = "move resources into the container that uses them"
            yield Finding(Code.UNKNOWN_RESOURCE, (*pod.path, "resources"), found, remedy)


# Project-HAMi/HAMi, docs/config.md: by these its own plugin shares a GPU.
_OF_HAMI = frozenset(
    f"nvidia.com/{each}" for each in ("gpucores", "gpumem", "gpumem-percentage", "priority")
)


def nearly_a_device(name: str) -> list[str]:
    """Return the device that a resource's name nearly is, if any."""
    if _EFA_ELSEWHERE.fullmatch(name.lower()):
        return [EFA]
    if "/" in name and _GPU_ELSEWHERE.fullmatch(name.lower()):
        return [GPU]
    return get_close_matches(name.lower(), (GPU, EFA), 1, _CLOSE)


def _resource(container: Container, kind: str, name: str) -> Iterator[Finding]:
    path = (*container.path, "resources", kind, name)
    if name.startswith(HUGEPAGES) and name.removeprefix(HUGEPAGES) not in _PAGES:
        found = f"{shown(name)}, which no node of EC2 has: the pod stays Pending"
        remedy = f"use {' or '.join(f'{HUGEPAGES}{size}' for size in _PAGES)}"
        yield Finding(Code.UNKNOWN_RESOURCE, path, found, remedy)
    if is_placeholder(name) or name in _OF_A_CONTAINER or name.startswith((HUGEPAGES, *_PARTS)):
        return
    if name in (GPU, EFA):
        return
    close = nearly_a_device(name)
    did_you_mean = f"did you mean {close[0]}?" if close else "name its domain: nvidia.com/gpu"
    if "/" not in name:
        found = f"Kubernetes has no resource {shown(name)} of a container, and refuses the pod"
        yield Finding(Code.UNKNOWN_RESOURCE, path, found, did_you_mean)
    elif close and name not in _OF_HAMI:
        found = f"{shown(name)}, which no plugin of NVIDIA or AWS offers, leaves the pod Pending"
        yield Finding(Code.UNKNOWN_RESOURCE, path, found, did_you_mean, Level.WARNING)


def probes(manifest: Manifest) -> Iterator[Finding]:
    """Require of a probe a port that its container names.

    Kubernetes, "Configure Liveness, Readiness and Startup Probes": a name is looked up among the
    ports of the same container.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            ports = items(container.body.get("ports")) or []
            known = {text((mapping(each) or {}).get("name")) for each in ports}
            for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
                probe = mapping(container.body.get(kind)) or {}
                for how in ("httpGet", "tcpSocket"):
                    port = text((mapping(probe.get(how)) or {}).get("port"))
                    if port and not is_placeholder(port) and port not in known:
                        path = (*container.path, kind, how, "port")
                        found = f"the container names no port {shown(port)}"
                        names = ", ".join(sorted(filter(None, known))) or "none"
                        remedy = f"there: {names}; or give a number"
                        if port.isdecimal():
                            remedy = f"write {port}, without quotes"
                        yield Finding(Code.PROBE, path, found, remedy)
