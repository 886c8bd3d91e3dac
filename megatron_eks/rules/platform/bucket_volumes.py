"""Rules over volumes made by hand: what their class does not give them, and buckets of S3."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.regions import PARTITIONS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.platform.directory_owners import volume_of
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_S3 = "s3.csi.aws.com"
_FOR_OTHERS = "allow-other"
# awslabs/mountpoint-s3, doc/CONFIGURATION.md and mount-s3 --help.
_OPTIONS = (
    *("allow-delete", "allow-overwrite", _FOR_OTHERS, "allow-root", "auto-unmount", "bucket-type"),
    *("cache", "debug", "debug-crt", "dir-mode", "dual-stack", "endpoint-url"),
    *("expected-bucket-owner", "file-mode", "force-path-style", "gid", "incremental-upload"),
    *("log-directory", "log-metrics", "max-cache-size", "max-threads", "maximum-throughput-gbps"),
    *("metadata-ttl", "negative-metadata-ttl", "no-log", "no-sign-request", "part-size", "prefix"),
    *("profile", "read-only", "read-part-size", "region", "requester-pays", "sse"),
    *("sse-kms-key-id", "storage-class", "transfer-acceleration", "uid", "upload-checksums"),
    *("user-agent-prefix", "write-part-size"),
)
_NEARLY = 0.8
# What each option is followed by; mount-s3 takes a prefix only with the slash at its end.
_REGION = re.compile(r"-{0,2}region[ =](?P<value>[a-z0-9-]+)")
_PREFIX = re.compile(r"-{0,2}prefix[ =](?P<value>\S+)")
_FOR_ONE = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
_WHOSE = ("driver", "pod")
# An ID that somebody will put there, as fs-xxx, is one too.
_EFS_HANDLE = re.compile(
    r"((efs|s3files):)?(fs-\w+|[A-Z_ -]+|\[[^\]:]*\])(:[^:]*(:(fsap-\w+|\[[^\]:]*\])?)?)?"
)
_URI = re.compile(r"s3://(?P<bucket>[^/]+)/?(?P<prefix>.*)")
# Options that a class and a volume by hand are wont to share, and that mean nothing to a mount.
_NO_MATTER = frozenset({"defaults", "rw"})


def options_of_the_class(together: ManifestSet) -> Iterator[Found]:
    """Warn of a volume made by hand that counts on the mount options of its class.

    Kubernetes, "Storage Classes", mount options: of volumes that the class makes alone;
    kubernetes-sigs/aws-fsx-csi-driver, issue 127: flock in the class, and the mount without it.
    """
    classes = {each.name: each for each in together.of("StorageClass")}
    for volume in together.of("PersistentVolume"):
        given = classes.get(text(volume.spec.get("storageClassName")))
        listed = items(given.body.get("mountOptions")) if given is not None else None
        named = [said for each in listed or [] if (said := text(each)) and said not in _NO_MATTER]
        driver = (mapping(volume.spec.get("csi")) or {}).get("driver")
        made_here = not is_absent(driver) and is_absent(volume.spec.get("mountOptions"))
        if given is None or not named or not made_here or not is_near(volume, given):
            continue
        found = f"no mountOptions, and those of {given.title} are for volumes that it makes alone"
        remedy = f"write mountOptions: [{', '.join(named)}] here too"
        path: Path = ("spec", "mountOptions")
        yield volume, volume.find(Code.CLAIM_AND_VOLUME, path, found, remedy, Level.WARNING)


def settings(manifest: Manifest) -> Iterator[Finding]:
    """Require of a volume on S3 its bucket, and options that Mountpoint has.

    awslabs/mountpoint-s3-csi-driver, docs/CONFIGURATION.md: bucketName is required; mount options
    are given to mount-s3, which ends at one that it does not know, so the pod is not started;
    accessModes are ReadWriteMany and ReadOnlyMany, authenticationSource is driver or pod;
    awslabs/mountpoint-s3, issue 162 and pull request 207: "prefix must end in '/'", and "bucket
    name should not be an s3:// URI".
    """
    csi = mapping(manifest.spec.get("csi")) or {}
    attributes = mapping(csi.get("volumeAttributes"))
    if manifest.kind != "PersistentVolume" or csi.get("driver") != _S3:
        return
    place: Path = ("spec", "csi", "volumeAttributes", "bucketName")
    if is_absent(csi.get("volumeAttributes")) or (
        attributes is not None and is_absent(attributes.get("bucketName"))
    ):
        other = next((each for each in attributes or {} if each.lower() == "bucketname"), None)
        remedy = f"write bucketName, not {other}" if other else "add it"
        found = "no bucketName, by which the driver mounts"
        yield manifest.find(Code.CLAIM_AND_VOLUME, place, found, remedy)
    for index, mode in enumerate(items(manifest.spec.get("accessModes")) or []):
        if mode in _FOR_ONE:
            found = f"{mode}, and the driver mounts for ReadWriteMany or ReadOnlyMany alone"
            path: Path = ("spec", "accessModes", index)
            yield manifest.find(Code.CLAIM_AND_VOLUME, path, found, "write ReadWriteMany")
    source = text((attributes or {}).get("authenticationSource"))
    if source is not None and source not in _WHOSE and not is_placeholder(source):
        found = f"no authenticationSource {shown(source)}: the mount fails"
        path = ("spec", "csi", "volumeAttributes", "authenticationSource")
        yield manifest.find(Code.CLAIM_AND_VOLUME, path, found, f"write {' or '.join(_WHOSE)}")
    said = text((attributes or {}).get("bucketName")) or ""
    uri = _URI.fullmatch(said)
    if uri and not is_placeholder(said):
        found = f"{shown(said)} is an address: mount-s3 takes the bucket's name alone"
        rest = f", and prefix {uri['prefix'].rstrip('/')}/ in mountOptions" if uri["prefix"] else ""
        yield manifest.find(Code.CLAIM_AND_VOLUME, place, found, f"write {uri['bucket']}{rest}")
    for index, value in enumerate(items(manifest.spec.get("mountOptions")) or []):
        prefix = _PREFIX.fullmatch((text(value) or "").strip())
        if prefix and not prefix["value"].endswith(("/", "}")):
            found = f"prefix {prefix['value']} has no slash at its end: the mount fails"
            place = ("spec", "mountOptions", index)
            remedy = f"write prefix {prefix['value']}/"
            yield manifest.find(Code.CLAIM_AND_VOLUME, place, found, remedy)
        name = re.split(r"[ =]", (text(value) or "").strip().lstrip("-"), maxsplit=1)[0]
        close = get_close_matches(name, _OPTIONS, 1, _NEARLY)
        if close and name not in _OPTIONS:
            found = f"Mountpoint has no option {name}: the mount fails"
            path = ("spec", "mountOptions", index)
            yield manifest.find(Code.CLAIM_AND_VOLUME, path, found, f"did you mean {close[0]}?")


def regions(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an option with a region that is nearly one.

    awslabs/mountpoint-s3, doc/CONFIGURATION.md, "Region detection".
    """
    csi = mapping(manifest.spec.get("csi")) or {}
    if manifest.kind != "PersistentVolume" or csi.get("driver") != _S3:
        return
    for index, value in enumerate(items(manifest.spec.get("mountOptions")) or []):
        region = _REGION.fullmatch((text(value) or "").strip())
        nearly = get_close_matches(region["value"], PARTITIONS, 1, _NEARLY) if region else []
        if region and nearly and region["value"] not in PARTITIONS:
            found = f"no region {shown(region['value'])}: the mount fails"
            path: Path = ("spec", "mountOptions", index)
            remedy = f"did you mean {nearly[0]}?"
            yield manifest.find(Code.CLAIM_AND_VOLUME, path, found, remedy, Level.WARNING)


