"""Rules over the settings of FSx for Lustre file systems and their data repositories."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_intrinsic,
    items,
    mapping,
    number,
    shown,
    text,
    truth,
)

_CONFIGURATION = "LustreConfiguration"
_OF_OTHERS = ("OntapConfiguration", "OpenZFSConfiguration", "WindowsConfiguration")
_DEPLOYMENTS = ("SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2")
_WITHOUT_HDD = ("SCRATCH_1", "SCRATCH_2", "PERSISTENT_2")
_VERSIONS = ("2.10", "2.12", "2.15")
_COMPRESSIONS = ("NONE", "LZ4")
_STORAGE_TYPES = ("SSD", "HDD", "INTELLIGENT_TIERING")

# FSx API, CreateFileSystem and CreateFileSystemLustreConfiguration, read 2026-11.
_SSD_THROUGHPUTS = (125, 250, 500, 1000)
_THROUGHPUTS = {
    ("PERSISTENT_1", "SSD"): (50, 100, 200),
    ("PERSISTENT_1", "HDD"): (12, 40),
    ("PERSISTENT_2", "SSD"): _SSD_THROUGHPUTS,
}
_SMALL_GIB = (1200, 2400)
_HDD_STEPS_GIB = {12: 6000, 40: 1800}
# FSx for Lustre User Guide, "Managing storage capacity": with EFA 38,400 GiB at 125 MB/s per TiB,
# and half of it at twice the throughput.
_EFA_STEP_TIMES_THROUGHPUT = 4_800_000
_METADATA_IOPS = (1500, 3000, 6000)
_METADATA_IOPS_STEP = 12000
_METADATA_IOPS_MOST = 192000
_REPOSITORY_KEYS = ("ImportPath", "ExportPath", "AutoImportPolicy", "ImportedFileChunkSize")


@dataclass(frozen=True)
class FileSystem:
    """One Lustre file system; what cannot be known is None."""

    resource: Resource
    settings: "Mapping[str, Json]"

    @property
    def deployment(self) -> str | None:
        """The deployment type; FSx takes SCRATCH_1 where none is named."""
        value = self.settings.get("DeploymentType")
        return "SCRATCH_1" if is_absent(value) else text(value)

    @property
    def storage(self) -> str | None:
        """The storage type; FSx takes SSD where none is named."""
        value = self.resource.properties.get("StorageType")
        return "SSD" if is_absent(value) else text(value)

    @property
    def throughput(self) -> int | None:
        """Throughput of each TiB."""
        return number(self.settings.get("PerUnitStorageThroughput"))

    def wrong(self, path: Path, found: str, remedy: str) -> Finding:
        """Report a setting that FSx refuses."""
        return self.resource.find(Code.LUSTRE_SETTINGS, path, found, remedy)


def file_systems(templates: TemplateSet) -> Iterator[FileSystem]:
    """Return every Lustre file system whose settings are written out."""
    for resource in templates.resources("AWS::FSx::FileSystem"):
        settings = mapping(resource.properties.get(_CONFIGURATION))
        if settings is not None and (
            settings or text(resource.properties.get("FileSystemType")) == "LUSTRE"
        ):
            yield FileSystem(resource, settings)


def retained(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a file system that goes with its stack, or with a changed property.

    AWS CloudFormation, "DeletionPolicy attribute": without it the data are deleted. Only its
    owner knows whether checkpoints are on it; a scratch file system whose data come from S3 and
    go back there, and which is to be deleted by its own words, is meant to go.
    """
    for system in file_systems(templates):
        if _passes_on(system, templates):
            continue
        lost = [
            attribute
            for attribute in ("DeletionPolicy", "UpdateReplacePolicy")
            if not is_intrinsic(policy := system.resource.body.get(attribute))
            and policy not in ("Retain", "RetainExceptOnCreate")
        ]
        if lost:
            yield system.resource.find(
                Code.LUSTRE_RETAINED,
                (lost[0],),
                "the file system and all checkpoints on it are deleted with the resource",
                f"set {' and '.join(lost)} to Retain",
                Level.WARNING,
            )


def _passes_on(system: FileSystem, templates: TemplateSet) -> bool:
    """Tell a scratch file system that says it goes, and that gives what it holds to S3."""
    scratch = (system.deployment or "").startswith("SCRATCH")
    if not scratch or system.resource.body.get("DeletionPolicy") != "Delete":
        return False
    if not any(is_absent(system.settings.get(key)) for key in ("ImportPath", "ExportPath")):
        return True
    return any(
        not is_absent((mapping(link.properties.get("S3")) or {}).get("AutoExportPolicy"))
        for link in templates.resources("AWS::FSx::DataRepositoryAssociation")
        if templates.target(link.properties.get("FileSystemId"), link.file) is system.resource
    )


