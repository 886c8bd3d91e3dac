"""What job files name in S3, held against the policy of the role that is deployed."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from megatron_eks.ops.jobs.submission import lacking, out_of_reach
from megatron_eks.plan.cluster.data_access import DataAccess
from tests.ops.aws.fakes import ACCOUNT, console, said

NAME = "a-JobRole"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/{NAME}"


@pytest.fixture
def iam(aws):
    """Return IAM with a role as the Storage stack makes it."""

    def allow(actions, *resources):
        arns = [f"arn:aws:s3:::{each}" for each in resources]
        return {"Effect": "Allow", "Action": actions, "Resource": arns}

    statements = [
        allow(["s3:GetObject"], "models/llama", "models/llama/*"),
        allow(["s3:GetObject", "s3:PutObject"], "models/runs/cpt/*"),
        allow(["s3:ListBucket"], "models"),
    ]
    document = {"Version": "2012-10-17", "Statement": statements}
    iam = aws.client("iam")
    iam.create_role(RoleName=NAME, AssumeRolePolicyDocument="{}")
    iam.put_role_policy(
        RoleName=NAME, PolicyName="Permissions", PolicyDocument=json.dumps(document)
    )
    yield iam
    iam.delete_role_policy(RoleName=NAME, PolicyName="Permissions")
    iam.delete_role(RoleName=NAME)


def test_a_prefix_is_there_or_named(iam):
    """As IAM would judge it: a prefix holds what is below it, and no longer name."""
    found = {uri: lacking(ROLE, DataAccess((uri,), (), ()), iam) == [] for uri in READS}
    assert found == READS
    found = {uri: lacking(ROLE, DataAccess((), (uri,), ()), iam) == [] for uri in WRITES}
    assert found == WRITES


READS = {
    "s3://models/llama": True,
    "s3://models/llama/base": True,
    "s3://models/runs/cpt/": True,
    "s3://models/llama-2": False,
    "s3://models": False,
    "s3://others/llama": False,
}
WRITES = {
    "s3://models/runs/cpt": True,
    "s3://models/runs/cpt/again": True,
    "s3://models/runs/cpt-2": False,
    "s3://models/runs": False,
    # It may be read, which is less.
    "s3://models/llama": False,
}


def test_a_tracker_is_named_or_lacking(iam):
    """By its whole ARN: the role names no others."""
    access = DataAccess((), (), (), ("arn:aws:sagemaker:us-east-2:1:mlflow-app/app-A",))
    assert lacking(ROLE, access, iam) == [*access.trackers]
    document = iam.get_role_policy(RoleName=NAME, PolicyName="Permissions")["PolicyDocument"]
    logs = {"Effect": "Allow", "Action": ["sagemaker-mlflow:LogBatch"]}
    document["Statement"].append({**logs, "Resource": [*access.trackers]})
    iam.put_role_policy(
        RoleName=NAME, PolicyName="Permissions", PolicyDocument=json.dumps(document)
    )
    assert lacking(ROLE, access, iam) == []


def test_who_may_not_look_is_told_and_held_up_by_nothing(aws):
    """A cluster may be reached without credentials for its account."""
    assert aws
    on: Any = SimpleNamespace(plan=SimpleNamespace(region="us-east-2"), console=console())
    access = DataAccess((), ("s3://models/runs/cpt",), ())
    gone = f"arn:aws:iam::{ACCOUNT}:role/another"
    assert out_of_reach(on, gone, access) == ()
    assert "note: what the jobs' role may do in S3 is not checked: MEKS-" in said(on.console)
