"""Rules over claims that are to take a volume beside them: its name, class and mode."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.quantity import quantity
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.values import is_absent, items, mapping, text
from megatron_eks.rules.workloads import Manifest

_MODE = "volumeMode"
_MODES = ("Filesystem", "Block")


def classes(together: ManifestSet) -> Iterator[Found]:
    """Warn of a claim without a class beside the one volume that it fits.

    Kubernetes, "Persistent Volumes", class: with a default class in the cluster the claim gets
    that one, and a new disk; a volume without a class is for claims with storageClassName "".
    """
    taken = {text(each.spec.get("volumeName")) for each in together.of("PersistentVolumeClaim")}
    volumes = [
        each
        for each in together.of("PersistentVolume")
        if "csi" in each.spec and each.name not in taken
    ]
    for claim in together.of("PersistentVolumeClaim"):
        said = [claim.spec.get(key) for key in ("storageClassName", "volumeName")]
        if any(not is_absent(each) for each in said):
            continue
        fitting = [each for each in volumes if in_one_folder(claim, each) and _fits(claim, each)]
        if len(fitting) != 1:
            continue
        volume = fitting[0]
        name = text(volume.spec.get("storageClassName")) or ""
        found = "no class and no volume, so the cluster's default class makes a disk, and "
        found += f"{volume.title} stays unbound"
        remedy = f'write storageClassName: "{name}" and volumeName: {volume.name}'
        path = ("spec", "storageClassName")
        finding = claim.find(Code.CLAIM_AND_VOLUME, path, found, remedy, Level.WARNING)
        yield claim, finding


def modes(together: ManifestSet) -> Iterator[Found]:
    """Refuse a claim to one volume that wants it as a disk, and the volume is a file system.

    Kubernetes, "Persistent Volumes", binding block volumes: both have one mode, Filesystem where
    nothing is said, and are else not bound.
    """
    for claim in together.of("PersistentVolumeClaim"):
        name = text(claim.spec.get("volumeName"))
        volume = together.named(claim, "PersistentVolume", name) if name else None
        if volume is None or not in_one_folder(claim, volume):
            continue
        wanted, given = (text(each.spec.get(_MODE, _MODES[0])) for each in (claim, volume))
        if wanted != given and {wanted, given} == {*_MODES}:
            found = f"volumeMode {wanted}, and {volume.title} is {given}: the claim stays Pending"
            path = ("spec", _MODE)
            remedy = f"write volumeMode: {given}"
            yield claim, claim.find(Code.CLAIM_AND_VOLUME, path, found, remedy)


def _fits(claim: Manifest, volume: Manifest) -> bool:
    """Tell whether a claim could be bound to a volume but for the class."""
    modes = items(volume.spec.get("accessModes")) or []
    wanted = items(claim.spec.get("accessModes")) or []
    resources = mapping(claim.spec.get("resources")) or {}
    size = quantity((mapping(resources.get("requests")) or {}).get("storage"))
    room = quantity((mapping(volume.spec.get("capacity")) or {}).get("storage"))
    kept = mapping(volume.spec.get("claimRef")) or {}
    other = not is_absent(kept.get("name")) and kept.get("name") != claim.name
    return all(each in modes for each in wanted) and not other and (size or 0) <= (room or 0)
