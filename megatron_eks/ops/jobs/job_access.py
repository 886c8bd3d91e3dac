"""What the deployed role of the jobs does not allow: what newer job files name in AWS."""

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.client import BaseClient

from megatron_eks.plan.cluster.data_access import POLICY_NAME, DataAccess, split

REMEDY = "run: meks deploy Storage, which gives the role what job files in jobs/ name"


def lacking(role: str, access: DataAccess, iam: BaseClient) -> list[str]:
    """Return URIs and trackers that a role, by its ARN, may not use as jobs would.

    Raises what boto3 raises where nobody may look, or the role is in another account.
    """
    if not access.is_named:
        return []
    name = role.rpartition("/")[2]
    found = iam.get_role_policy(RoleName=name, PolicyName=POLICY_NAME)["PolicyDocument"]
    statements: Sequence[Mapping[str, Any]] = found["Statement"]
    missing = []
    for grant in access.grants:
        # Buckets with patterns of keys, as the Storage stack writes them: lists of both.
        allowed = [
            resource.partition(":::")[2]
            for each in statements
            if grant.action in each["Action"]
            for resource in each["Resource"]
        ]
        wanted = (f"{split(grant.uri)[0]}/{pattern}" for pattern in grant.patterns)
        if not all(
            any(key == each or (each[-1:] == "*" and key.startswith(each[:-1])) for each in allowed)
            for key in wanted
        ):
            missing.append(grant.uri)
    named = {resource for each in statements for resource in each["Resource"]}
    return [*missing, *(arn for arn in access.trackers if arn not in named)]
