"""What commands and stacks may have to do in an account, by the resource that they do it to.

Source: Service Authorization Reference, and the requests that commands in `megatron_eks/ops/aws`
and CloudFormation's resource types send; read 2026-11. `{...}` stands for what a cluster has.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

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


# Who | what for | resource | stack, and below it the actions. Of a resource in the cluster's region
# and account stand the service and the rest.
_TABLE = """
caller | meks deploy | cloudformation:stack/{name}-Storage/*
 cloudformation:CreateChangeSet cloudformation:DeleteStack cloudformation:DescribeChangeSet
 cloudformation:DescribeStackEvents cloudformation:DescribeStackResources
 cloudformation:DescribeStacks cloudformation:ExecuteChangeSet cloudformation:GetTemplate
 cloudformation:ListStackResources
caller | meks deploy | iam:role/cdk-hnb659fds-deploy-role-{account}-{region}
 sts:AssumeRole
caller | meks scale | eks:nodegroup/{eks}/{pool}/*
 eks:DescribeNodegroup eks:UpdateNodegroupConfig
caller | meks kubeconfig | eks:cluster/{eks}
 eks:DescribeCluster eks:ListNodegroups
caller | meks scale | *
 autoscaling:DescribeScalingActivities ec2:DescribeCapacityReservations ec2:DescribeInstances
caller | meks outputs | ecr:repository/{repository}
 ecr:DescribeImages
caller | meks build | codebuild:project/{name}-megatron
 codebuild:BatchGetBuilds codebuild:BatchGetProjects codebuild:ListBuildsForProject
 codebuild:StartBuild
bootstrap | cdk bootstrap | cloudformation:stack/CDKToolkit/*
 cloudformation:CreateChangeSet cloudformation:DescribeStacks cloudformation:ExecuteChangeSet
bootstrap | cdk bootstrap | iam:role/cdk-hnb659fds-cfn-exec-role-{account}-{region}
 iam:AttachRolePolicy iam:CreateRole iam:PassRole iam:PutRolePolicy
bootstrap | cdk bootstrap | arn:{partition}:s3:::cdk-hnb659fds-assets-{account}-{region}
 s3:CreateBucket s3:PutBucketPolicy s3:PutEncryptionConfiguration
bootstrap | cdk bootstrap | ssm:parameter/cdk-bootstrap/hnb659fds/version
 ssm:GetParameters ssm:PutParameter
cloudformation | the network | * | Network
 ec2:AllocateAddress ec2:AuthorizeSecurityGroupIngress ec2:CreateFlowLogs ec2:CreateInternetGateway
 ec2:CreateNatGateway ec2:CreateRouteTable ec2:CreateSecurityGroup ec2:CreateSubnet ec2:CreateVpc
 ec2:CreateVpcEndpoint
cloudformation | the file system, the data bucket and their key | * | Storage
 fsx:CreateFileSystem fsx:TagResource kms:CreateKey kms:PutKeyPolicy s3:CreateBucket
 s3:PutBucketPolicy s3:PutEncryptionConfiguration
cloudformation | repositories and builds | * | Images
 codebuild:CreateProject ecr:CreateRepository logs:CreateLogGroup
cloudformation | roles of nodes, add-ons and jobs | iam:role/{name}-node
 iam:AttachRolePolicy iam:CreateRole iam:PassRole iam:PutRolePolicy
cloudformation | the cluster | * | Cluster
 ec2:CreateLaunchTemplate ec2:CreatePlacementGroup ec2:RunInstances eks:CreateAccessEntry
 eks:CreateAddon eks:CreateCluster eks:CreateNodegroup eks:CreatePodIdentityAssociation
 eks:TagResource kms:CreateGrant kms:CreateKey
"""


def _read() -> Iterator[Need]:
    for entry in re.split(r"\n(?! )", _TABLE.strip()):
        head, _, actions = entry.partition("\n")
        who, what_for, resource, *stack = head.split(" | ")
        if not resource.startswith(("arn:", "*")):
            service, _, rest = resource.partition(":")
            region = "" if service == "iam" else "{region}"
            resource = f"arn:{{partition}}:{service}:{region}:{{account}}:{rest}"
        principal = next(each for each in get_args(Principal) if each == who)
        yield Need(principal, what_for, resource, tuple(actions.split()), next(iter(stack), None))


NEEDS = tuple(_read())
