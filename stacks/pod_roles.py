"""What pods may do in AWS, of jobs and of what sizes pools: roles, bound to service accounts."""

from collections.abc import Iterator, Mapping, Sequence

from aws_cdk import aws_eks as eks
from constructs import Construct

from megatron_eks.config.outputs import team_key
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.data_access import PUSHED_DATA, BucketAccess
from megatron_eks.plan.cluster.queues import POOL_SCALER
from megatron_eks.stacks.policies import (
    POD_IDENTITY,
    Condition,
    Statement,
    account,
    acknowledge,
    only_pods,
    partition,
    role,
    statement,
)

_READ = ("s3:GetObject",)
_SEE = ("autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities")
# Retention removes old checkpoints; nothing else of a job deletes.
KEEP = ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject")
"""What somebody needs who keeps checkpoints."""

_MLFLOW = "CreateExperiment CreateRun FinalizeLoggedModel GetExperiment GetExperimentByName "
_MLFLOW += "GetLoggedModel GetRun LogBatch LogInputs LogLoggedModelParams LogMetric LogModel "
_MLFLOW += "LogOutputs LogParam SearchExperiments SearchRuns SetExperimentTag SetLoggedModelTags "
_MLFLOW += "SetTag UpdateRun"
# To log runs and read them back; nothing of a job deletes. An MLflow App asks for the first too.
TRACK = ("sagemaker:CallMlflowAppApi", *(f"sagemaker-mlflow:{each}" for each in _MLFLOW.split()))
"""What a job needs that logs to SageMaker's MLflow (Service Authorization Reference)."""


def job_role(scope: Construct, plan: ClusterPlan, *, bucket: str, key: str) -> str:
    """Make the role for what was pushed for jobs and what they name, and return its ARN."""
    team, first = plan.platform.team, plan.platform.first
    pushed = [f"{PUSHED_DATA}/*"] if first else []
    own = [f"{each.prefix}/*" for each in plan.teams if each.name == team]
    statements = [
        *_allowing(_READ, bucket, pushed),
        *_allowing(KEEP, bucket, own),
        statement(["kms:Decrypt", "kms:GenerateDataKey"], [key]),
        *(each for access in plan.data_access.buckets for each in _statements(access)),
        *([statement(TRACK, trackers)] if (trackers := plan.data_access.trackers) else []),
    ]
    made = role(
        scope,
        f"JobRole{'' if first else team_key(team)}",
        description=f"Pods of jobs of {plan.name}{'' if first else f', team {team}'}",
        service=POD_IDENTITY,
        statements=statements,
        condition=only_pods(plan.eks_name, plan.platform.namespace, plan.platform.service_account),
    )
    acknowledge(
        made,
        "keys of objects are data; buckets and prefixes are named",
        *(
            f"AwsSolutions-IAM5[Resource::{resource}]"
            for resource in (
                *(f"<Bucket.Arn>/{each}" for each in (*pushed, *own)),
                *(
                    f"arn:<AWS::Partition>:s3:::{access.bucket}/{pattern}"
                    for access in plan.data_access.buckets
                    for pattern in (*access.read, *access.write)
                    if "*" in pattern
                ),
            )
        ),
    )
    return made.attr_arn


def associate(
    scope: Construct, plan: ClusterPlan, *, cluster: str, roles: Mapping[str, str]
) -> None:
    """Give the pods of jobs in an EKS cluster the role of their namespace."""
    for each in plan.spaces:
        platform = each.platform
        eks.CfnPodIdentityAssociation(
            scope,
            f"JobRoleAssociation{'' if platform.first else team_key(platform.team)}",
            cluster_name=cluster,
            namespace=platform.namespace,
            service_account=platform.service_account,
            role_arn=roles[platform.namespace],
        )


def _statements(access: BucketAccess) -> Iterator[Statement]:
    bucket = f"arn:{partition()}:s3:::{access.bucket}"
    yield from _allowing(KEEP, bucket, access.write)
    yield from _allowing(_READ, bucket, access.read)


def _allowing(actions: Sequence[str], bucket: str, patterns: Sequence[str]) -> Iterator[Statement]:
    """Allow actions below prefixes, and to list there: without one a list shows every name."""
    if patterns:
        yield statement(actions, [f"{bucket}/{pattern}" for pattern in patterns])
        limit: Condition = {"StringLike": {"s3:prefix": list(patterns)}}
        yield statement(["s3:ListBucket"], [bucket], condition=limit)


def pool_scaler(scope: Construct, plan: ClusterPlan, *, cluster: str) -> None:
    """Give the pod a role for those node groups and their scaling groups, and for no other."""
    space, pools = plan.platform.system_namespace, [each.name for each in plan.scaled_pools]
    groups = [f"eks:{{}}:nodegroup/{plan.eks_name}/{pool}/*" for pool in pools]
    # EKS chooses the names of the scaling groups, and puts these tags on them.
    scaling = "autoscaling:{}:autoScalingGroup:*:autoScalingGroupName/*"
    place, shown = (f"{plan.region}:{each}" for each in (account(), "<AWS::AccountId>"))
    arns = [f"arn:{partition()}:{each.format(place)}" for each in (*groups, scaling)]
    ours: Condition = {
        "StringEquals": {
            "aws:ResourceTag/eks:cluster-name": plan.eks_name,
            "aws:ResourceTag/eks:nodegroup-name": pools,
        }
    }
    made = role(
        scope,
        "PoolScalerRole",
        description=f"Sizes of the pools of {plan.name} that jobs in queues decide",
        service=POD_IDENTITY,
        condition=only_pods(plan.eks_name, space, POOL_SCALER),
        statements=[
            statement(["eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"], arns[:-1]),
            statement(
                ["autoscaling:TerminateInstanceInAutoScalingGroup"], arns[-1:], condition=ours
            ),
            # They take no resource (Service Authorization Reference).
            statement(_SEE, ["*"]),
        ],
    )
    acknowledge(
        made,
        "EKS chooses how these names end, tags say whose groups they are, and lists take no name",
        "AwsSolutions-IAM5[Resource::*]",
        *(
            f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:{each.format(shown)}]"
            for each in (*groups, scaling)
        ),
    )
    eks.CfnPodIdentityAssociation(
        scope,
        "PoolScalerRoleAssociation",
        cluster_name=cluster,
        namespace=space,
        service_account=POOL_SCALER,
        role_arn=made.attr_arn,
    )
