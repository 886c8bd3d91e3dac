"""IAM documents and roles.

CDK's own roles, keys and buckets load modules that cost a tenth of a second at each synthesis; a
policy is a JSON document in both forms.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct

from megatron_eks.plan.cluster.data_access import POLICY_NAME

# A part of a policy document: `iam.CfnRole` takes it as it stands.
Statement = dict[str, object]
Document = dict[str, object]
Condition = dict[str, dict[str, object]]

POD_IDENTITY = "pods.eks.amazonaws.com"


@cache
def account() -> str:
    """Return what stands for the account; the CDK would ask Node for it each time."""
    return cdk.Aws.ACCOUNT_ID


@cache
def partition() -> str:
    """Return what stands for the partition, as above."""
    return cdk.Aws.PARTITION


def statement(
    actions: Sequence[str],
    resources: Sequence[str],
    *,
    effect: str = "Allow",
    principal: str | Mapping[str, str | list[str]] | None = None,
    condition: Condition | None = None,
) -> Statement:
    """Write one statement of a policy."""
    written: Statement = {"Effect": effect, "Action": list(actions), "Resource": list(resources)}
    if principal is not None:
        written["Principal"] = principal
    if condition is not None:
        written["Condition"] = condition
    return written


def document(statements: Sequence[Statement]) -> Document:
    """Write a policy."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def same_account() -> Condition:
    """Let a service act for this account only."""
    return {"StringEquals": {"aws:SourceAccount": account()}}


def only_pods(cluster: str, namespace: str, service_account: str) -> Condition:
    """Let no other pod take a role, whatever associations somebody makes."""
    tags = {
        "eks-cluster-name": cluster,
        "kubernetes-namespace": namespace,
        "kubernetes-service-account": service_account,
    }
    return {"StringEquals": {f"aws:RequestTag/{name}": value for name, value in tags.items()}}


def role(
    scope: Construct,
    construct_id: str,
    *,
    description: str,
    service: str,
    condition: Condition | None = None,
    statements: Sequence[Statement] = (),
    managed: Sequence[str] = (),
    reason: str = "",
) -> iam.CfnRole:
    """Make a role for a service, with permissions of its own, or with policies that AWS writes.

    For the latter there is a reason.
    """
    # Inside the role: what uses it then cannot start before it may do its work.
    own = iam.CfnRole.PolicyProperty(policy_name=POLICY_NAME, policy_document=document(statements))
    arns = [f"arn:{partition()}:iam::aws:policy/{name}" for name in managed]
    made = iam.CfnRole(
        scope,
        construct_id,
        description=description,
        assume_role_policy_document=_trust(service, condition),
        policies=[own] if statements else None,
        managed_policy_arns=arns or None,
    )
    if managed:
        finding = "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{}]"
        acknowledge(made, reason, *map(finding.format, managed))
    return made


def _trust(service: str, condition: Condition | None) -> Document:
    # EKS User Guide, "Create IAM role with trust policy required by EKS Pod Identity".
    actions = ["sts:AssumeRole", *(["sts:TagSession"] if service == POD_IDENTITY else [])]
    trust: Statement = {"Effect": "Allow", "Action": actions, "Principal": {"Service": service}}
    if condition is not None:
        trust["Condition"] = condition
    return document([trust])


def acknowledge(construct: IConstruct, reason: str, *rules: str) -> None:
    """Accept what rules report about a construct and everything in it."""
    cdk.Validations.of(construct).acknowledge(
        *(cdk.Acknowledgment(id=rule, reason=reason) for rule in rules)
    )
