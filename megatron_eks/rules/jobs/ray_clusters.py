"""Rules over clusters and jobs of Ray: what KubeRay refuses, and GPUs that Ray does not see."""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.secret_words import kind_of_secret
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, text
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

_SPECS = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
}
_SHM = "/dev/shm"  # noqa: S108 -- inside a container
_IMAGE = "rayproject/ray"
_OF_RAY = re.compile(r"(^|[/_-])ray([_-][^/]*)?$")
_RAY_TAG = re.compile(r"2\.[0-9]+\.[0-9]+-py3[0-9]+(-.*)?")


def groups(manifest: Manifest) -> Iterator[Finding]:
    """Require of each group of Ray's pods its GPUs in Ray as well, and bounds that hold.

    KubeRay, "Configuring GPUs": without num-gpus it takes the container's limit, and with it Ray
    believes the number.
    """
    for path, body, pod in _groups(manifest):
        given = mapping(body.get("rayStartParams")) or {}
        gpus = sum(int(each.amount(GPU) or 0) for each in pod.containers if not each.is_init)
        told = number(given.get("num-gpus"))
        if told is not None and told != gpus and isinstance(given.get("num-gpus"), str):
            idle = told < gpus
            what = f"the other {gpus - told} idle" if idle else "tasks start where no GPU is left"
            found = f"Ray is told of {told} GPUs, and the container has {gpus}: {what}"
            place = (*path, "rayStartParams", "num-gpus")
            remedy = "remove it: the limit of the container counts"
            # A head without tasks keeps its GPU for something else, or by mistake.
            head = path[-1] == "headGroupSpec"
            level = Level.WARNING if head or (idle and told) else Level.ERROR
            yield manifest.find(Code.RAY, place, found, remedy, level)
        yield from _bounds(manifest, path, body)


