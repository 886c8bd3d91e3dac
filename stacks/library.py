"""The constructs for CDK apps of others: plain arguments, checked as a cluster file is.

What is left out has cluster.yaml's default. A wrong argument raises ConfigError with every finding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Required, TypedDict, Unpack

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from megatron_eks.config.cluster import Capacity, ClusterConfig
from megatron_eks.config.images import GithubSource, ImageBuild
from megatron_eks.config.storage import Lustre
from megatron_eks.library import Values, plan_part
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import ROOT
from megatron_eks.stacks.addons import PlannedAddons
from megatron_eks.stacks.base import Place
from megatron_eks.stacks.gpu_nodegroup import PlannedNodegroup
from megatron_eks.stacks.images import PlannedImages
from megatron_eks.stacks.launch_template import instance_tags
from megatron_eks.stacks.network import NodeSecurityGroup, PlannedNetwork
from megatron_eks.stacks.pod_roles import KEEP
from megatron_eks.stacks.storage import PlannedStorage

__all__ = ["Addons", "GpuNodegroup", "Images", "Network", "NodeSecurityGroup", "Storage"]

VERSION: str = ClusterConfig.model_fields["kubernetes_version"].default


class PoolKeys(TypedDict, total=False):
    """A pool of cluster.yaml."""

    name: Required[str]
    instance_type: Required[str]
    """An EC2 GPU type, such as p5.48xlarge."""
    availability_zone: Required[str]
    """Of the subnet: EFA traffic cannot leave a zone."""
    max_nodes: Required[int]
    capacity: Capacity | Values
    """Such as `{"type": "reservation", "id": "cr-..."}`; by default on demand."""
    root_volume_gib: int
    ami_release: str
    placement_group: Literal["auto"] | bool
    labels: Mapping[str, str]


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
        kubernetes_version: str = VERSION,
        lustre_efa: bool = False,
        tags: Mapping[str, str] | None = None,
        **pool: Unpack[PoolKeys],
    ) -> None:
        """Make a pool in a cluster, one subnet and security groups.

        The groups are the cluster's own and, for EFA, one whose members reach each other on every
        protocol, such as NodeSecurityGroup. The role has AWS's policies for worker nodes and for
        pulling images. `lustre_efa`: they reach FSx for Lustre over EFA. Tags are the instances'.
        """
        plan = _plan(
            scope,
            construct_id,
            {
                "kubernetes_version": kubernetes_version,
                "gpu_pools": [pool],
                "storage": {"lustre": {"efa": lustre_efa, "capacity_gib": 9600}},
                "tags": tags or {},
            },
            names={
                "gpu_pools[0].": "",
                "availability_zones[0]": "availability_zone",
                "region": "availability_zone",
                "storage.lustre.efa": "lustre_efa",
            },
            zones=[pool.get("availability_zone", "")],
            cluster_name=cluster_name,
            node_role_arn=node_role_arn,
            subnet_id=subnet_id,
            security_group_ids=security_group_ids,
        )
        super().__init__(
            scope,
            construct_id,
            pool=plan.pools[0],
            cluster=cluster_name,
            role=node_role_arn,
            subnet=subnet_id,
            security_groups=security_group_ids,
            tags=instance_tags(plan.pools[0].name, plan.tags),
            egress=plan.platform.egress,
        )


class Addons(PlannedAddons):
    """The EKS add-ons that nodes and jobs need, each with its role.

    A node group that `precede` is called with waits for network and names of its nodes; add-ons
    that run on nodes wait for the group that `follow` is called with.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_name: str,
        kubernetes_version: str = VERSION,
        efs: bool = False,
    ) -> None:
        """Pin them to this package's releases; `efs` adds the driver for Storage's EFS."""
        blocks = {"kubernetes_version": kubernetes_version, "storage": {"efs": efs}}
        names = {"storage.": ""}
        plan = _plan(scope, construct_id, blocks, names=names, cluster_name=cluster_name)
        super().__init__(scope, construct_id, plans=plan.addons, cluster=cluster_name)


class NetworkKeys(TypedDict, total=False):
    """The network of cluster.yaml, if its VPC is made."""

    vpc_cidr: str
    nat_gateways: Literal[0, 1, "per_zone"]
    interface_endpoints: Sequence[str]
    """Services, such as `ecr.api`; S3 always has an endpoint."""


