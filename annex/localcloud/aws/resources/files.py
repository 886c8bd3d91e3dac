"""File systems: FSx for Lustre with its data repositories, and EFS."""

from typing import ClassVar

from megatron_eks.localcloud.aws.resources.eks import changed
from megatron_eks.localcloud.aws.resources.handler import Context, Handler, Setting
from megatron_eks.localcloud.aws.values import Object


class FileSystem(Handler):
    """A file system of FSx."""

    kind = "AWS::FSx::FileSystem"
    service = "fsx"
    creates = ("CreateFileSystem", "FileSystem.FileSystemId")
    deletes = ("DeleteFileSystem", "FileSystemId")
    describes = ("DescribeFileSystems", "FileSystemIds")
    answers: ClassVar = {
        "DNSName": "FileSystems.0.DNSName",
        "LustreMountName": "FileSystems.0.LustreConfiguration.MountName",
        "ResourceARN": "FileSystems.0.ResourceARN",
    }
    tagged = ("ResourceARN", "ResourceARN")

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change size, throughput and Lustre's settings."""
        if not old:
            return
        given = changed(old, new, "StorageCapacity", "FileSystemTypeVersion")
        before, after = (one.get("LustreConfiguration", {}) for one in (old, new))
        if lustre := changed(before, after, *after):
            given["LustreConfiguration"] = lustre
        if given:
            context.clients("fsx").update_file_system(FileSystemId=physical_id, **given)


class DataRepositoryAssociation(Handler):
    """A folder of Lustre that stands for a prefix of S3."""

    kind = "AWS::FSx::DataRepositoryAssociation"
    service = "fsx"
    creates = ("CreateDataRepositoryAssociation", "Association.AssociationId")
    # The files stay.
    deletes = ("DeleteDataRepositoryAssociation", "AssociationId")
    updates = ("UpdateDataRepositoryAssociation", "AssociationId")


class Efs(Handler):
    """A file system of EFS."""

    kind = "AWS::EFS::FileSystem"
    service = "efs"
    creates = ("CreateFileSystem", "FileSystemId")
    renamed: ClassVar = {"FileSystemTags": "Tags"}
    deletes = ("DeleteFileSystem", "FileSystemId")
    owner = "FileSystemId"
    settings: ClassVar = {"LifecyclePolicies": Setting("PutLifecycleConfiguration")}


class MountTarget(Handler):
    """Where one subnet reaches EFS."""

    kind = "AWS::EFS::MountTarget"
    service = "efs"
    creates = ("CreateMountTarget", "MountTargetId")
    deletes = ("DeleteMountTarget", "MountTargetId")
    updates = ("ModifyMountTargetSecurityGroups", "MountTargetId")


class AccessPoint(Handler):
    """A folder of EFS with an owner of its own."""

    kind = "AWS::EFS::AccessPoint"
    service = "efs"
    creates = ("CreateAccessPoint", "AccessPointId")
    renamed: ClassVar = {"AccessPointTags": "Tags"}
    deletes = ("DeleteAccessPoint", "AccessPointId")
    answers: ClassVar = {"AccessPointId": ""}


HANDLERS: tuple[Handler, ...] = (
    FileSystem(),
    DataRepositoryAssociation(),
    Efs(),
    MountTarget(),
    AccessPoint(),
)
