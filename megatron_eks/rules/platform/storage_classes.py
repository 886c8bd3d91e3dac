"""Rules over storage classes of which the drivers for FSx, EFS and EBS make volumes."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules import lustre
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.template_set import Resource
from megatron_eks.rules.values import is_absent, is_placeholder, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_FSX, _EFS, _EBS = "fsx.csi.aws.com", "efs.csi.aws.com", "ebs.csi.aws.com"
_CLOSE = 0.85
_PARAMETERS = {
    _FSX: (
        *("autoImportPolicy", "automaticBackupRetentionDays", "copyTagsToBackups"),
        *("dailyAutomaticBackupStartTime", "dataCompressionType", "deploymentType"),
        *("driveCacheType", "efaEnabled", "extraTags", "fileSystemTypeVersion", "kmsKeyId"),
        *("metadataConfigurationMode", "metadataIops", "perUnitStorageThroughput"),
        *("s3ExportPath", "s3ImportPath", "securityGroupIds", "storageType", "subnetId"),
        "weeklyMaintenanceStartTime",
    ),
    _EFS: (
        *("az", "basePath", "directoryPerms", "ensureUniqueDirectory", "fileSystemId", "gid"),
        *("gidRangeEnd", "gidRangeStart", "provisioningMode", "reuseAccessPoint"),
        *("subPathPattern", "uid"),
    ),
    _EBS: (
        *("allowAutoIOPSPerGBIncrease", "blockExpress", "blockSize", "bytesPerInode"),
        *("csi.storage.k8s.io/fstype", "encrypted", "ext4BigAlloc", "ext4ClusterSize", "fsType"),
        *("inodeSize", "iops", "iopsPerGB", "kmsKeyId", "numberOfInodes", "throughput", "type"),
        *("volumeInitializationRate",),
    ),
}
# Where FSx itself has what a parameter says, for the rules that are applied to a file system.
_OF_FSX = {
    "deploymentType": ("LustreConfiguration", "DeploymentType"),
    "automaticBackupRetentionDays": ("LustreConfiguration", "AutomaticBackupRetentionDays"),
    "dataCompressionType": ("LustreConfiguration", "DataCompressionType"),
    "efaEnabled": ("LustreConfiguration", "EfaEnabled"),
    "fileSystemTypeVersion": ("FileSystemTypeVersion",),
    "metadataConfigurationMode": ("LustreConfiguration", "MetadataConfiguration", "Mode"),
    "metadataIops": ("LustreConfiguration", "MetadataConfiguration", "Iops"),
    "perUnitStorageThroughput": ("LustreConfiguration", "PerUnitStorageThroughput"),
    "s3ExportPath": ("LustreConfiguration", "ExportPath"),
    "s3ImportPath": ("LustreConfiguration", "ImportPath"),
    "autoImportPolicy": ("LustreConfiguration", "AutoImportPolicy"),
    "storageType": ("StorageType",),
}
_WORDS = {
    (_FSX, "copyTagsToBackups"): ("true", "false"),
    (_FSX, "efaEnabled"): ("true", "false"),
    (_FSX, "metadataConfigurationMode"): ("AUTOMATIC", "USER_PROVISIONED"),
    (_EFS, "provisioningMode"): ("efs-ap", "efs-dir", "s3files-ap"),
    (_EFS, "ensureUniqueDirectory"): ("true", "false"),
    (_EFS, "reuseAccessPoint"): ("true", "false"),
    (_EBS, "encrypted"): ("true", "false"),
    (_EBS, "blockExpress"): ("true", "false"),
    (_EBS, "csi.storage.k8s.io/fstype"): ("ext2", "ext3", "ext4", "xfs", "ntfs"),
    (_EBS, "type"): (*("io1", "io2", "gp2", "gp3", "sc1", "st1", "standard", "sbp1", "sbg1"),),
}
_FORMS = (
    (
        *(_FSX, "weeklyMaintenanceStartTime", re.compile(r"[1-7]:([01]\d|2[0-3]):[0-5]\d")),
        'write "7:09:00": the day of the week from 1 to 7, hour and minute',
    ),
    (
        *(_FSX, "dailyAutomaticBackupStartTime", re.compile(r"([01]\d|2[0-3]):[0-5]\d")),
        'write hour and minute: "05:00"',
    ),
    (_FSX, "subnetId", re.compile(r"subnet-[0-9a-f]+"), "name one subnet, subnet-..."),
    (
        *(_FSX, "securityGroupIds", re.compile(r"sg-[0-9a-f]+(,\s*sg-[0-9a-f]+)*")),
        "name security groups, sg-..., separated by commas",
    ),
    *(
        (_FSX, key, re.compile(r"s3://[^/\s]+(/.*)?"), "write it like s3://BUCKET/PREFIX")
        for key in ("s3ImportPath", "s3ExportPath")
    ),
    (_EFS, "fileSystemId", re.compile(r"(arn:.+/)?fs-[0-9a-f]+"), "name it as EFS does, fs-..."),
    (_EFS, "directoryPerms", re.compile(r"[0-7]{3,4}"), 'write it in octal, such as "700"'),
)
_NUMBERS = {
    _FSX: ("automaticBackupRetentionDays", "metadataIops", "perUnitStorageThroughput"),
    _EFS: ("gid", "gidRangeEnd", "gidRangeStart", "uid"),
    _EBS: ("iops", "iopsPerGB", "throughput"),
}
_WITH_IOPS = ("gp3", "io1", "io2")
# EBS User Guide, "General Purpose SSD volumes": the most of gp3, and its throughput for each IOPS.
_GP3 = {"iops": (3000, 80000), "throughput": (125, 2000)}
_IOPS_A_MIB = 4


def parameters(together: ManifestSet) -> Iterator[Found]:
    """Require of a class parameters that its driver reads, with values that AWS takes.

    aws-fsx-csi-driver v1.9.0 and aws-efs-csi-driver, pkg/driver/controller.go, and
    aws-ebs-csi-driver, docs/parameters.md; a class of volumes that are made by hand, as those
    beside it, needs none.
    """
    for each in together.of("StorageClass"):
        given = mapping(each.body.get("parameters"))
        driver = text(each.body.get("provisioner")) or ""
        made = any(
            volume.spec.get("storageClassName") == each.name and in_one_folder(volume, each)
            for volume in together.of("PersistentVolume")
        )
        if driver not in _PARAMETERS or given is None or made:
            continue
        yield from _names(each, driver, given)
        yield from _values(each, driver, given)
        if driver == _FSX and given:
            yield from _file_system(each, given)
        elif driver == _EFS and given:
            yield from _access_points(each, given)
        elif driver == _EBS:
            yield from _disks(each, {key.lower(): value for key, value in given.items()})


def _wrong(each: Manifest, key: str, found: str, remedy: str, level: Level = Level.ERROR) -> Found:
    path: Path = ("parameters", key)
    return each, each.find(Code.CLAIM_AND_VOLUME, path, found, remedy, level)


def _names(each: Manifest, driver: str, given: Mapping[str, Json]) -> Iterator[Found]:
    if driver == _FSX and is_absent(given.get("subnetId")):
        found = "no subnetId, and the driver makes no file system without one"
        remedy = "name the subnet of the nodes"
        # Volumes that are made by hand elsewhere may have a class without any as their name.
        level = Level.ERROR if given else Level.WARNING
        remedy += "" if given else "; none is needed if its volumes are made by hand"
        yield _wrong(each, "subnetId", found, remedy, level)
    known = {name.lower(): name for name in _PARAMETERS[driver]}
    others = {name for of, names in _PARAMETERS.items() if of != driver for name in names}
    for key in given:
        # The driver for EBS reads its own in any case.
        if key in known.values() or (driver == _EBS and key.lower() in known):
            continue
        close = get_close_matches(key.lower(), known, 1, _CLOSE)
        if close:
            found, remedy = f"the driver reads no {shown(key)}", f"did you mean {known[close[0]]}?"
            yield _wrong(each, key, found, remedy)
        elif key in others:
            found = f"{shown(key)} is a parameter of another driver than {driver}"
            yield _wrong(each, key, found, "remove it, or use that driver")


def _values(each: Manifest, driver: str, given: Mapping[str, Json]) -> Iterator[Found]:
    for key, value in given.items():
        written = text(value)
        if written is None or is_placeholder(written):
            continue
        known = _WORDS.get((driver, key), ())
        form = next((one for one in _FORMS if one[:2] == (driver, key)), None)
        if known and written not in known:
            yield _wrong(each, key, f"unknown {shown(value)}", f"use one of {', '.join(known)}")
        elif key in _NUMBERS[driver] and not re.fullmatch(r"[0-9]+", written):
            yield _wrong(each, key, f"{shown(value)} is no number", "write digits alone, in quotes")
        elif form is not None and not form[2].fullmatch(written):
            yield _wrong(each, key, f"{shown(value)} is refused", form[3])


def _file_system(each: Manifest, given: Mapping[str, Json]) -> Iterator[Found]:
    """Judge the file system that a class makes as one of a template; its size is the claim's."""
    properties: dict[str, Json] = {"FileSystemType": "LUSTRE"}
    for key, (*above, last) in _OF_FSX.items():
        if key in given:
            inner = properties
            for part in above:
                inner = inner.setdefault(part, {})  # type: ignore[assignment]
            inner[last] = given[key]
    resource = Resource(each.file, "", "AWS::FSx::FileSystem", {"Properties": properties})
    configuration = mapping(properties.get("LustreConfiguration")) or {}
    for finding in lustre.without_size(lustre.FileSystem(resource, configuration)):
        place = tuple(str(part) for part in finding.path[2:])
        keys = [key for key, of in _OF_FSX.items() if of[: len(place)] == place]
        key = next((key for key in keys if key in given), keys[0] if keys else "")
        remedy = finding.remedy
        # FSx's words are longer; a class names its parameters in its own.
        found = finding.found
        for name, of in _OF_FSX.items():
            found, remedy = (said.replace(of[-1], name) for said in (found, remedy))
        yield _wrong(each, key, found, remedy, finding.level)


