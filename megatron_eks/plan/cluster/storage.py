"""Storage as jobs see it: mounts, shared directories and the encryption key."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from megatron_eks.catalog.pins import POD_UID
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path
from megatron_eks.plan.cluster.lustre import LustrePlan, file_system_zones, plan_file_system
from megatron_eks.plan.cluster.zones import check_arn_region

EFS_CLAIM = "efs-shared-pvc"
EFS_MOUNT_PATH = "/efs"

# What every cluster has below the mount path.
SHARED_DIRECTORIES = ("data", "tokenizer", "checkpoints", "logs", "cache")

# Directories of the image or the kubelet that a volume would hide.
_SYSTEM_PATHS = (
    *("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root"),
    *("/run", "/sbin", "/sys", "/usr", "/var"),
    "/tmp",  # noqa: S108 -- a name to refuse
)

# KMS Developer Guide, "Key identifiers"; a key of several regions starts with mrk-.
_KEY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|mrk-[0-9a-f]{32}")


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


def plan_storage(config: ClusterConfig) -> StoragePlan:
    """Plan the storage of a configuration that has passed the checks."""
    lustre = config.storage.lustre
    return StoragePlan(
        file_systems=tuple(
            plan_file_system(lustre, zone, f"-{zone}" if index else "")
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


@dataclass(frozen=True)
class SharedDirectories:
    """What the set-up Job looks at, parents first; it sees the whole file system at its mount."""

    taken: tuple[str, ...]
    """Made where they are missing, and taken over where they are root's."""
    passed: tuple[str, ...]
    """Made where they are missing, else left as they are, whoever they belong to."""
    made: tuple[str, ...]
    """Made where they are missing, else they must be the pods' own."""
    sections: tuple[tuple[str, ...], ...] = ()
    """With teams, instead of these: owner, mode, rule and paths of each part."""

    def __str__(self) -> str:
        """Say what the Job does to a file system that exists."""
        of_teams = (path for each in self.sections for path in each[3:])
        paths = ", ".join(dict.fromkeys((*self.passed, *self.made, *of_teams)))
        return f"makes what is missing of {paths}, for user {POD_UID}, and changes nothing else"


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
    made = [ours] if ours != mount else []
    made += (ours / name for name in SHARED_DIRECTORIES)
    return SharedDirectories((), _texts(parents), _texts(made))


def _texts(paths: list[PurePosixPath]) -> tuple[str, ...]:
    return tuple(map(str, paths))


def check_mount_path(config: ClusterConfig) -> Findings:
    """Yield why the file system cannot be mounted where it should be."""
    mount, path = config.storage.lustre.mount_path, ("storage", "lustre", "mount_path")
    taken = dict.fromkeys(_SYSTEM_PATHS, f"{mount} hides a directory of the image")
    if config.storage.efs:
        taken[EFS_MOUNT_PATH] = f"{EFS_MOUNT_PATH} is where storage.efs is mounted"
    for found in {said for top, said in taken.items() if f"{mount}/".startswith(f"{top}/")}:
        yield Finding(Code.MOUNT_PATH, path, found, "use a path such as /shared")


def not_shared(place: str, *, efs: bool) -> str:
    """Say why a path outside the file system is no place for what all nodes of a job read."""
    if not place.startswith(f"{EFS_MOUNT_PATH}/"):
        return f"{place} is not on the shared file system, so other nodes do not see it"
    if efs:
        return f"{place} is on EFS, which is for code and homes: a run is planned for Lustre"
    return f"{place} is nowhere: storage.efs is false, and EFS is for code and homes"


def check_key(config: ClusterConfig) -> Findings:
    """Yield a key that does not exist by its name, or not for this region."""
    arn = config.storage.kms_key_arn
    if arn is None:
        return
    path: Path = ("storage", "kms_key_arn")
    yield from check_arn_region(path, arn, config.region, "key", "encrypts nothing")
    if not _KEY_ID.fullmatch(arn.rpartition("/")[2]):
        found = f"{arn.rpartition('/')[2]!r} is no id of a key"
        yield Finding(Code.BAD_FORMAT, path, found, "see `aws kms describe-key`")
