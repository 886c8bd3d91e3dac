"""A local AWS for a module of tests, and a cluster that is deployed to it."""

import sys

import boto3
import pytest

from megatron_eks.local.aws.server import local_aws
from megatron_eks.ops.aws.session import Aws
from tests.ops.aws.quick_cdk import ROLE


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Run a local AWS, in which the administrators of the test's clusters exist."""
    with local_aws(tmp_path_factory.mktemp("aws"), sys.executable) as server:
        iam = server.client("iam", "us-east-2")
        iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
        yield server


@pytest.fixture
def aws(server, monkeypatch):
    """Return clients of the local AWS, as a command opens them."""
    for name, value in server.environment("us-east-2").items():
        monkeypatch.setenv(name, value)
    return Aws(boto3.Session(), "us-east-2")
