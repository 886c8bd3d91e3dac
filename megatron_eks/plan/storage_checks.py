"""What the storage of a cluster file can get wrong."""

from typing import TYPE_CHECKING

from megatron_eks.config.errors import Code, Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.config.cluster import ClusterConfig
    from megatron_eks.config.errors import Path

# Directories of the image or the kubelet that a volume would hide.
_SYSTEM_PATHS = (
    *("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root"),
    *("/run", "/sbin", "/sys", "/usr", "/var"),
    "/tmp",  # noqa: S108 -- a name to refuse
)

_LUSTRE_STEP_GIB = 2400
_LUSTRE_SMALLEST_GIB = 1200


def check_lustre(config: "ClusterConfig") -> "Iterator[Finding]":
    """Yield everything wrong with the Lustre file system."""
    lustre = config.storage.lustre
    path: Path = ("storage", "lustre", "capacity_gib")
    size = lustre.capacity_gib
    if size != _LUSTRE_SMALLEST_GIB and (size < _LUSTRE_SMALLEST_GIB or size % _LUSTRE_STEP_GIB):
        above = max(_LUSTRE_SMALLEST_GIB, -(-size // _LUSTRE_STEP_GIB) * _LUSTRE_STEP_GIB)
        near = _LUSTRE_SMALLEST_GIB if size < _LUSTRE_SMALLEST_GIB else above
        remedy = f"use {near}; FSx has 1200, 2400 and multiples of 2400"
        yield Finding(Code.LUSTRE_CAPACITY, path, f"{size} GiB is no size of a file system", remedy)
    if any(
        lustre.mount_path == top or lustre.mount_path.startswith(f"{top}/") for top in _SYSTEM_PATHS
    ):
        found = f"{lustre.mount_path} hides a directory of the image"
        yield Finding(
            Code.MOUNT_PATH,
            ("storage", "lustre", "mount_path"),
            found,
            "use a path such as /shared",
        )
    chosen = lustre.availability_zone or config.gpu_pools[0].availability_zone
    for index, pool in enumerate(config.gpu_pools):
        if pool.availability_zone != chosen:
            found = f"the file system is in {chosen}; traffic between zones is slow and billed"
            remedy = f"use {chosen}, where the file system is"
            place: Path = ("gpu_pools", index, "availability_zone")
            yield Finding(Code.POOLS_ACROSS_ZONES, place, found, remedy, Level.WARNING)
