"""The plan of the file system and the data bucket."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from megatron_eks.catalog import pins

if TYPE_CHECKING:
    from megatron_eks.config.cluster import ClusterConfig


@dataclass(frozen=True)
class LustrePlan:
    """The FSx for Lustre file system."""

    capacity_gib: int
    throughput_mbps_per_tib: int
    zone: str
    mount_path: str
    version: str
    metadata_iops_mode: Literal["AUTOMATIC"]

    @property
    def throughput_mb_s(self) -> float:
        """Throughput of the whole file system, in MB/s."""
        return self.capacity_gib / 1024 * self.throughput_mbps_per_tib


@dataclass(frozen=True)
class StoragePlan:
    """File system and data bucket."""

    lustre: LustrePlan
    retain: bool


def plan_storage(config: "ClusterConfig") -> StoragePlan:
    """Plan the storage of a configuration that has passed the checks."""
    lustre = config.storage.lustre
    return StoragePlan(
        lustre=LustrePlan(
            capacity_gib=lustre.capacity_gib,
            throughput_mbps_per_tib=lustre.throughput_mbps_per_tib,
            zone=lustre.availability_zone or config.gpu_pools[0].availability_zone,
            mount_path=lustre.mount_path,
            version=pins.LUSTRE_VERSION,
            metadata_iops_mode="AUTOMATIC",
        ),
        retain=config.storage.retain,
    )
