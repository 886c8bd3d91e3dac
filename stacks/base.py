"""What every stack has in common: region, zones, tags, and how keys and logs are made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.network import NetworkPlan
from megatron_eks.stacks.policies import account, document, partition, statement


@dataclass(frozen=True)
class Place:
    """A VPC, made by the Network stack or brought along."""

    vpc_id: str
    private_subnets: Mapping[str, str]
    """Zone to subnet id; nodes, file systems and control plane live here."""
    node_security_group: str
    """Every node carries it; members reach each other on every port and over EFA."""


def existing_place(network: NetworkPlan) -> Place | None:
    """Return the place of a cluster that exists; None where nobody named it."""
    existing = network.existing
    if existing is None or existing.node_security_group_id is None:
        return None
    return Place(existing.vpc_id, existing.private_subnets, existing.node_security_group_id)


# EKS refuses an update that changes a node group's tags together with its launch template
# (aws-cdk#16644). The template tags the instances, so a new tag changes the template alone.
# A placement group with another tag is another placement group, and its nodes would be too
# (CloudFormation User Guide, AWS::EC2::PlacementGroup, Tags).
_UNTAGGED = ["AWS::EC2::PlacementGroup", "AWS::EKS::Nodegroup"]

_KEEP_LOGS_DAYS = 90


class BaseStack(cdk.Stack):
    """A stack of one cluster, in the plan's region and whatever account deploys it."""

    def __init__(self, scope: Construct, plan: ClusterPlan, part: str, description: str) -> None:
        self._zones = list(plan.availability_zones)
        super().__init__(
            scope,
            plan.stack(part),
            description=f"{description} of the {plan.name} cluster",
            env=cdk.Environment(region=plan.region),
        )
        for key, value in plan.tags.items():
            cdk.Tags.of(self).add(key, value, exclude_resource_types=_UNTAGGED)
        if plan.permissions_boundary_arn is not None:
            boundary = iam.ManagedPolicy.from_managed_policy_arn(
                self, "PermissionsBoundary", plan.permissions_boundary_arn
            )
            iam.PermissionsBoundary.of(self).apply(boundary)

    @property
    def availability_zones(self) -> list[str]:
        """The plan's zones: CDK would ask an AWS account for them."""
        return self._zones


def encryption_key(
    scope: Construct,
    construct_id: str,
    *,
    region: str,
    description: str,
    removal: cdk.RemovalPolicy | None = None,
    log_groups: str | None = None,
    publishers: Sequence[str] = (),
) -> str:
    """Make a rotated key and return its ARN; it serves the log groups of that name too.

    With publishers it encrypts a topic that these services write to.
    """
    root = f"arn:{partition()}:iam::{account()}:root"
    # IAM policies decide who uses the key (KMS Developer Guide, "Default key policy").
    statements = [statement(["kms:*"], ["*"], principal={"AWS": root})]
    if log_groups is not None:
        # CloudWatch Logs User Guide, "Encrypt log data in CloudWatch Logs using KMS", step 2.
        groups = f"arn:{partition()}:logs:{region}:{account()}:log-group:{log_groups}"
        statements.append(
            statement(
                [
                    "kms:Decrypt*",
                    "kms:Describe*",
                    "kms:Encrypt*",
                    "kms:GenerateDataKey*",
                    "kms:ReEncrypt*",
                ],
                ["*"],
                principal={"Service": f"logs.{region}.{cdk.Aws.URL_SUFFIX}"},
                condition={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
            )
        )
    if publishers:
        # In the form of Amazon SNS Developer Guide, "Encrypting published messages", for services.
        statements.append(
            statement(
                ["kms:Decrypt", "kms:GenerateDataKey*"],
                ["*"],
                principal={"Service": list(publishers)},
            )
        )
    key = kms.CfnKey(
        scope,
        construct_id,
        description=description,
        enable_key_rotation=True,
        key_policy=document(statements),
    )
    if removal is not None:
        key.apply_removal_policy(removal)
    return key.attr_arn


def log_group(scope: Construct, construct_id: str, *, name: str, key: str) -> logs.CfnLogGroup:
    """Make an encrypted log group, deleted with its stack so that the stack can be made again."""
    return logs.CfnLogGroup(
        scope,
        construct_id,
        log_group_name=name,
        kms_key_id=key,
        retention_in_days=_KEEP_LOGS_DAYS,
    )