def handles_of_efs(manifest: Manifest) -> Iterator[Finding]:
    """Require of a volume on EFS a handle that its driver can read.

    kubernetes-sigs/aws-efs-csi-driver, docs/README.md, "Static Provisioning":
    FileSystemId:Path:AccessPointId, of which the first one alone is needed; pkg/driver/node.go,
    parseVolumeId: since S3 Files, efs: or s3files: may stand before it.
    """
    csi = mapping(manifest.spec.get("csi")) or {}
    handle = text(csi.get("volumeHandle"))
    if manifest.kind != "PersistentVolume" or csi.get("driver") != "efs.csi.aws.com" or not handle:
        return
    if not _EFS_HANDLE.fullmatch(handle) and not is_placeholder(handle):
        match = re.search(r"fs-[0-9a-f]{8,17}", handle)
        found = f"{shown(handle)} is no handle that the driver reads: the mount fails"
        remedy = f"write {match[0] if match else 'the ID of the file system, fs-...'}"
        remedy += ", then :/path and :fsap-... if there are any"
        path: Path = ("spec", "csi", "volumeHandle")
        yield manifest.find(Code.CLAIM_AND_VOLUME, path, found, remedy)


def classes_of_buckets(together: ManifestSet) -> Iterator[Found]:
    """Refuse a claim that waits for a class to make a bucket.

    awslabs/mountpoint-s3-csi-driver, docs/CONFIGURATION.md, "Static Provisioning": the driver
    makes no volumes. A class that volumes beside it name is a name alone, and does no harm.
    """
    of_buckets = {
        each.name
        for each in together.of("StorageClass")
        if text(each.body.get("provisioner")) == _S3
    }
    by_hand = {text(each.spec.get("storageClassName")) for each in together.of("PersistentVolume")}
    for claim in together.of("PersistentVolumeClaim"):
        name = text(claim.spec.get("storageClassName"))
        if name and name in of_buckets and name not in by_hand:
            found = f"StorageClass/{name} is of {_S3}, which makes no volumes: the claim stays "
            found += "Pending"
            remedy = "add a PersistentVolume with csi.volumeAttributes.bucketName, and write "
            remedy += 'storageClassName: "" and its volumeName here'
            path: Path = ("spec", "storageClassName")
            yield claim, claim.find(Code.CLAIM_AND_VOLUME, path, found, remedy)


