"""FSx for Lustre: file systems, their ports, and the S3 prefixes that they show."""

from collections.abc import Iterator, Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from constructs import Construct

from megatron_eks.plan.cluster.lustre import LustrePlan
from megatron_eks.stacks.base import Place

# FSx for Lustre User Guide, "File system access control with Amazon VPC".
_TCP = (("tcp", 988, 988), ("tcp", 1018, 1023))
# EFA is no protocol that a rule could name, and each rule must name a group (FSx for Lustre User
# Guide, "Working with EFA-enabled file systems", prerequisites).
_EVERYTHING = (("-1", None, None),)


class LustreFileSystems:
    """The plan's file systems in one security group; not a construct, so that ids stay short."""

    def __init__(
        self,
        scope: Construct,
        *,
        cluster: str,
        plans: Sequence[LustrePlan],
        place: Place,
        key: str,
    ) -> None:
        self._scope = scope
        self._place = place
        self._tags = [cdk.CfnTag(key="Name", value=f"{cluster}-lustre")]
        # One plan's ports are all plans': they differ in zone alone.
        self._ports = _EVERYTHING if plans[0].settings.efa else _TCP
        servers = self._security_group().attr_group_id
        self.file_systems = [self._file_system(plan, servers, key) for plan in plans]
        """In the order of the plans."""
        rules = list(self._rules(servers, place.node_security_group))
        for file_system in self.file_systems:
            # FSx tries the ports before it makes a file system, and gives up at once.
            file_system.node.add_dependency(*rules)

    def _file_system(self, plan: LustrePlan, group: str, key: str) -> fsx.CfnFileSystem:
        suffix = plan.output_suffix
        file_system = fsx.CfnFileSystem(
            self._scope,
            f"Lustre{suffix}",
            file_system_type="LUSTRE",
            file_system_type_version=plan.version,
            storage_type="SSD",
            storage_capacity=plan.capacity_gib,
            subnet_ids=[self._place.private_subnets[plan.zone]],
            security_group_ids=[group],
            # FSx encrypts scratch file systems with its own key and takes no other.
            kms_key_id=key if plan.persistent else None,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type=plan.deployment,
                per_unit_storage_throughput=plan.throughput_mbps_per_tib
                if plan.persistent
                else None,
                data_compression_type="LZ4",
                efa_enabled=True if plan.settings.efa else None,
                # Metadata IOPS can only be asked for when the file system is made.
                metadata_configuration=fsx.CfnFileSystem.MetadataConfigurationProperty(
                    mode="AUTOMATIC"
                )
                if plan.persistent
                else None,
            ),
            tags=self._tags,
        )
        self._repositories(plan, file_system)
        cdk.CfnOutput(self._scope, f"LustreId{suffix}", value=file_system.ref)
        cdk.CfnOutput(self._scope, f"LustreDnsName{suffix}", value=file_system.attr_dns_name)
        cdk.CfnOutput(
            self._scope, f"LustreMountName{suffix}", value=file_system.attr_lustre_mount_name
        )
        return file_system

    def _repositories(self, plan: LustrePlan, file_system: fsx.CfnFileSystem) -> None:
        policy = fsx.CfnDataRepositoryAssociation
        for repository in plan.settings.data_repositories:
            imports, exports = repository.import_events, repository.export_events
            policy(
                self._scope,
                f"Repository{plan.output_suffix}{repository.path}",
                file_system_id=file_system.ref,
                file_system_path=repository.path,
                data_repository_path=repository.s3_uri,
                # Names and sizes at once; contents when they are first read.
                batch_import_meta_data_on_create=True,
                s3=policy.S3Property(
                    auto_import_policy=policy.AutoImportPolicyProperty(events=list(imports))
                    if imports
                    else None,
                    auto_export_policy=policy.AutoExportPolicyProperty(events=list(exports))
                    if exports
                    else None,
                )
                if imports or exports
                else None,
                tags=self._tags,
            )

    def _security_group(self) -> ec2.CfnSecurityGroup:
        nodes = self._place.node_security_group
        return ec2.CfnSecurityGroup(
            self._scope,
            "LustreSecurityGroup",
            group_description="FSx for Lustre: file servers and their clients",
            vpc_id=self._place.vpc_id,
            security_group_ingress=[
                ec2.CfnSecurityGroup.IngressProperty(
                    ip_protocol=protocol,
                    from_port=first,
                    to_port=last,
                    source_security_group_id=nodes,
                    description="Lustre from the nodes",
                )
                for protocol, first, last in self._ports
            ],
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol=protocol,
                    from_port=first,
                    to_port=last,
                    destination_security_group_id=nodes,
                    description="Lustre to the nodes",
                )
                for protocol, first, last in self._ports
            ],
            tags=self._tags,
        )

    def _rules(self, servers: str, nodes: str) -> Iterator[cdk.CfnResource]:
        """Open the ports between file servers, and for those that call a node back."""
        for protocol, first, last in self._ports:
            outgoing = [("Servers", servers)]
            if protocol != "tcp":
                # The nodes' rule to everywhere covers TCP, and not EFA.
                outgoing.append(("Nodes", nodes))
            for name, group in outgoing:
                yield ec2.CfnSecurityGroupEgress(
                    self._scope,
                    f"{name}ToServers{first or ''}",
                    group_id=group,
                    destination_security_group_id=servers,
                    ip_protocol=protocol,
                    from_port=first,
                    to_port=last,
                    description="Lustre between file servers"
                    if group == servers
                    else "Lustre to the file servers",
                )
            for name, group in (("Servers", servers), ("Nodes", nodes)):
                yield ec2.CfnSecurityGroupIngress(
                    self._scope,
                    f"{name}FromServers{first or ''}",
                    group_id=group,
                    source_security_group_id=servers,
                    ip_protocol=protocol,
                    from_port=first,
                    to_port=last,
                    description="Lustre from the file servers",
                )
