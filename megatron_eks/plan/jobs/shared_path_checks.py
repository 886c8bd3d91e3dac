"""Whether what several nodes read, or what outlives a pod, stands on a shared file system."""

import re
from collections.abc import Iterable, Iterator

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.plan.jobs.environment_folders import shared_mounts
from megatron_eks.plan.storage import EFS_MOUNT_PATH
from megatron_eks.plan.storage_checks import check_mount_path, not_shared

# No address, and nothing that a shell would fill in.
_RELATIVE = re.compile(r"(\./)?\w[\w.-]*(/[\w.-]+)*")


def outside(places: Iterable[tuple[Path, str | None]], cluster: ClusterConfig) -> Iterator[Finding]:
    """Demand a shared file system for what several nodes read or what outlives a pod.

    EFS is one too where the cluster has it: `charts/pods.py` mounts it in every pod. While Lustre's
    place itself is wrong, that is the finding, and not every path of every job.
    """
    shared = shared_mounts(cluster)
    if any(check_mount_path(cluster)):
        return
    for path, place in places:
        if place in shared:
            found = f"{place} is the root of the file system, which everything shares"
            remedy = f"use a folder of its own below it: {place}/NAME"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
        elif place is not None and _RELATIVE.fullmatch(place):
            found = f"{place} is relative: it is looked for in the folder of the program"
            remedy = f"write {shared[0]}/{place.removeprefix('./')}"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
        elif place is not None and not place.startswith(tuple(f"{each}/" for each in shared)):
            found = not_shared(place, efs=cluster.storage.efs)
            remedy = f"use a path below {shared[0]}/"
            if f"{place}/".startswith(f"{EFS_MOUNT_PATH}/"):
                remedy += ", or set storage.efs: true"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
