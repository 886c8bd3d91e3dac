"""What commands and stacks may have to do in an account, by the resource that they do it to.

Source: Service Authorization Reference, and the requests that commands in `megatron_eks/ops/aws`
and CloudFormation's resource types send; read 2026-11. `{...}` stands for what a cluster has.
"""

from dataclasses import dataclass
from typing import Literal

Principal = Literal["caller", "bootstrap", "cloudformation"]


@dataclass(frozen=True)
class Need:
    """Actions on one kind of resource."""

    principal: Principal
    """Who does it: whoever calls `meks`, whoever bootstraps the CDK, the role of CloudFormation."""
    what_for: str
    resource: str
    """An ARN whose last parts are those of a cluster, or `*` where AWS knows no narrower one."""
    actions: tuple[str, ...]
    stack: str | None = None
    """The stack that consists of it; None: whatever there is."""


def _of(service: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{service}:{name}" for name in names)


_ARN = "arn:{partition}"

NEEDS: tuple[Need, ...] = (
    Need(
        "caller",
        "meks deploy",
        f"{_ARN}:cloudformation:{{region}}:{{account}}:stack/{{name}}-Storage/*",
        _of(
            "cloudformation",
            *("CreateChangeSet", "DeleteStack", "DescribeChangeSet", "DescribeStackEvents"),
            *("DescribeStacks", "ExecuteChangeSet", "GetTemplate", "ListStackResources"),
        ),
    ),
    Need(
        "caller",
        "meks deploy",
        f"{_ARN}:iam::{{account}}:role/cdk-hnb659fds-deploy-role-{{account}}-{{region}}",
        ("sts:AssumeRole",),
    ),
    Need(
        "caller",
        "meks scale",
        f"{_ARN}:eks:{{region}}:{{account}}:nodegroup/{{eks}}/{{pool}}/*",
        _of("eks", "DescribeNodegroup", "UpdateNodegroupConfig"),
    ),
    Need(
        "caller",
        "meks kubeconfig",
        f"{_ARN}:eks:{{region}}:{{account}}:cluster/{{eks}}",
        _of("eks", "DescribeCluster", "ListNodegroups"),
    ),
    Need(
        "caller",
        "meks scale",
        "*",
        (
            "autoscaling:DescribeScalingActivities",
            *_of("ec2", "DescribeCapacityReservations", "DescribeInstances"),
        ),
    ),
    Need(
        "caller",
        "meks outputs",
        f"{_ARN}:ecr:{{region}}:{{account}}:repository/{{repository}}",
        ("ecr:DescribeImages",),
    ),
    Need(
        "caller",
        "meks build",
        f"{_ARN}:codebuild:{{region}}:{{account}}:project/{{name}}-megatron",
        _of(
            "codebuild",
            *("BatchGetBuilds", "BatchGetProjects", "ListBuildsForProject", "StartBuild"),
        ),
    ),
    Need(
        "bootstrap",
        "cdk bootstrap",
        f"{_ARN}:cloudformation:{{region}}:{{account}}:stack/CDKToolkit/*",
        _of("cloudformation", "CreateChangeSet", "DescribeStacks", "ExecuteChangeSet"),
    ),
    Need(
        "bootstrap",
        "cdk bootstrap",
        f"{_ARN}:iam::{{account}}:role/cdk-hnb659fds-cfn-exec-role-{{account}}-{{region}}",
        _of("iam", "AttachRolePolicy", "CreateRole", "PassRole", "PutRolePolicy"),
    ),
    Need(
        "bootstrap",
        "cdk bootstrap",
        f"{_ARN}:s3:::cdk-hnb659fds-assets-{{account}}-{{region}}",
        _of("s3", "CreateBucket", "PutBucketPolicy", "PutEncryptionConfiguration"),
    ),
    Need(
        "bootstrap",
        "cdk bootstrap",
        f"{_ARN}:ssm:{{region}}:{{account}}:parameter/cdk-bootstrap/hnb659fds/version",
        _of("ssm", "GetParameters", "PutParameter"),
    ),
    Need(
        "cloudformation",
        "the network",
        "*",
        _of(
            "ec2",
            *("AllocateAddress", "AuthorizeSecurityGroupIngress", "CreateFlowLogs"),
            *("CreateInternetGateway", "CreateNatGateway", "CreateRouteTable"),
            *("CreateSecurityGroup", "CreateSubnet", "CreateVpc", "CreateVpcEndpoint"),
        ),
        "Network",
    ),
    Need(
        "cloudformation",
        "the file system, the data bucket and their key",
        "*",
        (
            *_of("fsx", "CreateFileSystem", "TagResource"),
            *_of("kms", "CreateKey", "PutKeyPolicy"),
            *_of("s3", "CreateBucket", "PutBucketPolicy", "PutEncryptionConfiguration"),
        ),
        "Storage",
    ),
    Need(
        "cloudformation",
        "repositories and builds",
        "*",
        ("codebuild:CreateProject", "ecr:CreateRepository", "logs:CreateLogGroup"),
        "Images",
    ),
    Need(
        "cloudformation",
        "roles of nodes, add-ons and jobs",
        f"{_ARN}:iam::{{account}}:role/{{name}}-node",
        _of("iam", "AttachRolePolicy", "CreateRole", "PassRole", "PutRolePolicy"),
    ),
    Need(
        "cloudformation",
        "the cluster",
        "*",
        (
            *_of("ec2", "CreateLaunchTemplate", "CreatePlacementGroup", "RunInstances"),
            *_of("eks", "CreateAccessEntry", "CreateAddon", "CreateCluster", "CreateNodegroup"),
            *_of("eks", "CreatePodIdentityAssociation", "TagResource"),
            *_of("kms", "CreateGrant", "CreateKey"),
        ),
        "Cluster",
    ),
)