class Network(PlannedNetwork):
    """A VPC with public and private subnets, NAT, an S3 endpoint, flow logs, and nodes' group."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        availability_zones: Sequence[str],
        **network: Unpack[NetworkKeys],
    ) -> None:
        """Make it in two to six zones; `name` begins the names of what is made."""
        blocks = {"name": name, "availability_zones": availability_zones, "network": network}
        names = {"network.": ""}
        plan = _plan(scope, construct_id, blocks, names=names, zones=availability_zones)
        super().__init__(scope, construct_id, plan=plan)


class StorageKeys(TypedDict, total=False):
    """The storage of cluster.yaml."""

    lustre: Lustre | Values
    """Such as `{"capacity_gib": 4800}`; it stands in the first zone unless it names another."""
    efs: bool
    kms_key_arn: str
    retain: bool
    """Whether all of it stays when the stack goes, which is the default."""


class Storage(PlannedStorage):
    """FSx for Lustre, a bucket, and the role with which pods of jobs read and write it."""

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
        **storage: Unpack[StorageKeys],
    ) -> None:
        """Make file systems that nodes with the security group reach.

        `private_subnets` are ids by zone. `cluster_name` is EKS's: its pods alone get the role.
        """
        key = storage.get("kms_key_arn")
        if isinstance(key, str) and cdk.Token.is_unresolved(key):
            del storage["kms_key_arn"]  # a key of this app: there is nothing to check yet
        plan = _plan(
            scope,
            construct_id,
            {"name": name, "storage": storage},
            names={
                "storage.": "",
                "availability_zones": "private_subnets",
                "region": "private_subnets",
            },
            zones=list(private_subnets) if isinstance(private_subnets, Mapping) else (),
            cluster_name=cluster_name,
            vpc_id=vpc_id,
            private_subnets=private_subnets,
            node_security_group_id=node_security_group_id,
        )
        place = Place(vpc_id, private_subnets, node_security_group_id)
        planned = replace(plan.storage, kms_key_arn=key)
        plan = replace(plan, eks_name=cluster_name, storage=planned)
        super().__init__(scope, construct_id, plan=plan, place=place)

    def grant_read_write(self, grantee: iam.IGrantable) -> None:
        """Let somebody read and write the bucket, with its key."""
        arn = self.bucket.attr_arn
        for actions, resources in (
            (["s3:ListBucket"], [arn]),
            (list(KEEP), [f"{arn}/*"]),
            (["kms:Decrypt", "kms:GenerateDataKey"], [self.key_arn]),
        ):
            iam.Grant.add_to_principal(
                grantee=grantee, actions=actions, resource_arns=resources
            ).assert_success()


class ImagesKeys(TypedDict, total=False):
    """The images of cluster.yaml."""

    prefix: str
    """Before the names of the repositories."""
    megatron: ImageBuild | Values
    fsdp: ImageBuild | Values
    source: GithubSource | Values
    """Such as `{"type": "github", ...}`: a fork; by default the files of this package."""


class Images(PlannedImages):
    """ECR repositories of the training images, and the CodeBuild projects that build them."""

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, **images: Unpack[ImagesKeys]
    ) -> None:
        blocks = {"name": name, "images": images}
        plan = _plan(scope, construct_id, blocks, names={"images.": ""})
        super().__init__(scope, construct_id, plan=plan, checkout=ROOT)


def _plan(
    scope: Construct,
    construct_id: str,
    blocks: Values,
    *,
    names: Mapping[str, str],
    zones: object = (),
    **passed: object,
) -> ClusterPlan:
    """Return the plan in the region of the stack, which deployment alone may know."""
    region = cdk.Stack.of(scope).region
    # The blocks' own keys are arguments' names.
    own = {key: key for key in blocks if key not in {"gpu_pools", "network", "storage", "images"}}
    plan = plan_part(
        f"{scope.node.path}/{construct_id}",
        blocks,
        names={"region": "availability_zones", **own, **names},
        passed=passed,
        zones=zones,
        region=None if cdk.Token.is_unresolved(region) else region,
    )
    return replace(plan, region=region)
