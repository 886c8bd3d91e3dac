"""What pods of jobs may do in AWS: a role of their own, bound to their service account."""

from collections.abc import Iterator, Mapping, Sequence

from aws_cdk import aws_eks as eks
from constructs import Construct

from megatron_eks.config.outputs import team_key
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.data_access import PUSHED_DATA, BucketAccess
from megatron_eks.stacks.policies import (
    POD_IDENTITY,
    POD_IDENTITY_ACTIONS,
    Condition,
    Statement,
    acknowledge,
    partition,
    role,
    statement,
)

_READ = ("s3:GetObject",)
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
    pushed, own = ([f"{PUSHED_DATA}/*"] if first else []), own_prefix(plan)
    statements = [
        *(_reading(bucket, pushed) if pushed else ()),
        *(_keeping(bucket, own) if own else ()),
        statement(["kms:Decrypt", "kms:GenerateDataKey"], [key]),
        *(each for access in plan.data_access.buckets for each in _statements(access)),
        *([statement(TRACK, trackers)] if (trackers := plan.data_access.trackers) else []),
    ]
    made = role(
        scope,
        f"JobRole{'' if first else team_key(team)}",
        description=f"Pods of jobs of {plan.name}{'' if first else f', team {team}'}",
        service=POD_IDENTITY,
        actions=POD_IDENTITY_ACTIONS,
        statements=statements,
        condition=_only_jobs(plan),
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


def own_prefix(plan: ClusterPlan) -> list[str]:
    """Return what is a team's own in the cluster's bucket, as a pattern of keys."""
    team = next((each for each in plan.teams if each.name == plan.platform.team), None)
    return [f"{team.prefix}/*"] if team else []


def _only_jobs(plan: ClusterPlan) -> Condition:
    """Let nobody else take the role, whatever associations somebody makes."""
    tags = {
        "eks-cluster-name": plan.eks_name,
        "kubernetes-namespace": plan.platform.namespace,
        "kubernetes-service-account": plan.platform.service_account,
    }
    return {"StringEquals": {f"aws:RequestTag/{name}": value for name, value in tags.items()}}


def _statements(access: BucketAccess) -> Iterator[Statement]:
    bucket = f"arn:{partition()}:s3:::{access.bucket}"
    if access.write:
        yield from _keeping(bucket, access.write)
    if access.read:
        yield from _reading(bucket, access.read)


def _keeping(bucket: str, patterns: Sequence[str]) -> Iterator[Statement]:
    yield statement(KEEP, [f"{bucket}/{pattern}" for pattern in patterns])
    yield _listing(bucket, patterns)


def _reading(bucket: str, patterns: Sequence[str]) -> Iterator[Statement]:
    yield statement(_READ, [f"{bucket}/{pattern}" for pattern in patterns])
    yield _listing(bucket, patterns)


def _listing(bucket: str, patterns: Sequence[str]) -> Statement:
    """Allow to list below prefixes alone; a request without one would show every name."""
    limit: Condition = {"StringLike": {"s3:prefix": list(patterns)}}
    return statement(["s3:ListBucket"], [bucket], condition=limit)
