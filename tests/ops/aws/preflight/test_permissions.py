"""What a caller may not do, on a local AWS that applies policies."""

import json
import urllib.request

import boto3
import pytest

from megatron_eks.catalog.permissions import NEEDS
from megatron_eks.ops.aws.session import Aws
from megatron_eks.ops.cluster import preflight
from tests.ops.aws.fakes import console, project_in, tools
from tests.ops.aws.quick_cdk import LOCAL_CLUSTER

_EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
# moto knows no signature of EKS's addresses, so EKS refuses everybody where policies apply.
_ASKED = ("identity", "permissions", "quotas", "zones offer the types")
# After how many requests moto applies policies.
_AT_ONCE, _NEVER = "0", str(10**9)
_EXECUTION = "cdk-hnb659fds-cfn-exec-role-000000000000-us-east-2"


@pytest.fixture(scope="module")
def strict(server):
    """Return a local AWS with a user and CloudFormation's role, and the user's key."""
    iam = server.client("iam", "us-east-2")
    iam.create_user(UserName="ann")
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    iam.create_role(RoleName=_EXECUTION, AssumeRolePolicyDocument="{}")
    server.client("ssm", "us-east-2").put_parameter(
        Name="/cdk-bootstrap/hnb659fds/version", Value="29", Type="String", Overwrite=True
    )
    return server, key


@pytest.fixture
def account(strict, monkeypatch, tmp_path):
    """Return a function that gives the user a policy, and checks the account as the user."""
    server, key = strict
    for name, value in server.environment("us-east-2").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])

    def check(*statements, role=(_EVERYTHING,)):
        _enforce(server, _NEVER)
        iam = server.client("iam", "us-east-2")
        iam.put_user_policy(UserName="ann", PolicyName="own", PolicyDocument=_policy(statements))
        iam.put_role_policy(RoleName=_EXECUTION, PolicyName="own", PolicyDocument=_policy(role))
        _enforce(server, _AT_ONCE)
        found = tools(
            project_in(tmp_path, LOCAL_CLUSTER), Aws(boto3.Session(), "us-east-2"), console()
        )
        try:
            results, _ = preflight.account(found)
        finally:
            _enforce(server, _NEVER)
        return {each.name: each for each in results}

    return check


def _policy(statements):
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def _enforce(server, count):
    """Let moto apply policies after so many requests."""
    secret = server.keys.administrator.secret_access_key
    request = urllib.request.Request(  # noqa: S310 -- our own address
        f"{server.endpoint_url}/moto-api/reset-auth",
        data=count.encode(),
        headers={"Content-Type": "text/plain", "Authorization": f"Bearer {secret}"},
    )
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310 -- as above
        pass


def deny(*actions):
    """Return a statement that takes actions away."""
    return {"Effect": "Deny", "Action": list(actions), "Resource": "*"}


def test_who_may_do_everything_lacks_nothing(account):
    """Every action is simulated, and every fact read."""
    found = account(_EVERYTHING)
    assert found["permissions"].verdict == "passed"
    assert {found[name].verdict for name in _ASKED} == {"passed"}


def test_one_action_of_many_is_named_with_what_needs_it(account):
    """And so are two of different commands, in one run."""
    found = account(_EVERYTHING, deny("eks:UpdateNodegroupConfig", "codebuild:StartBuild"))
    assert [each.found for each in found["permissions"].findings] == [
        "not allowed, for meks scale: eks:UpdateNodegroupConfig (denied explicitly)",
        "not allowed, for meks build: codebuild:StartBuild (denied explicitly)",
    ]


def test_the_role_of_cloudformation_is_judged_for_what_stacks_hold(account):
    """It makes the resources, whoever deploys."""
    found = account(_EVERYTHING, role=(_EVERYTHING, deny("fsx:CreateFileSystem")))
    (finding,) = found["permissions"].findings
    assert finding.path == ("iam", _EXECUTION)
    assert finding.found == (
        "not allowed, for the file system, the data bucket and their key: fsx:CreateFileSystem "
        "(denied explicitly)"
    )


@pytest.mark.parametrize(
    ("action", "check"),
    [
        ("servicequotas:GetServiceQuota", "quotas"),
        ("ec2:DescribeInstanceTypeOfferings", "zones offer the types"),
        ("iam:SimulatePrincipalPolicy", "permissions"),
    ],
)
def test_what_may_not_be_read_is_not_checked_and_the_rest_is(account, action, check):
    """The permission is named at the check that lacks it."""
    found = account(_EVERYTHING, deny(action))
    assert found[check].verdict == "not checked"
    assert any(action in each.found for each in found[check].findings)
    others = {name for name in _ASKED if name not in {check, "permissions"}}
    assert {found[name].verdict for name in others} == {"passed"}


def test_each_need_names_actions_of_one_service_format():
    """A mistyped one would be simulated as denied for everybody."""
    for need in NEEDS:
        assert all(action.count(":") == 1 for action in need.actions)
        assert need.actions == tuple(sorted(need.actions))
