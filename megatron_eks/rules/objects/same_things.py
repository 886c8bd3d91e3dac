"""Rules over what objects are known by: one volume, one name, an access point of EFS."""

import posixpath
import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.values import is_placeholder, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_ONE_COLON = re.compile(r"(fs-[0-9a-f]+):/?(fsap-[0-9a-f]+)")


def handles(together: ManifestSet) -> Iterator[Found]:
    """Warn of two volumes with one handle.

    Kubernetes, pkg/volume/csi: a driver and a handle are one volume; kubernetes issue 91556: of
    two pods of a node with a claim on each, one hangs in ContainerCreating.
    """
    seen: dict[tuple[str, str], Manifest] = {}
    for volume in together.of("PersistentVolume"):
        csi = mapping(volume.spec.get("csi")) or {}
        driver, handle = text(csi.get("driver")), text(csi.get("volumeHandle"))
        if driver is None or not handle or is_placeholder(handle):
            continue
        first = seen.setdefault((driver, handle), volume)
        if first is not volume and first.name != volume.name and in_one_folder(first, volume):
            found = f"{shown(handle)}, which {first.title} has too: a pod that needs this one hangs"
            remedy = "add something to one of them, such as ::NAMESPACE, or use one volume"
            if driver == "efs.csi.aws.com":
                remedy = "use an access point for each, fs-...::fsap-..., or one volume"
            path = ("spec", "csi", "volumeHandle")
            yield volume, volume.find(Code.CLAIM_AND_VOLUME, path, found, remedy, Level.WARNING)


def access_points(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an access point of EFS in the place of a directory.

    aws-efs-csi-driver, docs/README.md, volumeHandle: FILE_SYSTEM[:DIRECTORY[:ACCESS_POINT]], so the
    mount fails for a directory fsap-... that is not there.
    """
    csi = mapping(manifest.spec.get("csi")) or {}
    if manifest.kind != "PersistentVolume" or csi.get("driver") != "efs.csi.aws.com":
        return
    met = _ONE_COLON.fullmatch(text(csi.get("volumeHandle")) or "")
    if met:
        found = f"{met[2]} stands where a directory does: there is none of this name"
        remedy = f"write {met[1]}::{met[2]}"
        path = ("spec", "csi", "volumeHandle")
        yield manifest.find(Code.CLAIM_AND_VOLUME, path, found, remedy)


def over_files(together: ManifestSet) -> Iterator[Found]:
    """Warn of one object in two files of a folder, with something else in each.

    kubectl apply, of a folder: the files are taken in the order of their names, and the last one
    stands. A folder for Kustomize holds parts of objects, which are meant to be laid over others.
    """
    overlays = {posixpath.dirname(each.file) for each in together.of("Kustomization", "Component")}
    seen: dict[tuple[str, str, str, str | None, str], Manifest] = {}
    twice: dict[tuple[str, str], list[Manifest]] = {}
    for manifest in together.objects:
        folder = posixpath.dirname(manifest.file)
        if not manifest.name or not manifest.file or is_placeholder(manifest.name):
            continue
        # Patches lie over others, wherever their Kustomization is; eksctl takes one file a cluster.
        laid_over = folder in overlays or posixpath.basename(folder) == "patches"
        if laid_over or manifest.group == "eksctl.io":
            continue
        key = (folder, manifest.group, manifest.kind, manifest.namespace, manifest.name)
        first = seen.setdefault(key, manifest)
        other_file = first.file != manifest.file
        if other_file and dict(first.body) != dict(manifest.body):
            twice.setdefault((first.file, manifest.file), []).append(manifest)
    # Two releases of one thing have most of their objects in common: that is one finding.
    for (file, _), (manifest, *others) in twice.items():
        more = f" and {len(others)} more of what this file has" if others else ""
        found = f"{posixpath.basename(file)} has another {manifest.title}{more}: "
        found += "the last one that is applied stands"
        path = ("metadata", "name")
        remedy = "keep one of them, or give it another name"
        finding = manifest.find(Code.DUPLICATE_OBJECT, path, found, remedy, Level.WARNING)
        yield manifest, finding