def _access_points(each: Manifest, given: Mapping[str, Json]) -> Iterator[Found]:
    for key, remedy in (
        ("provisioningMode", "write efs-ap"),
        ("fileSystemId", "name the file system, fs-..."),
        ("directoryPerms", 'write it, such as directoryPerms: "700"'),
    ):
        if is_absent(given.get(key)):
            yield _wrong(each, key, f"no {key}, and the driver makes no volume", remedy)
    for one, other in (("gidRangeStart", "gidRangeEnd"), ("gidRangeEnd", "gidRangeStart")):
        if one in given and other not in given:
            yield _wrong(each, one, f"{one} without {other}", f"add {other}")
    first, last = (number(given.get(key)) for key in ("gidRangeStart", "gidRangeEnd"))
    if first is not None and last is not None and first >= last:
        found = f"the range ends at {last}, and begins at {first}"
        yield _wrong(each, "gidRangeEnd", found, "end the range after its beginning")


def _disks(each: Manifest, given: Mapping[str, Json]) -> Iterator[Found]:
    kind = text(given.get("type")) or "gp3"
    if "iops" in given and "iopspergb" in given:
        yield _wrong(each, "iops", "iops beside iopsPerGB: the driver refuses", "keep one of them")
    for key, kinds in (("iops", _WITH_IOPS), ("iopspergb", _WITH_IOPS), ("throughput", ("gp3",))):
        if key in given and kind in _WORDS[_EBS, "type"] and kind not in kinds:
            found = f"{kind} takes none: it is not read"
            remedy = f"remove it, or use {' or '.join(kinds)}"
            yield _wrong(each, key, found, remedy, Level.WARNING)
    amounts = {key: number(given.get(key)) for key in _GP3 if kind == "gp3"}
    for key, amount in amounts.items():
        least, most = _GP3[key]
        if amount is not None and not least <= amount <= most:
            yield _wrong(each, key, f"gp3 has no {amount}", f"use {least} to {most}")
    throughput, iops = amounts.get("throughput"), amounts.get("iops") or _GP3["iops"][0]
    if throughput is not None and throughput * _IOPS_A_MIB > iops and "iopspergb" not in given:
        found = f"{throughput} MiB/s need {throughput * _IOPS_A_MIB} IOPS, and there are {iops}"
        yield _wrong(each, "throughput", found, f"use at most {iops // _IOPS_A_MIB}, or more iops")