def users_of_buckets(together: ManifestSet) -> Iterator[Found]:
    """Refuse a pod of another user than root on a bucket that root alone may read.

    awslabs/mountpoint-s3-csi-driver, issues 118 and 134, and its example non_root.yaml: without
    allow-other every access of the pod ends with "Permission denied".
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            user = _user(pod)
            for claim in _claims(pod) if user else ():
                volume = volume_of(manifest, claim, together)
                source = mapping(volume.spec.get("csi")) if volume is not None else None
                if volume is None or (source or {}).get("driver") != _S3 or _is_open(volume):
                    continue
                found = f"no {_FOR_OTHERS}, and {manifest.title} runs as user {user}: permission "
                found += "denied on every file"
                remedy = f"add {_FOR_OTHERS}, uid={user} and gid=... of the pod to mountOptions"
                path: Path = ("spec", "mountOptions")
                yield volume, volume.find(Code.CLAIM_AND_VOLUME, path, found, remedy)


def _is_open(volume: Manifest) -> bool:
    options = volume.spec.get("mountOptions")
    said = [text(each) or "" for each in items(options) or []]
    return any(_FOR_OTHERS in each.replace("_", "-") or "{{" in each for each in said) or (
        not is_absent(options) and items(options) is None
    )


def _user(pod: Pod) -> int | None:
    """Return the user of a pod's containers, where one is said and is not root."""
    for container in pod.containers:
        user = pod.user_of(container)
        if user and not container.is_init:
            return user
    return None


def _claims(pod: Pod) -> Iterator[str]:
    for value in items(pod.spec.get("volumes")) or []:
        source = mapping((mapping(value) or {}).get("persistentVolumeClaim")) or {}
        name = text(source.get("claimName"))
        if name:
            yield name
