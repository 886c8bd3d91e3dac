"""Rule over the owner of shared directories, and the users of the jobs that write there."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import items, mapping, number, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_OWNER = re.compile(r"(?<![\w:.])(?P<user>[0-9]{1,7}):(?P<group>[0-9]{1,7})(?![\w:.])")
_MODE = re.compile(r"(?<![\w:.])0?[0-7]{3}(?![\w:.])")
_GROUP_WRITES, _OTHERS_WRITE = 0o020, 0o002
_CHOWN, _CHMOD = re.compile(r"\bchown\b"), re.compile(r"\bchmod\b")


@dataclass(frozen=True)
class Owned:
    """Directories that a Job makes for one owner, on one file system."""

    manifest: Manifest
    storage: str
    user: int
    group: int
    mode: int


def owners(together: ManifestSet) -> Iterator[Found]:
    """Refuse a job whose user may not write where the Job beside it made directories for another.

    chmod(1) and chown(1): a mode without write for others lets in the owner, and the group if it
    may write; Kubernetes, "Configure a Security Context", runAsUser, runAsGroup and fsGroup.
    """
    made = [each for manifest in together.of("Job") for each in _made(manifest, together)]
    # Two owners on one file system have directories of their own.
    storages = [each.storage for each in made]
    for owned in (each for each in made if storages.count(each.storage) == 1):
        for manifest in together.objects:
            if manifest is owned.manifest or not manifest.is_job:
                continue
            for pod in manifest.pods:
                if owned.storage not in _storages(manifest, pod, together, written=True):
                    continue
                met = _other_user(pod, owned)
                if met is not None:
                    path, found = met
                    said = f"{owned.manifest.title} makes the shared directories for "
                    said += f"{owned.user}:{owned.group} with mode {owned.mode:04o}"
                    remedy = f"use runAsUser: {owned.user} and runAsGroup: {owned.group}"
                    finding = manifest.find(
                        Code.DIRECTORY_OWNER, path[1:], f"{found}, and {said}", remedy
                    )
                    yield manifest, finding


def _made(manifest: Manifest, together: ManifestSet) -> Iterator[Owned]:
    for pod in manifest.pods:
        for container in pod.containers:
            line = container.line
            given = {(each["user"], each["group"]) for each in _OWNER.finditer(line)}
            modes = {each[0] for each in _MODE.finditer(line)}
            storages = _storages(manifest, pod, together, written=False)
            one = len(given) == 1 and len(modes) == 1 and len(storages) == 1
            if one and _CHOWN.search(line) and _CHMOD.search(line):
                ((user, group),), (mode,), (storage,) = given, modes, storages
                yield Owned(manifest, storage, int(user), int(group), int(mode, 8))


def _storages(manifest: Manifest, pod: Pod, together: ManifestSet, *, written: bool) -> "set[str]":
    """Return the file systems behind the claims of a pod, by their handle or by the claim."""
    mounted = {
        text(body.get("name"))
        for container in pod.containers
        for each in items(container.body.get("volumeMounts")) or []
        if (body := mapping(each)) and not (written and body.get("readOnly") is True)
    }
    found = set()
    for value in items(pod.spec.get("volumes")) or []:
        volume = mapping(value) or {}
        claim = text((mapping(volume.get("persistentVolumeClaim")) or {}).get("claimName"))
        if claim is not None and text(volume.get("name")) in mounted:
            found.add(handle_of(manifest, claim, together) or f"{manifest.namespace}/{claim}")
    return found


def handle_of(manifest: Manifest, claim: str, together: ManifestSet) -> str | None:
    """Return the file system behind a claim, where its volume is at hand."""
    volume = volume_of(manifest, claim, together)
    source = mapping(volume.spec.get("csi")) if volume else None
    handle = text((source or {}).get("volumeHandle"))
    # One file system may have several volumes, each with a suffix of its own.
    return handle.partition("::")[0].partition("#")[0] if handle else None


def volume_of(manifest: Manifest, claim: str, together: ManifestSet) -> Manifest | None:
    """Return the volume that a claim is bound to by name, where it is at hand."""
    mine = together.named(manifest, "PersistentVolumeClaim", claim)
    volumes = together.of("PersistentVolume")
    for volume in sorted(volumes, key=lambda each: each.file != manifest.file):
        reference = mapping(volume.spec.get("claimRef")) or {}
        named = mine is not None and volume.name == mine.spec.get("volumeName")
        kept = (reference.get("namespace"), reference.get("name")) == (manifest.namespace, claim)
        if named or kept:
            return volume
    return None


def _other_user(pod: Pod, owned: Owned) -> "tuple[Path, str] | None":
    outer = mapping(pod.spec.get("securityContext")) or {}
    running = [each for each in pod.containers if not each.is_init]
    for container in running:
        inner = mapping(container.body.get("securityContext")) or {}
        user, place = _set(container, pod, "runAsUser", inner, outer)
        if user is None or user in {0, owned.user} or owned.mode & _OTHERS_WRITE:
            continue
        group, _ = _set(container, pod, "runAsGroup", inner, outer)
        groups = {group, number(outer.get("fsGroup"))}
        groups |= {number(each) for each in items(outer.get("supplementalGroups")) or []}
        # Without runAsGroup it is what the image says.
        if owned.mode & _GROUP_WRITES and (group is None or owned.group in groups):
            continue
        return place, f"runs as {user}" + (f":{group}" if group is not None else "")
    return None


def _set(
    container: Container, pod: Pod, key: str, inner: "dict[str, Json]", outer: "dict[str, Json]"
) -> "tuple[int | None, Path]":
    mine = inner.get(key) is not None
    value = inner.get(key) if mine else outer.get(key)
    path = (*(container.path if mine else pod.path), "securityContext", key)
    return (value if isinstance(value, int) and not isinstance(value, bool) else None), path