def settings(templates: TemplateSet) -> Iterator[Finding]:
    """Require settings of a Lustre file system that FSx accepts together.

    FSx API, CreateFileSystem and CreateFileSystemLustreConfiguration.
    """
    for system in file_systems(templates):
        for key in _OF_OTHERS:
            if not is_absent(system.resource.properties.get(key)):
                found = f"{key} beside FileSystemType LUSTRE: FSx refuses it"
                yield system.wrong((key,), found, f"remove it, or {_CONFIGURATION}")
        yield from without_size(system)
        yield from _capacity(system)
        subnets = items(system.resource.properties.get("SubnetIds"))
        if subnets is not None and len(subnets) != 1:
            found = f"{len(subnets)} subnets"
            yield system.wrong(("SubnetIds",), found, "name exactly one, in the zone of the nodes")


def without_size(system: FileSystem) -> Iterator[Finding]:
    """Return what FSx refuses of a file system whatever its size and place."""
    yield from _names(system)
    yield from _throughput(system)
    yield from _version(system)
    yield from _metadata(system)
    yield from _backups(system)
    for key in _REPOSITORY_KEYS if system.deployment == "PERSISTENT_2" else ():
        if not is_absent(system.settings.get(key)):
            found = f"{key} is not supported by PERSISTENT_2"
            remedy = "use an AWS::FSx::DataRepositoryAssociation"
            yield system.wrong((_CONFIGURATION, key), found, remedy)


def data_repositories(templates: TemplateSet) -> Iterator[Finding]:
    """Require absolute paths and S3 locations of data repository associations.

    FSx API, CreateDataRepositoryAssociation: not for SCRATCH_1.
    """
    systems = {system.resource: system for system in file_systems(templates)}
    for association in templates.resources("AWS::FSx::DataRepositoryAssociation"):
        for key, start in (("FileSystemPath", "/"), ("DataRepositoryPath", "s3://")):
            path = text(association.properties.get(key))
            if path is not None and not path.startswith(start):
                found = f"{shown(path)} does not start with {start}"
                yield association.find(Code.DATA_REPOSITORY, (key,), found, f"write {start}...")
        target = templates.target(association.properties.get("FileSystemId"), association.file)
        system = systems.get(target) if target else None
        if system is not None and system.deployment == "SCRATCH_1":
            found = "the file system is SCRATCH_1, which takes no association"
            remedy = "use another deployment type"
            yield association.find(Code.DATA_REPOSITORY, ("FileSystemId",), found, remedy)


def _names(system: FileSystem) -> Iterator[Finding]:
    for path, value, known in (
        ((_CONFIGURATION, "DeploymentType"), system.deployment, _DEPLOYMENTS),
        (("StorageType",), system.storage, _STORAGE_TYPES),
        (
            (_CONFIGURATION, "DataCompressionType"),
            text(system.settings.get("DataCompressionType")),
            _COMPRESSIONS,
        ),
        (
            ("FileSystemTypeVersion",),
            text(system.resource.properties.get("FileSystemTypeVersion")),
            _VERSIONS,
        ),
    ):
        if value is not None and value not in known:
            yield system.wrong(path, f"{shown(value)} is unknown to FSx", choices(value, known))
    # FSx API, CreateFileSystem, StorageType: HDD is for PERSISTENT_1 alone.
    if system.storage == "HDD" and system.deployment in _WITHOUT_HDD:
        yield system.wrong(("StorageType",), f"{system.deployment} has no HDD", "use SSD")


def _throughput(system: FileSystem) -> Iterator[Finding]:
    path = (_CONFIGURATION, "PerUnitStorageThroughput")
    value = system.settings.get(path[-1])
    allowed = _THROUGHPUTS.get((system.deployment or "", system.storage or ""))
    if allowed is None:
        scratch = (system.deployment or "").startswith("SCRATCH")
        if (scratch or system.storage == "INTELLIGENT_TIERING") and not is_absent(value):
            kind = system.deployment if scratch else system.storage
            yield system.wrong(path, f"{kind} takes no throughput per TiB", "remove it")
        return
    values = ", ".join(str(each) for each in allowed)
    if is_absent(value):
        yield system.wrong(path, f"{system.deployment} needs it", f"use one of {values}")
    elif system.throughput is not None and system.throughput not in allowed:
        found = f"{system.deployment} on {system.storage} has no {system.throughput} MB/s per TiB"
        yield system.wrong(path, found, f"use one of {values}")


