"""Rules over which storage class a claim gets, and when its volume is made."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text, truth
from megatron_eks.rules.workloads import Manifest

_DEFAULTS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_EBS = ("ebs.csi.aws.com", "ebs.csi.eks.amazonaws.com", "kubernetes.io/aws-ebs")
_GIVEN = frozenset({"auto-ebs-sc", "default", "gp2", "gp3", "standard"})
_CLOSE = 0.85


def defaults(together: ManifestSet) -> Iterator[Found]:
    """Warn of two default storage classes.

    Kubernetes, "Storage Classes", default StorageClass: of several the newest is taken.
    """
    first: Manifest | None = None
    for each in together.of("StorageClass"):
        if not _is_default(each):
            continue
        if first is not None and first.name != each.name and is_near(first, each):
            found = f"{first.title} is the default too, and the newer one is taken"
            remedy = f'write "false" in one of them, such as {first.name}'
            path: Path = ("metadata", "annotations", _DEFAULTS[0])
            yield each, each.find(Code.CLAIM_AND_VOLUME, path, found, remedy, Level.WARNING)
        first = first or each


def _is_default(manifest: Manifest) -> bool:
    metadata = mapping(manifest.body.get("metadata")) or {}
    given = mapping(metadata.get("annotations")) or {}
    return any(truth(given.get(key)) is True for key in _DEFAULTS)


def bound_at_once(manifest: Manifest) -> Iterator[Finding]:
    """Warn of EBS volumes that are made before anybody knows the zone of their pod.

    Kubernetes, "Storage Classes", volume binding mode: with Immediate the disk may be in a zone
    without a node for the pod, which then stays Pending.
    """
    if manifest.kind != "StorageClass" or manifest.body.get("provisioner") not in _EBS:
        return
    mode = manifest.body.get("volumeBindingMode")
    # Left out it is the same, and in a cluster of one zone nobody needs to say it.
    if is_absent(manifest.body.get("allowedTopologies")) and mode == "Immediate":
        found = "the disk is made at once, in any zone, and pods on nodes of another stay Pending"
        remedy = "write volumeBindingMode: WaitForFirstConsumer"
        path: Path = ("volumeBindingMode",)
        yield manifest.find(Code.CLAIM_AND_VOLUME, path, found, remedy, Level.WARNING)


def names(together: ManifestSet) -> Iterator[Found]:
    """Warn of a claim whose class only nearly bears the name of one beside it, or of no other.

    Kubernetes, "Persistent Volumes", class: a claim of a class that is not there stays Pending. A
    class in the claim's own file of which no claim is was made for this one.
    """
    taken = {name for each in together.objects for _, name in _wanted(each)}
    for manifest in together.objects:
        near = [each for each in together.of("StorageClass") if is_near(manifest, each)]
        known = sorted(each.name for each in near if each.name)
        for path, name in _wanted(manifest) if known else ():
            # A volume may bear the name of a class that nobody makes.
            made = any(
                each.spec.get("storageClassName") == name
                for each in together.of("PersistentVolume")
            )
            close = get_close_matches(name, known, 1, _CLOSE)
            own = {each.name for each in near if each.file == manifest.file} - taken - {None}
            alone = str(own.pop()) if len(own) == 1 and name not in _GIVEN else None
            lacking = name not in known and not made and not is_placeholder(name)
            if lacking and (close or alone):
                found = f"no StorageClass {shown(name)} among these objects"
                there = f"there: {alone}, which no claim names"
                remedy = f"did you mean {close[0]}?" if close else there
                finding = manifest.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
                yield manifest, finding


def _wanted(manifest: Manifest) -> Iterator[tuple[Path, str]]:
    name = text(manifest.spec.get("storageClassName"))
    if manifest.kind == "PersistentVolumeClaim" and name:
        yield ("spec", "storageClassName"), name
    for index, value in enumerate(items(manifest.spec.get("volumeClaimTemplates")) or []):
        inner = mapping((mapping(value) or {}).get("spec")) or {}
        if manifest.kind == "StatefulSet" and (said := text(inner.get("storageClassName"))):
            yield ("spec", "volumeClaimTemplates", index, "spec", "storageClassName"), said
