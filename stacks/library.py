"""The constructs for CDK apps of others: plain arguments, checked as a cluster file is.

None stands for cluster.yaml's default. A wrong argument raises ConfigError, with every finding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from megatron_eks.config.cluster import Capacity, GithubSource, ImageBuild, Lustre
from megatron_eks.library import Arguments, Values
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import ROOT
from stacks.base import Place
from stacks.gpu_nodegroup import PlannedNodegroup
from stacks.images import PlannedImages
from stacks.launch_template import instance_tags
from stacks.network import NodeSecurityGroup, PlannedNetwork
from stacks.storage import PlannedStorage

__all__ = ["GpuNodegroup", "Images", "Network", "NodeSecurityGroup", "Storage"]


class GpuNodegroup(PlannedNodegroup):
    """A managed node group of GPU nodes with every EFA interface that the instance type has.

    It starts without nodes, and `meks scale` or EKS's API sizes it. Nodes have the taint
    `nvidia.com/gpu`, and the cluster needs the device plugins of the platform charts.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        node_role_arn: str,
        subnet_id: str,
        security_group_ids: Sequence[str],
        name: str,
        instance_type: str,
        availability_zone: str,
        max_nodes: int,
        kubernetes_version: str | None = None,
        capacity: Capacity | Values | None = None,
        root_volume_gib: int | None = None,
        ami_release: str | None = None,
        placement_group: Literal["auto"] | bool | None = None,
        labels: Mapping[str, str] | None = None,
        lustre_efa: bool = False,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a pool as cluster.yaml does, in a cluster, subnet and security groups.

        `subnet_id` is in `availability_zone`. `security_group_ids` are the cluster's own and one
        whose members reach each other on every protocol, such as NodeSecurityGroup: EFA needs it.
        `node_role_arn` has AWS's policies for worker nodes and for pulling images. `capacity` is
        `{"type": "reservation", "id": "cr-..."}` or another of cluster.yaml, by default on demand.
        `lustre_efa`: nodes reach FSx for Lustre over EFA. `tags`: of instances and their volumes.
        """
        pool = {
            "name": name,
            "instance_type": instance_type,
            "availability_zone": availability_zone,
            "max_nodes": max_nodes,
            "capacity": capacity,
            "root_volume_gib": root_volume_gib,
            "ami_release": ami_release,
            "placement_group": placement_group,
            "labels": labels,
        }
        lustre = {"efa": lustre_efa, "capacity_gib": 9600 if lustre_efa else None}
        plan = Arguments(
            place=_path(scope, construct_id),
            region=_region(scope),
            zones=[availability_zone],
            blocks={
                "kubernetes_version": kubernetes_version,
                "gpu_pools": [pool],
                "storage": {"lustre": lustre},
                "tags": tags,
            },
            names={
                ("gpu_pools", 0): "",
                ("availability_zones", 0): "availability_zone",
                ("region",): "availability_zone",
                ("kubernetes_version",): "kubernetes_version",
                ("storage", "lustre", "efa"): "lustre_efa",
                ("tags",): "tags",
            },
            texts={
                "cluster_name": cluster_name,
                "node_role_arn": node_role_arn,
                "subnet_id": subnet_id,
                "security_group_ids": security_group_ids,
            },
        ).plan()
        super().__init__(
            scope,
            construct_id,
            pool=plan.pools[0],
            cluster=cluster_name,
            role=node_role_arn,
            subnet=subnet_id,
            security_groups=security_group_ids,
            tags=instance_tags(name, plan.tags),
            setup=plan.node_setup,
        )


class Network(PlannedNetwork):
    """A VPC with public and private subnets, NAT, an S3 endpoint, flow logs, and nodes' group."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        availability_zones: Sequence[str],
        vpc_cidr: str | None = None,
        nat_gateways: Literal[0, 1, "per_zone"] | None = None,
        interface_endpoints: Sequence[str] | None = None,
    ) -> None:
        """Make the VPC for two to six zones, of which each has a subnet of both kinds.

        `name` begins the names of what is made. `interface_endpoints` are services: `ecr.api`.
        """
        network = {
            "vpc_cidr": vpc_cidr,
            "nat_gateways": nat_gateways,
            "interface_endpoints": interface_endpoints,
        }
        arguments = Arguments(
            place=_path(scope, construct_id),
            region=_region(scope),
            zones=availability_zones,
            blocks={"name": name, "availability_zones": availability_zones, "network": network},
            names={
                ("name",): "name",
                ("region",): "availability_zones",
                ("availability_zones",): "availability_zones",
                ("network",): "",
            },
            texts={},
        )
        super().__init__(scope, construct_id, plan=_here(arguments.plan(), scope))

    @property
    def vpc_id(self) -> str:
        """Id of the VPC."""
        return self.place.vpc_id

    @property
    def private_subnets(self) -> Mapping[str, str]:
        """Zone to subnet id: for nodes, file systems and the control plane."""
        return self.place.private_subnets

    @property
    def node_security_group_id(self) -> str:
        """The group whose members reach each other on every protocol, EFA's too."""
        return self.place.node_security_group


