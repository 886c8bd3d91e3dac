"""The `storage` block of the cluster file: file systems and their key."""

from typing import Annotated, Literal

from pydantic import Field

from megatron_eks.config import forms
from megatron_eks.config.forms import Model

MOUNT_PATH = "/shared"
"""Where pods see the shared file system, if nothing else is said."""


class DataRepository(Model):
    """An S3 prefix that appears as a directory of the file system."""

    path: Annotated[str, forms.pattern("repository_path")]
    """Below the root of the file system: /data is `/shared/data` in a job."""
    s3_uri: forms.S3Uri
    """In the file system's region; who deploys needs `s3:PutBucketPolicy` and the like on it."""
    import_changes: bool = True
    """Objects that are made, changed or deleted later show as well."""
    export_changes: bool = False
    """Files that are made or changed are written back; what is deleted stays in S3."""

    @property
    def import_events(self) -> tuple[str, ...]:
        """What happens to objects, and then to the directory."""
        return ("NEW", "CHANGED", "DELETED") if self.import_changes else ()

    @property
    def export_events(self) -> tuple[str, ...]:
        """What happens to files, and then to the prefix."""
        # Not DELETED: a file that is removed by mistake must not take its copy along.
        return ("NEW", "CHANGED") if self.export_changes else ()


class ExistingLustre(Model):
    """A file system that this project did not make."""

    id: Annotated[str, forms.pattern("file_system_id")]
    dns_name: Annotated[str, forms.pattern("host_name")]
    mount_name: Annotated[str, forms.pattern("mount_name")]
    path: Annotated[str, forms.pattern("subfolder")] | None = None
    """A folder of it that is yours: pods see it as `mount_path`, and nothing beside it."""


class Lustre(Model):
    """The parallel file system that holds data, checkpoints and logs."""

    capacity_gib: int = Field(default=1200, ge=1, le=2_000_000)
    """1200, 2400, or a multiple of 2400; with `efa` of 4,800,000 divided by the throughput."""
    throughput_mbps_per_tib: Literal[125, 250, 500, 1000] = 500
    """MB/s for each TiB of capacity; `scratch_2` always has 200."""
    mount_path: forms.AbsolutePath = MOUNT_PATH
    """Where every pod of a job sees it."""
    deployment: Literal["persistent_2", "scratch_2"] = "persistent_2"
    """Replicated inside the zone, or not at all."""
    availability_zone: forms.Zone | None = None
    """Default: the first pool's, because traffic between zones is slow and billed."""
    per_zone: bool = False
    """A file system of this size in each zone with a pool; a job sees its pool's."""
    efa: bool = False
    """Clients with EFA reach the servers over it: for throughput above 10 GB/s."""
    existing: ExistingLustre | None = None
    """Mounted as it is; capacity and throughput then only describe it."""
    data_repositories: tuple[DataRepository, ...] = ()
    """At most eight."""


class Storage(Model):
    """File systems, and the key that encrypts them."""

    lustre: Lustre = Lustre()
    efs: bool = False
    """A small shared file system for code and homes, in all zones, at `/efs`."""
    kms_key_arn: Annotated[str, forms.pattern("kms_arn")] | None = None
    """Encrypts file systems and bucket in place of a key of this project's; its policy is yours."""
    retain: bool = True
    """Keep file system, bucket and key when their stack is deleted or replaces them."""
