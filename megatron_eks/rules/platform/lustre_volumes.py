"""Rules over volumes on FSx for Lustre: what their driver reads, and what no client takes."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_CLOSE = 0.8
_FSX = "fsx.csi.aws.com"
_DRIVERS = (_FSX, "ebs.csi.aws.com", "efs.csi.aws.com", "fsx.openzfs.csi.aws.com", "s3.csi.aws.com")
# A folder of the file system may follow (aws-fsx-csi-driver, issue 247).
_MOUNT = re.compile(r"([A-Za-z0-9]{1,8}|preview)(/[^/]+)*")
_OF_NFS = frozenset(
    {"hard", "nfsvers", "noresvport", "proto", "retrans", "rsize", "soft", "timeo", "tls", "vers"}
    | {"wsize"}
)
_NO_HOST = re.compile(r"[@/]|:(?=/)")
_FILE_SYSTEM = re.compile(r"fs-[0-9a-f]{8,17}")


def lustre_volumes(together: ManifestSet) -> Iterator[Found]:
    """Require of a volume on FSx for Lustre what its driver reads.

    aws-fsx-csi-driver v1, examples/kubernetes/static_provisioning: the id, dnsname and mountname.
    """
    for volume in together.of("PersistentVolume"):
        csi = mapping(volume.spec.get("csi")) or {}
        driver = text(csi.get("driver"))
        path = ("spec", "csi")
        # Amazon's other domains are far from aws.com in letters, and meant for it.
        named_so = re.sub(r"\.amazon(aws)?\.com$", ".aws.com", driver or "")
        close = get_close_matches(named_so, _DRIVERS, 1, _CLOSE)
        if driver is not None and driver not in _DRIVERS and close:
            found = f"unknown driver {shown(driver)}"
            yield _of_lustre(volume, (*path, "driver"), found, f"did you mean {close[0]}?")
        if driver != _FSX:
            yield from _lustre_elsewhere(volume, driver)
            continue
        handle = text(csi.get("volumeHandle"))
        attributes = mapping(csi.get("volumeAttributes"))
        for key in ("dnsname", "mountname"):
            if attributes is not None and is_absent(attributes.get(key)):
                found = f"no {key}, which the driver mounts by"
                place = (*path, "volumeAttributes", key)
                other = next((each for each in attributes if each.lower() == key), None)
                remedy = f"write {key}, not {other}" if other else "take it from the file system"
                yield _of_lustre(volume, place, found, remedy)
        yield from _mounts(volume, text((attributes or {}).get("mountname")))
        address = text((attributes or {}).get("dnsname"))
        if address is not None and _NO_HOST.search(address) and not is_placeholder(address):
            found = (
                f"{shown(address)} is no host's name: the driver writes @tcp:/MOUNTNAME after it"
            )
            place = (*path, "volumeAttributes", "dnsname")
            remedy = f"write {_NO_HOST.split(address)[0] or 'the name of its host'}"
            yield _of_lustre(volume, place, found, remedy)
        named = address is not None and _FILE_SYSTEM.match(address)
        known = handle is not None and _FILE_SYSTEM.match(handle)
        if named and known and named[0] != known[0]:
            found = f"the address of {named[0]}, and the volume is {shown(handle)}"
            place = (*path, "volumeAttributes", "dnsname")
            yield _of_lustre(volume, place, found, "name one file system in both places")


def _mounts(volume: Manifest, name: str | None) -> Iterator[Found]:
    """Find a name or options that no Lustre client takes."""
    if name is not None and not _MOUNT.fullmatch(name) and not is_placeholder(name):
        found, place = f"{shown(name)} is no mount name", ("spec", "csi", "volumeAttributes")
        remedy = "write it as FSx gives it, without a slash before it"
        yield _of_lustre(volume, (*place, "mountname"), found, remedy)
    for index, value in enumerate(items(volume.spec.get("mountOptions")) or []):
        option = (text(value) or "").partition("=")[0]
        if option in _OF_NFS:
            found = f"{shown(value)} is an option of NFS: the mount fails"
            yield _of_lustre(volume, ("spec", "mountOptions", index), found, "remove it")


def _lustre_elsewhere(volume: Manifest, driver: str | None) -> Iterator[Found]:
    """Refuse what only the driver for Lustre reads (aws-efs-csi-driver reads no address)."""
    csi = mapping(volume.spec.get("csi")) or {}
    attributes = mapping(csi.get("volumeAttributes")) or {}
    for key in ("dnsname", "mountname") if driver == "efs.csi.aws.com" else ():
        if key in attributes:
            found = f"{key} of a Lustre file system, and the driver is that of EFS"
            path = ("spec", "csi", "volumeAttributes", key)
            yield _of_lustre(volume, path, found, f"use the driver {_FSX}, or remove it")


def _of_lustre(volume: Manifest, path: Path, found: str, remedy: str) -> Found:
    return volume, volume.find(Code.CLAIM_AND_VOLUME, path, found, remedy)