def _capacity(system: FileSystem) -> Iterator[Finding]:
    """Check sizes; a file system from a backup has its backup's."""
    properties = system.resource.properties
    value = properties.get("StorageCapacity")
    size = number(value)
    if system.storage == "INTELLIGENT_TIERING" or not is_absent(properties.get("BackupId")):
        return
    if is_absent(value):
        yield system.wrong(
            ("StorageCapacity",), "no size", "use 1200, 2400 or a multiple of 2400 GiB"
        )
        return
    if size is None and _is_fraction(value):
        found = f"{shown(value)} is no whole number of GiB"
        remedy = "use 1200, 2400 or a multiple of 2400 GiB"
        yield system.wrong(("StorageCapacity",), found, remedy)
    if size is None or system.deployment not in _DEPLOYMENTS:
        return
    if system.storage == "HDD":
        step = _HDD_STEPS_GIB.get(system.throughput or 0)
        fits, sizes = step is None or (size > 0 and size % step == 0), f"a multiple of {step}"
    elif truth(system.settings.get("EfaEnabled")) and system.throughput in _SSD_THROUGHPUTS:
        step = _EFA_STEP_TIMES_THROUGHPUT // system.throughput
        fits, sizes = size > 0 and size % step == 0, f"a multiple of {step}"
    else:
        step = 3600 if system.deployment == "SCRATCH_1" else 2400
        fits = size in _SMALL_GIB or (size > 0 and size % step == 0)
        sizes = f"1200, 2400 or a multiple of {step}"
    if not fits:
        found = f"{system.deployment} has no size of {size} GiB"
        yield system.wrong(("StorageCapacity",), found, f"use {sizes} GiB")


def _is_fraction(value: Json) -> bool:
    """Tell a size in TiB, or with a unit: what FSx refuses, and no parameter."""
    written = value if isinstance(value, str) else ""
    return (
        isinstance(value, float)
        or re.fullmatch(r"[0-9]+(\.[0-9]+)?\s*[TtGg]i?[Bb]?|[0-9]+\.[0-9]+", written) is not None
    )


def _backups(system: FileSystem) -> Iterator[Finding]:
    """Find backups of what has none: FSx for Lustre User Guide, "Working with backups"."""
    path = (_CONFIGURATION, "AutomaticBackupRetentionDays")
    scratch = (system.deployment or "").startswith("SCRATCH")
    linked = any(not is_absent(system.settings.get(key)) for key in _REPOSITORY_KEYS)
    if number(system.settings.get(path[1])) in {None, 0}:
        return
    if scratch:
        remedy = "remove it, or use PERSISTENT_2"
        yield system.wrong(path, f"{system.deployment} has no backups", remedy)
    elif linked and system.deployment == "PERSISTENT_1":
        found = "a file system that is linked to S3 has no backups"
        yield system.wrong(path, found, "remove it: the bucket has the files")


def _version(system: FileSystem) -> Iterator[Finding]:
    value = system.resource.properties.get("FileSystemTypeVersion")
    path, remedy = ("FileSystemTypeVersion",), 'use "2.15"'
    if text(value) == "2.10" and system.deployment == "PERSISTENT_2":
        yield system.wrong(path, "PERSISTENT_2 does not run Lustre 2.10", remedy)
    elif text(value) == "2.10" or (is_absent(value) and system.deployment in _DEPLOYMENTS[:3]):
        # aws-fsx-csi-driver issue 437: "Invalid argument" from the client of Amazon Linux 2023.
        given = "Lustre 2.10" if text(value) else "no version, so Lustre 2.10"
        found = f"{given}, which nodes with Amazon Linux 2023 cannot mount"
        yield system.resource.find(Code.LUSTRE_SETTINGS, path, found, remedy, Level.WARNING)


def _metadata(system: FileSystem) -> Iterator[Finding]:
    key = "MetadataConfiguration"
    path: Path = (_CONFIGURATION, key)
    value = system.settings.get(key)
    configured = not is_absent(value)
    version = text(system.resource.properties.get("FileSystemTypeVersion"))
    if configured and system.deployment in _DEPLOYMENTS[:3]:
        yield system.wrong(
            path, f"{system.deployment} takes no {key}", "use PERSISTENT_2, or remove it"
        )
    elif configured and version in _VERSIONS[:2]:
        yield system.wrong(path, f"Lustre {version} takes no {key}", 'use version "2.15"')
    if truth(system.settings.get("EfaEnabled")):
        efa: Path = (_CONFIGURATION, "EfaEnabled")
        if system.deployment in _DEPLOYMENTS[:3]:
            yield system.wrong(efa, f"{system.deployment} has no EFA", "use PERSISTENT_2")
        elif not configured:
            yield system.wrong(efa, f"EFA needs a {key}", f"add {key} with Mode AUTOMATIC")
    iops = number((mapping(value) or {}).get("Iops"))
    stepped = (
        iops is not None and iops % _METADATA_IOPS_STEP == 0 and 0 < iops <= _METADATA_IOPS_MOST
    )
    if iops is not None and iops not in _METADATA_IOPS and not stepped:
        found = f"{iops} metadata IOPS are not offered"
        remedy = "use 1500, 3000, 6000 or a multiple of 12000 up to 192000"
        yield system.wrong((*path, "Iops"), found, remedy)
