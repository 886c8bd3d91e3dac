"""The directories of the pods' user on the shared file system, which a set-up Job makes."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.plan.storage import subfolder

# Pods run as this user; the directories that they share are its own.
POD_UID = 10001

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
    top = [ours] if ours != mount else []
    return SharedDirectories(
        (), _texts(parents), _texts([*top, *(ours / name for name in SHARED_DIRECTORIES)])
    )


def _texts(paths: list[PurePosixPath]) -> tuple[str, ...]:
    return tuple(map(str, paths))
