"""FSx for Lustre as moto lacks it: mount names, updates and data repositories."""

import json
import secrets
import string
import uuid
from datetime import UTC, datetime

from moto.core.responses import ActionResult
from moto.fsx.models import FileSystem
from moto.fsx.responses import FSxResponse

from megatron_eks.localcloud.aws.services.operation import (
    Regional,
    ServiceError,
    changed,
    found,
    kept,
    parameters,
    taken,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value, present

_MOUNT_NAME_LENGTH = 8
_NO_LINK = "DataRepositoryAssociationNotFound"


class FsxApi(Regional, FSxResponse):
    """Operations on file systems and what they are linked with."""

    def create_file_system(self) -> Value:
        """CreateFileSystem; AWS chooses the mount name."""
        given = parameters(self)
        answer = json.loads(super().create_file_system())
        system = self._system(answer["FileSystem"]["FileSystemId"])
        if system.lustre_configuration is not None:
            letters = [secrets.choice(string.ascii_lowercase) for _ in range(_MOUNT_NAME_LENGTH)]
            system.lustre_configuration["MountName"] = "".join(letters)
        kept(system, "facts").update(
            CreationTime=datetime.now(tz=UTC),
            FileSystemTypeVersion=given.get("FileSystemTypeVersion"),
            NetworkInterfaceIds=self._interfaces(system),
        )
        return ActionResult({"FileSystem": _described(system)})

    def delete_file_system(self) -> Value:
        """DeleteFileSystem, and its interfaces."""
        system = self._system(parameters(self)["FileSystemId"])
        for each in kept(system, "facts")["NetworkInterfaceIds"]:
            self.client("ec2").delete_network_interface(NetworkInterfaceId=each)
        return super().delete_file_system()

    def describe_file_systems(self) -> Value:
        """DescribeFileSystems; an unknown one is an error."""
        wanted = parameters(self).get("FileSystemIds") or list(self.fsx_backend.file_systems)
        return ActionResult({"FileSystems": [_described(self._system(each)) for each in wanted]})

    def update_file_system(self) -> ActionResult:
        """UpdateFileSystem: larger, or with other settings."""
        given = parameters(self)
        system = self._system(given["FileSystemId"])
        system.storage_capacity = given.get("StorageCapacity", system.storage_capacity)
        changed(kept(system, "facts"), given, "FileSystemTypeVersion")
        lustre = {**(system.lustre_configuration or {}), **given.get("LustreConfiguration", {})}
        system.lustre_configuration = lustre or None
        return ActionResult({"FileSystem": _described(system)})

    def create_data_repository_association(self) -> ActionResult:
        """CreateDataRepositoryAssociation."""
        given = parameters(self)
        system = self._system(given["FileSystemId"])
        number = f"dra-{uuid.uuid4().hex[:17]}"
        kept(self.fsx_backend, "associations")[number] = association = {
            **given,
            "AssociationId": number,
            "FileSystemId": system.file_system_id,
            "Lifecycle": "AVAILABLE",
        }
        return ActionResult({"Association": association})

    def update_data_repository_association(self) -> ActionResult:
        """UpdateDataRepositoryAssociation."""
        given = parameters(self)
        association = found(self.fsx_backend, "associations", given["AssociationId"], _NO_LINK)
        return ActionResult(
            {"Association": changed(association, given, "ImportedFileChunkSize", "S3")}
        )

    def delete_data_repository_association(self) -> ActionResult:
        """DeleteDataRepositoryAssociation."""
        number = parameters(self)["AssociationId"]
        taken(self.fsx_backend, "associations", number, _NO_LINK)
        return ActionResult({"AssociationId": number, "Lifecycle": "DELETING"})

    def _system(self, number: str) -> FileSystem:
        if number not in self.fsx_backend.file_systems:
            raise ServiceError("FileSystemNotFound", f"File system '{number}' does not exist.")
        return self.fsx_backend.file_systems[number]

    def _interfaces(self, system: FileSystem) -> list[str]:
        """Make the interface through which clients reach the servers."""
        ec2 = self.client("ec2")
        made = [
            ec2.create_network_interface(
                SubnetId=each,
                Groups=system.security_group_ids,
                Description=f"Created by Amazon FSx {system.file_system_id}",
            )
            for each in system.subnet_ids
        ]
        return [each["NetworkInterface"]["NetworkInterfaceId"] for each in made]


def _described(system: FileSystem) -> Object:
    told: Object = system.to_dict()
    return present({**told, **kept(system, "facts"), "Lifecycle": "AVAILABLE", "OwnerId": ACCOUNT})