class Storage(PlannedStorage):
    """FSx for Lustre, a bucket, and the role with which pods of jobs read and write it.

    All of it stays when the stack goes, unless `retain` is False: then `cdk.RemovalPolicies` of the
    stack decides.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        cluster_name: str,
        vpc_id: str,
        private_subnets: Mapping[str, str],
        node_security_group_id: str,
        lustre: Lustre | Values | None = None,
        efs: bool | None = None,
        kms_key_arn: str | None = None,
        retain: bool | None = None,
    ) -> None:
        """Make file systems that nodes with the security group reach.

        `private_subnets` are zone to subnet id; the file system stands in the first zone, unless
        `lustre` names another. `lustre` has the keys of cluster.yaml's `storage.lustre`.
        `cluster_name` is the EKS cluster's: its pods alone get the role.
        """
        zones = list(private_subnets) if isinstance(private_subnets, Mapping) else []
        token = isinstance(kms_key_arn, str) and cdk.Token.is_unresolved(kms_key_arn)
        storage = {
            "lustre": lustre,
            "efs": efs,
            "kms_key_arn": None if token else kms_key_arn,
            "retain": retain,
        }
        arguments = Arguments(
            place=_path(scope, construct_id),
            region=_region(scope),
            zones=zones,
            blocks={"name": name, "storage": storage},
            names={
                ("name",): "name",
                ("region",): "private_subnets",
                ("availability_zones",): "private_subnets",
                ("storage",): "",
            },
            texts={
                "cluster_name": cluster_name,
                "vpc_id": vpc_id,
                "private_subnets": private_subnets,
                "node_security_group_id": node_security_group_id,
            },
        )
        plan = replace(_here(arguments.plan(), scope), eks_name=cluster_name)
        if token:
            plan = replace(plan, storage=replace(plan.storage, kms_key_arn=kms_key_arn))
        place = Place(vpc_id, private_subnets, node_security_group_id)
        super().__init__(scope, construct_id, plan=plan, place=place)

    def grant_read_write(self, grantee: iam.IGrantable) -> None:
        """Let somebody read and write the bucket, and use its key."""
        everything = [self.bucket.attr_arn, f"{self.bucket.attr_arn}/*"]
        objects = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
        keys = ["kms:Decrypt", "kms:GenerateDataKey"]
        iam.Grant.add_to_principal(
            grantee=grantee, actions=[*objects, "s3:ListBucket"], resource_arns=everything
        ).assert_success()
        iam.Grant.add_to_principal(
            grantee=grantee, actions=keys, resource_arns=[self.key_arn]
        ).assert_success()


class Images(PlannedImages):
    """ECR repositories of the training images, and the CodeBuild projects that build them."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        prefix: str | None = None,
        megatron: ImageBuild | Values | None = None,
        fsdp: ImageBuild | Values | None = None,
        source: GithubSource | Values | None = None,
    ) -> None:
        """Build the images of this release, or of a fork on GitHub.

        `prefix` goes before the names of the repositories. `megatron`, `fsdp` and `source` are
        those of cluster.yaml's `images`.
        """
        images = {"prefix": prefix, "megatron": megatron, "fsdp": fsdp, "source": source}
        arguments = Arguments(
            place=_path(scope, construct_id),
            region=_region(scope),
            blocks={"name": name, "images": images},
            names={("name",): "name", ("images",): ""},
            texts={},
        )
        plan = _here(arguments.plan(), scope)
        super().__init__(scope, construct_id, plan=plan, checkout=ROOT)


def _path(scope: Construct, construct_id: str) -> str:
    return f"{scope.node.path}/{construct_id}"


def _region(scope: Construct) -> str | None:
    region = cdk.Stack.of(scope).region
    return None if cdk.Token.is_unresolved(region) else region


def _here(plan: ClusterPlan, scope: Construct) -> ClusterPlan:
    """Return the plan for the region of the stack, which deployment alone may know."""
    return replace(plan, region=cdk.Stack.of(scope).region)
