"""Whether a pod can write where a variable says, and who fills in the names in its value.

Sources: Kubernetes, "Configure a Security Context" (readOnlyRootFilesystem) and "Define Dependent
Environment Variables"; huggingface_hub 2.4, constants.py, and datasets 5.2, config.py: the former
fills in `~` and `$HOME`, the latter only `~`, and only in HF_HOME.
"""

import re
from collections.abc import Collection
from posixpath import normpath

from megatron_eks.catalog.environment import Policy, advised_against, refused
from megatron_eks.catalog.environment_folders import FOLDERS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.plan.storage import EFS_MOUNT_PATH

# Whose library puts the home directory, /tmp in our images, in the place of `~`.
_FILL_IN_HOME = frozenset({"HF_ASSETS_CACHE", "HF_HOME", "HF_HUB_CACHE"})
_WRITABLE = ("/tmp", "/dev/shm")  # noqa: S108 -- mounts of every pod

_BY_SHELL = re.compile(r"(?<!\$)\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*))")
_BY_KUBERNETES = re.compile(r"(?<!\$)\$\((?P<name>[^()]*)\)")


def mounts(cluster: ClusterConfig) -> tuple[str, ...]:
    """Return where the pods of a job can write."""
    return (*shared_mounts(cluster), *_WRITABLE)


def shared_mounts(cluster: ClusterConfig) -> tuple[str, ...]:
    """Return where all pods of a job see the same files."""
    efs = (EFS_MOUNT_PATH,) if cluster.storage.efs else ()
    return (cluster.storage.lustre.mount_path, *efs)


def misplaced(name: str, value: str, cluster: ClusterConfig) -> Policy | None:
    """Judge a folder that no pod can make: all of its file system but the mounts is read-only."""
    if name not in FOLDERS or not value or (name in _FILL_IN_HOME and value.startswith("~/")):
        return None
    mount_path = cluster.storage.lustre.mount_path
    instead = f"use a folder below {mount_path}/, or below /tmp/ for what may be lost"
    if not value.startswith("/"):
        reason = f"{value!r} does not begin at the root, and no shell fills in ~ or $HOME"
        return refused(reason, instead)
    place = normpath(value)
    if any(place == mount or place.startswith(f"{mount}/") for mount in mounts(cluster)):
        return None
    reason = f"a pod may not write to {value}: all but its mounts is read-only"
    return refused(reason, instead)


def unfilled(value: str, before: Collection[str]) -> Policy | None:
    """Judge a name in a value that stays as it is written; so many variables stand before it."""
    by_shell = _BY_SHELL.search(value)
    if by_shell:
        found = by_shell["plain"] or by_shell["braced"]
        reason = f"no shell reads {value!r}, and ${found} stays in it"
        return advised_against(reason, "write out what it stands for")
    for match in _BY_KUBERNETES.finditer(value):
        # Kubernetes gives the addresses of Services so.
        if match["name"] not in before and not match["name"].endswith(("_HOST", "_PORT")):
            reason = f"the pod has no {match['name']!r} before it, and $({match['name']}) stays"
            return advised_against(reason, "write out what it stands for")
    return None