def object_stores(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a store of objects that is larger than the shared memory for it.

    Ray, "Ray Start", object-store-memory, and python/ray/_private/services.py: it moves to /tmp,
    which is a disk.
    """
    for path, body, pod in _groups(manifest):
        given = mapping(body.get("rayStartParams")) or {}
        wanted = number(given.get("object-store-memory"))
        for container in pod.containers[:1]:
            most = _shared_memory(pod, container)
            if wanted and most is not None and wanted > most:
                found = f"{wanted} bytes, and /dev/shm has {int(most)}: the store moves to a disk"
                place = (*path, "rayStartParams", "object-store-memory")
                remedy = "use less, or raise the sizeLimit of the emptyDir at /dev/shm"
                yield manifest.find(Code.RAY, place, found, remedy, Level.WARNING)


def _shared_memory(pod: Pod, container: Container) -> Fraction | None:
    mounts = [mapping(each) or {} for each in items(container.body.get("volumeMounts")) or []]
    names = {text(each.get("name")) for each in mounts if each.get("mountPath") == _SHM}
    for value in items(pod.spec.get("volumes")) or []:
        volume = mapping(value) or {}
        if text(volume.get("name")) in names:
            return quantity((mapping(volume.get("emptyDir")) or {}).get("sizeLimit"))
    return None


def _bounds(manifest: Manifest, path: Path, body: "Mapping[str, Json]") -> Iterator[Finding]:
    least, most = (number(body.get(key)) for key in ("minReplicas", "maxReplicas"))
    wanted = number(body.get("replicas"))
    if least is not None and most is not None and least > most:
        found = f"minReplicas {least} above maxReplicas {most}: KubeRay refuses the cluster"
        yield manifest.find(Code.RAY, (*path, "minReplicas"), found, f"use at most {most}")
    elif wanted is not None and most is not None and wanted > most:
        found = f"{wanted} replicas, and KubeRay makes no more than maxReplicas, {most}"
        remedy = f"write maxReplicas: {wanted}, or fewer replicas"
        yield manifest.find(Code.RAY, (*path, "replicas"), found, remedy)


def _groups(manifest: Manifest) -> "Iterator[tuple[Path, Mapping[str, Json], Pod]]":
    for pod in manifest.pods if manifest.group == "ray.io" else ():
        path = pod.path[1:-2]
        value: Json = dict(manifest.body)
        for key in path:
            value = (
                (items(value) or [])[key]
                if isinstance(key, int)
                else (mapping(value) or {}).get(key)
            )
        yield path, mapping(value) or {}, pod


def jobs(manifest: Manifest) -> Iterator[Finding]:
    """Require of a RayJob what KubeRay takes, and warn of a cluster that outlives it with GPUs.

    ray-operator, controllers/ray/utils/validation.go; KubeRay, "RayJob", shutdownAfterJobFinishes:
    false by default, so that the cluster stays until somebody deletes it.
    """
    if (manifest.group, manifest.kind) != ("ray.io", "RayJob"):
        return
    spec, selected = manifest.spec, not is_absent(manifest.spec.get("clusterSelector"))
    ends = spec.get("shutdownAfterJobFinishes") is True
    rules = not is_absent(spec.get("deletionStrategy"))
    if spec.get("suspend") is True and not ends:
        found = "suspended without shutdownAfterJobFinishes: KubeRay refuses the job"
        remedy = "add shutdownAfterJobFinishes: true"
        yield manifest.find(Code.RAY, ("spec", "suspend"), found, remedy)
    elif not ends and not rules and (number(spec.get("ttlSecondsAfterFinished")) or 0) > 0:
        found = "without shutdownAfterJobFinishes: KubeRay refuses the job"
        path = ("spec", "ttlSecondsAfterFinished")
        remedy = "add shutdownAfterJobFinishes: true"
        yield manifest.find(Code.RAY, path, found, remedy)
    elif not ends and not rules and not selected and any(pod.names(GPU) for pod in manifest.pods):
        found = "the cluster stays when the job has ended, with its GPUs"
        path, remedy = ("spec", "shutdownAfterJobFinishes"), "set it to true"
        yield manifest.find(Code.RAY, path, found, remedy, Level.WARNING)
    interactive = spec.get("submissionMode") == "InteractiveMode" or "submitterPodTemplate" in spec
    if is_absent(spec.get("entrypoint")) and not interactive:
        found = "no entrypoint, so there is nothing to run"
        yield manifest.find(Code.RAY, ("spec", "entrypoint"), found, "add the command")
    if selected and ends:
        found = "shutdownAfterJobFinishes for a cluster that the job only selects: refused"
        path = ("spec", "shutdownAfterJobFinishes")
        yield manifest.find(Code.RAY, path, found, "remove one of the two")


def versions(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an image of another version of Ray than rayVersion, which KubeRay goes by.

    KubeRay, "RayCluster Configuration", rayVersion: must match the version in the images.
    """
    place = _SPECS.get(manifest.kind) if manifest.group == "ray.io" else None
    value: Json = dict(manifest.body)
    for key in place or ():
        value = (mapping(value) or {}).get(key)
    version = text((mapping(value) or {}).get("rayVersion"))
    for pod in manifest.pods if version and not is_placeholder(version) else ():
        for container in pod.containers:
            image = text(container.body.get("image")) or ""
            name, _, tag = image.rpartition(":")
            numbered = tag.partition("-")[0]
            # An own image counts in its own way, unless its tag has the form of Ray's.
            ours = name == _IMAGE and numbered[:1].isdigit()
            theirs = _OF_RAY.search(name) and _RAY_TAG.fullmatch(tag)
            if not (ours or theirs) or numbered == version:
                continue
            found = f"Ray {numbered}, and rayVersion is {version}"
            path = (*container.path, "image")
            yield Finding(Code.RAY, path, found, "name one version in both", Level.WARNING)


def plain_tokens(manifest: Manifest) -> Iterator[Finding]:
    """Refuse tokens in the environment that a Ray job carries as a text.

    Ray, "Environment Dependencies", runtime_env; EKS Best Practices, "Data encryption and secrets
    management".
    """
    if (manifest.group, manifest.kind) != ("ray.io", "RayJob"):
        return
    for key in ("runtimeEnvYAML", "entrypoint"):
        kind = kind_of_secret(text(manifest.spec.get(key)) or "")
        if kind is not None:
            found = f"holds {kind}"
            remedy = "give it to the pods from a Kubernetes Secret, and make this one invalid"
            yield manifest.find(Code.SECRET_IN_MANIFEST, ("spec", key), found, remedy)
