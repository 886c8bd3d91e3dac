"""File systems: FSx for Lustre with its data repositories, and EFS."""

import secrets
from collections.abc import Mapping

from megatron_eks.local.aws.resources.arguments import call
from megatron_eks.local.aws.resources.handler import Context, Handler
from megatron_eks.local.aws.values import ACCOUNT, Object, Value


class FileSystem(Handler):
    """A file system of FSx."""

    kind = "AWS::FSx::FileSystem"

    def create(self, context: Context, properties: Object) -> str:
        """Make the file system."""
        answer = call(context, "fsx", "CreateFileSystem", properties)
        return str(answer["FileSystem"]["FileSystemId"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change size, throughput and Lustre's settings."""
        changed: Object = {
            name: new[name]
            for name in ("StorageCapacity", "FileSystemTypeVersion")
            if name in new and new[name] != old.get(name)
        }
        before, after = (one.get("LustreConfiguration", {}) for one in (old, new))
        lustre = {name: value for name, value in after.items() if value != before.get(name)}
        if lustre:
            changed["LustreConfiguration"] = lustre
        if changed:
            context.clients("fsx").update_file_system(FileSystemId=physical_id, **changed)
        _retag(context, str(self.attributes(context, physical_id, new)["ResourceARN"]), old, new)

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the file system and all files."""
        del properties
        context.clients("fsx").delete_file_system(FileSystemId=physical_id)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return what clients mount."""
        del properties
        found = context.clients("fsx").describe_file_systems(FileSystemIds=[physical_id])
        system = found["FileSystems"][0]
        return {
            "DNSName": system["DNSName"],
            "LustreMountName": system.get("LustreConfiguration", {}).get("MountName"),
            "ResourceARN": system["ResourceARN"],
            "Id": physical_id,
        }


class DataRepositoryAssociation(Handler):
    """A folder of Lustre that stands for a prefix of S3."""

    kind = "AWS::FSx::DataRepositoryAssociation"

    def create(self, context: Context, properties: Object) -> str:
        """Link them."""
        answer = call(context, "fsx", "CreateDataRepositoryAssociation", properties)
        return str(answer["Association"]["AssociationId"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change what is copied by itself."""
        del old
        names = ("ImportedFileChunkSize", "S3")
        context.clients("fsx").update_data_repository_association(
            AssociationId=physical_id, **{name: new[name] for name in names if name in new}
        )

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Unlink them; the files stay."""
        del properties
        context.clients("fsx").delete_data_repository_association(
            AssociationId=physical_id, DeleteDataInFileSystem=False
        )

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return id and ARN."""
        del properties
        found = context.clients("fsx").describe_data_repository_associations(
            AssociationIds=[physical_id]
        )
        return {
            "AssociationId": physical_id,
            "ResourceARN": found["Associations"][0]["ResourceARN"],
        }


def _retag(context: Context, arn: str, old: Object, new: Object) -> None:
    before, after = ({each["Key"] for each in one.get("Tags", [])} for one in (old, new))
    if before - after:
        context.clients("fsx").untag_resource(ResourceARN=arn, TagKeys=sorted(before - after))
    if after and new.get("Tags") != old.get("Tags"):
        context.clients("fsx").tag_resource(ResourceARN=arn, Tags=new["Tags"])


class Efs(Handler):
    """A file system of EFS."""

    kind = "AWS::EFS::FileSystem"

    def create(self, context: Context, properties: Object) -> str:
        """Make the file system."""
        answer = call(
            context,
            "efs",
            "CreateFileSystem",
            properties,
            {"FileSystemTags": "Tags"},
            CreationToken=secrets.token_hex(16),
        )
        physical_id = str(answer["FileSystemId"])
        context.note(physical_id)
        if "LifecyclePolicies" in properties:
            context.clients("efs").put_lifecycle_configuration(
                FileSystemId=physical_id, LifecyclePolicies=properties["LifecyclePolicies"]
            )
        return physical_id

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the file system and all files."""
        del properties
        context.clients("efs").delete_file_system(FileSystemId=physical_id)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return id and ARN."""
        del properties
        context.clients("efs").describe_file_systems(FileSystemId=physical_id)
        arn = f"arn:aws:elasticfilesystem:{context.region}:{ACCOUNT}:file-system/{physical_id}"
        return {"FileSystemId": physical_id, "Arn": arn}


class MountTarget(Handler):
    """Where one subnet reaches EFS."""

    kind = "AWS::EFS::MountTarget"

    def create(self, context: Context, properties: Object) -> str:
        """Make the mount target."""
        answer = call(context, "efs", "CreateMountTarget", properties)
        return str(answer["MountTargetId"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change security groups."""
        del old
        context.clients("efs").modify_mount_target_security_groups(
            MountTargetId=physical_id, SecurityGroups=new["SecurityGroups"]
        )

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the mount target."""
        del properties
        context.clients("efs").delete_mount_target(MountTargetId=physical_id)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return the id."""
        del context, properties
        return {"Id": physical_id}


class AccessPoint(Handler):
    """A folder of EFS with an owner of its own."""

    kind = "AWS::EFS::AccessPoint"

    def create(self, context: Context, properties: Object) -> str:
        """Make the access point."""
        answer = call(
            context,
            "efs",
            "CreateAccessPoint",
            properties,
            {"AccessPointTags": "Tags"},
            ClientToken=secrets.token_hex(16),
        )
        return str(answer["AccessPointId"])

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the access point; the files stay."""
        del properties
        context.clients("efs").delete_access_point(AccessPointId=physical_id)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return id and ARN."""
        del properties
        context.clients("efs").describe_access_points(AccessPointId=physical_id)
        arn = f"arn:aws:elasticfilesystem:{context.region}:{ACCOUNT}:access-point/{physical_id}"
        return {"AccessPointId": physical_id, "Arn": arn}


HANDLERS: tuple[Handler, ...] = (
    FileSystem(),
    DataRepositoryAssociation(),
    Efs(),
    MountTarget(),
    AccessPoint(),
)
