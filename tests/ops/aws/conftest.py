"""One local AWS for all tests of the commands that act on AWS."""

import boto3
import pytest

from megatron_eks.ops.aws.session import Aws
from tests.annex.aws.running import local_aws
from tests.ops.aws.quick_cdk import ROLE
from tests.ops.aws.scaling import make_cluster


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Run a local AWS, in which the administrators of the test's clusters exist."""
    with local_aws(tmp_path_factory.mktemp("aws")) as server:
        iam = server.client("iam", "us-east-2")
        iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
        yield server


@pytest.fixture(scope="session")
def scaled(server):
    """Return EKS with a cluster whose pool is scaled."""
    return make_cluster(server)


@pytest.fixture
def aws(server, monkeypatch):
    """Return clients of the local AWS, as a command opens them."""
    for name, value in server.environment("us-east-2").items():
        monkeypatch.setenv(name, value)
    return open_aws()


def open_aws() -> Aws:
    """Open a session with the credentials of the environment."""
    return Aws(boto3.Session(), "us-east-2")
