"""EFS: a small file system for code and homes, in every zone, that all pods use as one user."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from constructs import Construct

from megatron_eks.stacks.base import Place

_NFS = 2049
# What NFS needs of the owner, and nobody else's business.
_MODE = "0770"


class SharedHomes(Construct):
    """A file system, its address in each zone, and the access point that pods mount."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        place: Place,
        key: str,
        uid: int,
    ) -> None:
        super().__init__(scope, construct_id)
        self._name = name
        file_system = efs.CfnFileSystem(
            self,
            "FileSystem",
            encrypted=True,
            kms_key_id=key,
            performance_mode="generalPurpose",
            # Paid by use: what is read and written seldom costs nothing while nobody works.
            throughput_mode="elastic",
            backup_policy=efs.CfnFileSystem.BackupPolicyProperty(status="ENABLED"),
            lifecycle_policies=[
                efs.CfnFileSystem.LifecyclePolicyProperty(transition_to_ia="AFTER_30_DAYS"),
            ],
            file_system_tags=[
                efs.CfnFileSystem.ElasticFileSystemTagProperty(key="Name", value=f"{name}-efs")
            ],
        )
        self.file_system_id = file_system.ref
        """What the CSI driver mounts."""
        owner = str(uid)
        access_point = efs.CfnAccessPoint(
            self,
            "AccessPoint",
            file_system_id=file_system.ref,
            # Whoever a process is, its files belong to the pods' user.
            posix_user=efs.CfnAccessPoint.PosixUserProperty(uid=owner, gid=owner),
            root_directory=efs.CfnAccessPoint.RootDirectoryProperty(
                path="/shared",
                creation_info=efs.CfnAccessPoint.CreationInfoProperty(
                    owner_uid=owner, owner_gid=owner, permissions=_MODE
                ),
            ),
        )
        self.access_point_id = access_point.attr_access_point_id
        """Through which it is mounted."""
        group = self._security_group(place)
        for zone, subnet in place.private_subnets.items():
            efs.CfnMountTarget(
                self,
                zone,
                file_system_id=file_system.ref,
                subnet_id=subnet,
                security_groups=[group.attr_group_id],
            )

    def _security_group(self, place: Place) -> ec2.CfnSecurityGroup:
        return ec2.CfnSecurityGroup(
            self,
            "SecurityGroup",
            group_description="EFS: NFS from the nodes",
            vpc_id=place.vpc_id,
            security_group_ingress=[
                ec2.CfnSecurityGroup.IngressProperty(
                    ip_protocol="tcp",
                    from_port=_NFS,
                    to_port=_NFS,
                    source_security_group_id=place.node_security_group,
                    description="NFS from the nodes",
                )
            ],
            tags=[cdk.CfnTag(key="Name", value=f"{self._name}-efs")],
        )
