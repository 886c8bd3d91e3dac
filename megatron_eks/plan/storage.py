"""The plan of the file systems, their shared directories and the data bucket."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from megatron_eks.catalog import pins
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig, DataRepository, Lustre

CLAIM = "fsx-shared-pvc"
EFS_CLAIM = "efs-shared-pvc"
EFS_MOUNT_PATH = "/efs"

# Nitro before its fourth version cannot (FSx for Lustre User Guide, "Working with EFA-enabled file
# systems"); such nodes mount over TCP.
_FAMILIES_WITHOUT_LUSTRE_EFA = ("p4d", "p4de", "g5")

# What every SCRATCH_2 file system has (FSx for Lustre User Guide, "Performance").
SCRATCH_MBPS_PER_TIB = 200

# What FSx updates in place, and what it cannot (FSx API, UpdateFileSystem; "Update requires" in the
# reference of AWS::FSx::FileSystem).
CHANGES: dict[str, dict[str, str]] = {
    "changes in place": {
        "capacity_gib": "only upwards, and not within six hours of the last change",
        "throughput_mbps_per_tib": "not with efa; files cannot be reached for minutes",
        "data_repositories": "files stay",
    },
    "needs a new, empty one": dict.fromkeys(
        ("deployment", "availability_zone", "efa", "kms_key_arn"),
        "the old one stays where storage.retain is true, and its data are yours to copy",
    ),
}


@dataclass(frozen=True)
class RepositoryPlan:
    """A directory of the file system that shows an S3 prefix."""

    path: str
    s3_uri: str
    import_events: tuple[str, ...]
    export_events: tuple[str, ...]


@dataclass(frozen=True)
class LustrePlan:
    """One FSx for Lustre file system."""

    zone: str
    suffix: str
    """Of the claim's name; empty for the first file system."""
    capacity_gib: int
    throughput_mbps_per_tib: int
    mount_path: str
    deployment: Literal["PERSISTENT_2", "SCRATCH_2"]
    version: str
    efa: bool
    repositories: tuple[RepositoryPlan, ...]

    @property
    def throughput_mb_s(self) -> float:
        """Throughput of the whole file system, in MB/s."""
        return self.capacity_gib / 1024 * self.throughput_mbps_per_tib

    @property
    def persistent(self) -> bool:
        """Whether it has metadata settings, a throughput to choose and a key of one's own."""
        return self.deployment == "PERSISTENT_2"

    @property
    def claim(self) -> str:
        """The claim through which pods mount it."""
        return f"{CLAIM}{self.suffix}"

    @property
    def output_suffix(self) -> str:
        """What ends the keys of its outputs."""
        return self.suffix.replace("-", "").capitalize()


@dataclass(frozen=True)
class StoragePlan:
    """File systems and data bucket."""

    file_systems: tuple[LustrePlan, ...]
    """The first is everybody's; with one a zone, jobs of the other zones have theirs."""
    existing: bool
    """Whether the file system is somebody else's."""
    subfolder: str
    """Of an existing file system, the folder that pods mount; empty: its root."""
    efs: bool
    kms_key_arn: str | None
    """None: a key is made."""
    retain: bool

    @property
    def lustre(self) -> LustrePlan:
        """The first file system; all of them have its size."""
        return self.file_systems[0]


def reaches_lustre_over_efa(instance_type: str) -> bool:
    """Tell whether a known type's EFA interfaces carry Lustre too."""
    family = instance_type.split(".", maxsplit=1)[0]
    return (
        family not in _FAMILIES_WITHOUT_LUSTRE_EFA and INSTANCES[instance_type].efa_interfaces > 0
    )


def file_system_zones(config: ClusterConfig) -> tuple[str, ...]:
    """Return the zones of the file systems, the first one's first."""
    lustre = config.storage.lustre
    pools = [pool.availability_zone for pool in config.gpu_pools]
    first = lustre.availability_zone or pools[0]
    return tuple(dict.fromkeys((first, *pools))) if lustre.per_zone else (first,)


def plan_storage(config: ClusterConfig) -> StoragePlan:
    """Plan the storage of a configuration that has passed the checks."""
    lustre = config.storage.lustre
    return StoragePlan(
        file_systems=tuple(
            _file_system(lustre, zone, f"-{zone}" if index else "")
            for index, zone in enumerate(file_system_zones(config))
        ),
        existing=lustre.existing is not None,
        subfolder=subfolder(config),
        efs=config.storage.efs,
        kms_key_arn=config.storage.kms_key_arn,
        retain=config.storage.retain,
    )


def subfolder(config: ClusterConfig) -> str:
    """Return the folder of the file system that pods mount; empty: its root."""
    existing = config.storage.lustre.existing
    return (existing.path or "").strip("/") if existing else ""


def _file_system(lustre: Lustre, zone: str, suffix: str) -> LustrePlan:
    scratch = lustre.deployment == "scratch_2"
    return LustrePlan(
        zone=zone,
        suffix=suffix,
        capacity_gib=lustre.capacity_gib,
        throughput_mbps_per_tib=SCRATCH_MBPS_PER_TIB if scratch else lustre.throughput_mbps_per_tib,
        mount_path=lustre.mount_path,
        deployment="SCRATCH_2" if scratch else "PERSISTENT_2",
        version=pins.LUSTRE_VERSION,
        efa=lustre.efa,
        repositories=tuple(_repository(each) for each in lustre.data_repositories),
    )


def _repository(repository: DataRepository) -> RepositoryPlan:
    return RepositoryPlan(
        path=repository.path,
        s3_uri=repository.s3_uri,
        import_events=("NEW", "CHANGED", "DELETED") if repository.import_changes else (),
        # Not DELETED: a file that is removed by mistake must not take its copy along.
        export_events=("NEW", "CHANGED") if repository.export_changes else (),
    )


# What every cluster has below the mount path.
SHARED_DIRECTORIES = ("data", "tokenizer", "checkpoints", "logs", "cache")


@dataclass(frozen=True)
class SharedDirectories:
    """What the set-up Job looks at, parents first; it sees the whole file system at its mount."""

    taken: tuple[str, ...]
    """Made where they are missing, and taken over where they are root's."""
    passed: tuple[str, ...]
    """Made where they are missing, else left as they are, whoever they belong to."""
    made: tuple[str, ...]
    """Made where they are missing, else they must be the pods' own."""

    def __str__(self) -> str:
        """Say what the Job does to a file system that exists."""
        paths = ", ".join((*self.passed, *self.made))
        return (
            f"makes what is missing of {paths}, for user {pins.POD_UID}, and changes nothing else"
        )


def plan_shared_directories(config: ClusterConfig) -> SharedDirectories:
    """Plan them: of a file system that is ours the root too, of one that exists nothing else."""
    lustre = config.storage.lustre
    mount = PurePosixPath(lustre.mount_path)
    if lustre.existing is None:
        # FSx makes the directories of data repositories, as root.
        shown = {each.path.split("/")[1] for each in lustre.data_repositories}
        taken = [mount, *(mount / name for name in SHARED_DIRECTORIES if name in shown)]
        made = [mount / name for name in SHARED_DIRECTORIES if name not in shown]
        return SharedDirectories(_texts(taken), (), _texts(made))
    ours = mount / subfolder(config)
    parents = [each for each in reversed(ours.parents) if mount in each.parents]
    top = [ours] if ours != mount else []
    return SharedDirectories(
        (), _texts(parents), _texts([*top, *(ours / name for name in SHARED_DIRECTORIES)])
    )


def _texts(paths: list[PurePosixPath]) -> tuple[str, ...]:
    return tuple(map(str, paths))
