"""The Storage stack: the parallel file system and the data bucket, which outlive the cluster."""

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_s3 as s3

from stacks.base import BaseStack
from stacks.buckets import bucket_policy, private_bucket
from stacks.policies import same_account, statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from constructs import Construct

    from megatron_eks.plan.cluster import ClusterPlan
    from megatron_eks.plan.storage import LustrePlan
    from stacks.network import NetworkStack

# FSx for Lustre User Guide, "File system access control with Amazon VPC".
_LUSTRE_PORTS = ((988, 988), (1018, 1023))


class StorageStack(BaseStack):
    """FSx for Lustre in the GPU zone, and a bucket, encrypted with a key of their own."""

    def __init__(self, scope: "Construct", plan: "ClusterPlan", network: "NetworkStack") -> None:
        super().__init__(scope, plan, "Storage", "File system and data bucket")
        self._removal = (
            cdk.RemovalPolicy.RETAIN if plan.storage.retain else cdk.RemovalPolicy.DESTROY
        )
        self._cluster = plan.name
        key = self.encryption_key(
            "Key", description=f"Data and checkpoints of {plan.name}", removal=self._removal
        )
        file_system = self._lustre(plan.storage.lustre, network, key)
        bucket = self._bucket(key)
        cdk.CfnOutput(self, "LustreId", value=file_system.ref)
        cdk.CfnOutput(self, "LustreDnsName", value=file_system.attr_dns_name)
        cdk.CfnOutput(self, "LustreMountName", value=file_system.attr_lustre_mount_name)
        cdk.CfnOutput(self, "BucketName", value=bucket.ref)

    def _lustre(self, lustre: "LustrePlan", network: "NetworkStack", key: str) -> fsx.CfnFileSystem:
        group = self._security_group(network)
        file_system = fsx.CfnFileSystem(
            self,
            "Lustre",
            file_system_type="LUSTRE",
            file_system_type_version=lustre.version,
            storage_type="SSD",
            storage_capacity=lustre.capacity_gib,
            subnet_ids=[network.private_subnets[lustre.zone]],
            security_group_ids=[group.attr_group_id],
            kms_key_id=key,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type="PERSISTENT_2",
                per_unit_storage_throughput=lustre.throughput_mbps_per_tib,
                data_compression_type="LZ4",
                # Metadata IOPS can only be asked for when the file system is made.
                metadata_configuration=fsx.CfnFileSystem.MetadataConfigurationProperty(
                    mode=lustre.metadata_iops_mode
                ),
            ),
            tags=[cdk.CfnTag(key="Name", value=f"{self._cluster}-lustre")],
        )
        file_system.apply_removal_policy(self._removal)
        for rule in self._rules(group.attr_group_id, network.node_security_group):
            rule.apply_removal_policy(self._removal)
            # FSx tries the ports before it makes a file system, and gives up at once.
            file_system.add_resource_dependency(rule)
        return file_system

    def _security_group(self, network: "NetworkStack") -> ec2.CfnSecurityGroup:
        """Open Lustre's ports between file servers and nodes."""
        nodes = network.node_security_group
        group = ec2.CfnSecurityGroup(
            self,
            "LustreSecurityGroup",
            group_description="FSx for Lustre: file servers and their clients",
            vpc_id=network.vpc_id,
            security_group_ingress=[
                ec2.CfnSecurityGroup.IngressProperty(
                    ip_protocol="tcp",
                    from_port=first,
                    to_port=last,
                    source_security_group_id=nodes,
                    description="Lustre from the nodes",
                )
                for first, last in _LUSTRE_PORTS
            ],
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol="tcp",
                    from_port=first,
                    to_port=last,
                    destination_security_group_id=nodes,
                    description="Lustre to the nodes",
                )
                for first, last in _LUSTRE_PORTS
            ],
            tags=[cdk.CfnTag(key="Name", value=f"{self._cluster}-lustre")],
        )
        group.apply_removal_policy(self._removal)
        return group

    def _rules(self, servers: str, nodes: str) -> "Iterator[cdk.CfnResource]":
        """Open the ports between file servers, and for those that call a node back."""
        for first, last in _LUSTRE_PORTS:
            yield ec2.CfnSecurityGroupEgress(
                self,
                f"ServersToServers{first}",
                group_id=servers,
                destination_security_group_id=servers,
                ip_protocol="tcp",
                from_port=first,
                to_port=last,
                description="Lustre between file servers",
            )
            for name, group in (("Servers", servers), ("Nodes", nodes)):
                yield ec2.CfnSecurityGroupIngress(
                    self,
                    f"{name}FromServers{first}",
                    group_id=group,
                    source_security_group_id=servers,
                    ip_protocol="tcp",
                    from_port=first,
                    to_port=last,
                    description="Lustre from the file servers",
                )

    def _bucket(self, key: str) -> s3.CfnBucket:
        """Make the bucket for data and checkpoints, and one for the record of who read them."""
        # S3 writes its logs with its own key: another would need a grant to the log service.
        access_logs = private_bucket(
            self,
            "AccessLogs",
            removal=self._removal,
            lifecycle=s3.CfnBucket.RuleProperty(
                id="Expire", status="Enabled", expiration_in_days=90
            ),
        )
        bucket = private_bucket(
            self,
            "Bucket",
            removal=self._removal,
            key=key,
            versioned=True,
            access_logs=access_logs,
            lifecycle=s3.CfnBucket.RuleProperty(
                id="CleanUp",
                status="Enabled",
                abort_incomplete_multipart_upload=s3.CfnBucket.AbortIncompleteMultipartUploadProperty(
                    days_after_initiation=7
                ),
                noncurrent_version_expiration=s3.CfnBucket.NoncurrentVersionExpirationProperty(
                    noncurrent_days=30
                ),
            ),
        )
        bucket_policy(self, "BucketPolicy", bucket=bucket, removal=self._removal)
        # Amazon S3 User Guide, "Enabling Amazon S3 server access logging".
        delivery = statement(
            ["s3:PutObject"],
            [f"{access_logs.attr_arn}/*"],
            principal={"Service": "logging.s3.amazonaws.com"},
            condition={**same_account(self.account), "ArnLike": {"aws:SourceArn": bucket.attr_arn}},
        )
        bucket_policy(
            self,
            "AccessLogsPolicy",
            bucket=access_logs,
            removal=self._removal,
            statements=[delivery],
        )
        return bucket
