"""Rules over the pods of any workload: resources, memory volumes, images, host network."""

import re
from collections.abc import Iterator
from fractions import Fraction

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.hardware import instance_types
from megatron_eks.rules.image_tags import missing_tag
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_fields import nearly_a_device
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, HUGEPAGES, Container, Manifest, Pod

# What does not go through NCCL, by the usual flag of a training program.
_OTHER_BACKEND = re.compile(r"--(?:dist[-_])?backend[= ]+(?:gloo|mpi)\b")
_LAUNCHES = re.compile(r"torchrun|torch\.distributed|deepspeed|accelerate|mpirun|MASTER_ADDR|rdzv")
# Less is a slip of the unit, and another finding.
_LEAST_LIMIT = 2**20
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}


def quantities(manifest: Manifest) -> Iterator[Finding]:
    """Require quantities that Kubernetes can read, and requests within their limits.

    Kubernetes, "Resource Management for Pods and Containers".
    """
    for container in _containers(manifest):
        for kind in ("requests", "limits"):
            for name, value in container.amounts(kind).items():
                if quantity(value) is None and not _waits(value):
                    yield Finding(
                        Code.BAD_QUANTITY,
                        (*container.path, "resources", kind, name),
                        f"{shown(value)} is no quantity",
                        "write a number with Ki, Mi, Gi or Ti, m, k, M, G or T, or none",
                    )
        for name, value in container.amounts("requests").items():
            request, limit = quantity(value), quantity(container.amounts("limits").get(name))
            if (
                request is not None
                and limit is not None
                and request > limit
                and not _is_device(name)
            ):
                yield Finding(
                    Code.REQUEST_ABOVE_LIMIT,
                    (*container.path, "resources", "requests", name),
                    f"request {shown(value)} is above the limit "
                    f"{shown(container.amounts('limits')[name])}",
                    "lower the request",
                )


def extended_resources(manifest: Manifest) -> Iterator[Finding]:
    """Require devices and huge pages in whole numbers, with a request that equals the limit.

    Kubernetes, "Extended resources" and "Manage HugePages": neither can be overcommitted, and
    huge pages need a request for CPU or memory beside them.
    """
    for container in _containers(manifest):
        requests, limits = container.amounts("requests"), container.amounts("limits")
        for name in {**limits, **requests}:
            if _is_device(name):
                yield from _device(container, name, requests.get(name), limits.get(name))
        pages = next((name for name in {**limits, **requests} if name.startswith(HUGEPAGES)), None)
        if pages and {**limits, **requests}.keys().isdisjoint(("cpu", "memory")):
            found = f"{pages} without CPU or memory: the API server refuses the pod"
            path = (*container.path, "resources")
            yield Finding(Code.EXTENDED_RESOURCES, path, found, "add requests for cpu and memory")


def _device(container: Container, name: str, request: Json, limit: Json) -> Iterator[Finding]:
    path = (*container.path, "resources", "limits", name)
    if is_absent(limit):
        found = f"a request for {name} without a limit: the API server refuses the pod"
        yield Finding(Code.EXTENDED_RESOURCES, path, found, "set the same number under limits")
        return
    wanted, most = quantity(request), quantity(limit)
    if most is None:
        return
    if most < 0 or most.denominator != 1:
        found = f"{shown(limit)} of {name}, which comes in whole pieces"
        yield Finding(Code.EXTENDED_RESOURCES, path, found, "use a whole number")
    elif wanted is not None and wanted != most:
        found = f"{shown(request)} requested, and at most {shown(limit)} allowed, of {name}"
        yield Finding(Code.EXTENDED_RESOURCES, path, found, "set the same number in both places")
    page = quantity(name.removeprefix(HUGEPAGES)) if name.startswith(HUGEPAGES) else None
    if page and most % page:
        found = f"{shown(limit)} is not a multiple of the page size"
        remedy = f"use a multiple of {name.removeprefix(HUGEPAGES)}"
        yield Finding(Code.EXTENDED_RESOURCES, path, found, remedy)


# Kinds whose pods are ranks of one run, unless they say otherwise.
_OVER_NODES = frozenset(
    {"ClusterTrainingRuntime", "JobSet", "MPIJob", "PyTorchJob", "TrainingRuntime"}
)


def memory_volumes(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a memory limit that is not above the memory volumes, whose pages count against it.

    Kubernetes, "emptyDir", medium Memory, and API reference, EmptyDirVolumeSource, sizeLimit: a
    volume gets the lesser of its size and the memory limits of the pod. Only one that is filled
    ends the container (exit code 137), so it may go well.
    """
    for pod in manifest.pods:
        volumes = _memory_volumes(pod)
        for name, (index, size, _) in volumes.items():
            # Of one that nobody mounts another rule tells.
            if is_absent(size) and any(name in _mounted(each) for each in pod.containers):
                yield Finding(
                    Code.TMPFS_ABOVE_MEMORY,
                    (*pod.path, "volumes", index, "emptyDir"),
                    f"memory volume {shown(name)} has no sizeLimit: {_may_fill(pod, name)}",
                    "set a sizeLimit below the memory limit",
                    Level.WARNING,
                )
            elif not is_absent(size) and quantity(size) is None and not _waits(size):
                path = (*pod.path, "volumes", index, "emptyDir", "sizeLimit")
                yield Finding(
                    Code.BAD_QUANTITY, path, f"{shown(size)} is no quantity", "write it like 64Gi"
                )
        for container in pod.containers:
            yield from _memory_limit(container, volumes)


def _may_fill(pod: Pod, name: str) -> str:
    """Say how far a volume without a size grows: to the limit of whoever writes it, or the node."""
    writers = [each for each in pod.containers if name in _mounted(each)]
    if all(not is_absent(each.amounts("limits").get("memory")) for each in writers):
        return "it may take all of the memory limit, and the container ends there"
    return "without a memory limit it may fill the node"


def _mounted(container: Container) -> set[str]:
    mounts = items(container.body.get("volumeMounts")) or []
    named = {text((mapping(mount) or {}).get("name")) for mount in mounts}
    return {each for each in named if each is not None}


def _memory_limit(
    container: Container, volumes: "dict[str, tuple[int, Json, Fraction]]"
) -> Iterator[Finding]:
    total = sum(volumes[name][2] for name in _mounted(container) if name in volumes)
    written = container.amounts("limits").get("memory")
    limit = quantity(written)
    if limit is not None and total and total >= limit >= _LEAST_LIMIT:
        yield Finding(
            Code.TMPFS_ABOVE_MEMORY,
            (*container.path, "resources", "limits", "memory"),
            f"memory volumes of {_bytes(total)} count against a limit of {shown(written)}: where "
            "they fill, the container ends",
            "raise the limit above volumes and program together, or lower sizeLimit",
            Level.WARNING,
        )


def _memory_volumes(pod: Pod) -> "dict[str, tuple[int, Json, Fraction]]":
    """Return each memory volume by name: its place, its size as written, its size."""
    found: dict[str, tuple[int, Json, Fraction]] = {}
    for index, value in enumerate(items(pod.spec.get("volumes")) or []):
        volume = mapping(value) or {}
        empty, name = mapping(volume.get("emptyDir")) or {}, text(volume.get("name"))
        if name is not None and empty.get("medium") == "Memory":
            size = empty.get("sizeLimit")
            found[name] = (index, size, quantity(size) or Fraction(0))
    return found


def pinned_images(together: ManifestSet) -> Iterator[Found]:
    """Require images by digest or by a tag of their own, so that every rank runs the same.

    Kubernetes, "Images": without a tag the kubelet pulls `latest`. A Kustomization beside them may
    give the tag.
    """
    tagged = _tagged_by_kustomize(together)
    for manifest in together.objects:
        # The tags of runtimes are mostly those of an operator's release.
        sure = manifest.is_job and manifest.group != "trainer.kubeflow.org"
        level = Level.ERROR if sure else Level.WARNING
        for container in _containers(manifest):
            image = text(container.body.get("image"))
            if image is None or is_placeholder(image) or "@" in image:
                continue
            name, _, tag = image.rpartition("/")[2].partition(":")
            whole = f"{image.rpartition('/')[0]}/{name}".removeprefix("/")
            moving = tag in {"", "latest"} and missing_tag(image) is None
            if moving and whole not in tagged:
                found = f"{shown(image)} is whatever was pushed last"
                remedy = "name a digest (@sha256:...), or a tag that nobody moves"
                path = (*container.path, "image")
                yield manifest, Finding(Code.UNPINNED_IMAGE, path, found, remedy, level)


def _tagged_by_kustomize(together: ManifestSet) -> set[str]:
    """Return the images to which a Kustomization gives a tag or digest (Kustomize, "images")."""
    found = set()
    for each in together.of("Kustomization"):
        for value in items(each.body.get("images")) or []:
            entry = mapping(value) or {}
            name, tag = text(entry.get("name")), text(entry.get("newTag"))
            if name is not None and (tag not in {None, "", "latest"} or text(entry.get("digest"))):
                found.add(name)
    return found


def host_network_dns(manifest: Manifest) -> Iterator[Finding]:
    """Require cluster DNS of jobs on the host network, whose ranks find each other by name.

    Kubernetes, "Pod's DNS Policy": ClusterFirst means the node's servers there.
    """
    for pod in manifest.pods:
        policy = pod.spec.get("dnsPolicy")
        operator = manifest.kind in {"PyTorchJob", "MPIJob"}
        if policy == "Default" and not pod.host_network and operator:
            found = "Default: the node's DNS servers do not know the job's Services"
            path = (*pod.path, "dnsPolicy")
            yield Finding(Code.HOST_NETWORK_DNS, path, found, "remove it, or write ClusterFirst")
        if not pod.host_network or policy == "ClusterFirstWithHostNet":
            continue
        # Servers of one's own may know the cluster's names.
        if policy != "None" and (operator or (manifest.is_job and pod.names(GPU))):
            yield Finding(
                Code.HOST_NETWORK_DNS,
                (*pod.path, "dnsPolicy"),
                "on the host network the node's DNS servers do not know the job's Services",
                "set dnsPolicy to ClusterFirstWithHostNet",
                Level.ERROR if operator else Level.WARNING,
            )


def efa_requested(manifest: Manifest) -> Iterator[Finding]:
    """Warn of GPU jobs over several nodes that do not ask for EFA.

    EKS User Guide, "Run machine learning training on Amazon EKS with EFA": without the device
    NCCL falls back to TCP, without an error.
    """
    indexed = manifest.kind == "Job" and manifest.spec.get("completionMode") == "Indexed"
    # Each index of a Job may well work for itself, and where each fails for itself, none waits.
    indexed = indexed and any(_meets(each) for each in _containers(manifest))
    indexed = indexed and is_absent(manifest.spec.get("backoffLimitPerIndex"))
    if not (indexed or manifest.kind in _OVER_NODES or manifest.group == "batch.volcano.sh"):
        return
    pods = [pod for pod in manifest.pods if pod.names(GPU)]
    if sum(pod.replicas or 1 for pod in pods) < 2:  # noqa: PLR2004 -- two pods make a network
        return
    for pod in pods:
        types = instance_types(pod)
        without = bool(types) and not any(each.efa_interfaces for each in types)
        other = any(_OTHER_BACKEND.search(each.line) for each in pod.containers)
        # A name with a slip is a finding of its own: such a pod stays Pending.
        meant = any(
            name != EFA and EFA in nearly_a_device(name)
            for each in pod.containers
            for kind in ("requests", "limits")
            for name in each.amounts(kind)
        )
        claimed = pod.names(EFA) or items(pod.spec.get("resourceClaims")) or meant
        # GPUs of a launcher are a finding of their own.
        if not (claimed or without or other or manifest.only_launches(pod)):
            found = f"GPUs of several pods and no {EFA}, so NCCL uses TCP between nodes"
            remedy = "request the node's EFA devices, where the instance type has any"
            gpus = sum(each.requested(GPU) for each in pod.containers)
            # Whoever takes all GPUs of a node takes all of its cards.
            cards = [each.efa_interfaces if each.gpus == gpus else 0 for each in types]
            if cards and cards[0] and len(set(cards)) == 1:
                remedy = f"add {EFA}: {cards[0]} to the container's requests and limits"
            yield Finding(Code.EFA_NOT_REQUESTED, pod.path, found, remedy, Level.WARNING)


def _meets(container: Container) -> bool:
    """Tell whether a container's ranks look for others: by a launcher, or by an address."""
    told = any(each.name.startswith(("MASTER_", "PET_")) for each in container.variables)
    return told or not container.words or _LAUNCHES.search(container.line) is not None


def _containers(manifest: Manifest) -> Iterator[Container]:
    for pod in manifest.pods:
        yield from pod.containers


def _is_device(name: str) -> bool:
    """Tell whether a resource cannot be overcommitted; `kubernetes.io/` is Kubernetes' own."""
    extended = "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
    return extended or name.startswith(HUGEPAGES)


def _waits(value: Json) -> bool:
    written = text(value)
    return is_absent(value) or (written is not None and is_placeholder(written))


def _bytes(size: Fraction | int) -> str:
    unit = max(
        (unit for unit, factor in _UNITS.items() if size % factor == 0),
        key=_UNITS.__getitem__,
        default="",
    )
    return f"{size // _UNITS.get(unit, 1)}{unit}"
