"""`meks kubeconfig` and `meks token`, against moto's EKS and STS."""

import base64
import json
import os
import stat
from dataclasses import replace
from datetime import date
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
import yaml
from moto import mock_aws

from megatron_eks.kubernetes.kubeconfig import contexts, load
from megatron_eks.ops.aws.session import Aws
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.cluster import kubeconfig
from megatron_eks.ops.failure import Failure
from megatron_eks.project import ROOT, load_project
from tests import consoles

_REGION = "us-east-2"
_ARN = "arn:aws:eks:us-east-2:123456789012:cluster/techpulse"


@pytest.fixture
def console():
    """Return a console whose streams can be read."""
    return consoles.console()


@pytest.fixture
def tools(console, monkeypatch):
    """Open an account with a cluster."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        project = load_project(ROOT / "cluster.yaml", date(2026, 11, 21))
        aws = Aws(boto3.Session(region_name=_REGION), _REGION)
        role = aws.client("iam").create_role(RoleName="eks", AssumeRolePolicyDocument="{}")
        aws.client("eks").create_cluster(
            name="techpulse", roleArn=role["Role"]["Arn"], resourcesVpcConfig={}
        )
        yield Tools(ROOT / "cluster.yaml", project, aws, console)


def test_the_cluster_can_be_reached_by_what_was_written(tools, tmp_path):
    """Address and authority come from EKS; the role is the one of the cluster file."""
    file = tmp_path / "kube" / "config"
    environ = {"AWS_PROFILE": "me", "AWS_ENDPOINT_URL": "http://aws", "AWS_SECRET_ACCESS_KEY": "s"}
    assert kubeconfig.run(file, None, tools, environ) == 0
    config = load([file])
    context = contexts(config)[config["current-context"]]
    cluster = tools.aws.client("eks").describe_cluster(name="techpulse")["cluster"]
    assert context.server == cluster["endpoint"]
    assert context.eks_cluster == ("techpulse", _REGION)
    plugin = context.user["exec"]
    assert plugin["args"][:3] == ["-m", "megatron_eks", "token"]
    assert plugin["args"][-2:] == ["--role-arn", "arn:aws:iam::111122223333:role/Admin"]
    kept = {"AWS_PROFILE": "me", "AWS_ENDPOINT_URL": "http://aws"}
    assert {each["name"]: each["value"] for each in plugin["env"]} == kept


def test_no_secret_is_on_disk_and_nobody_else_reads_it(tools, tmp_path):
    """Other entries of the file may hold some."""
    file = tmp_path / "config"
    kubeconfig.run(file, "none", tools, dict(os.environ))
    assert "testing" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_other_entries_stay_and_a_second_run_changes_nothing(tools, tmp_path):
    """People have several clusters in one file."""
    file = tmp_path / "config"
    other = {"name": "other", "cluster": {"server": "https://other"}}
    file.write_text(yaml.safe_dump({"clusters": [other], "preferences": {"colors": True}}))
    kubeconfig.run(file, None, tools, {})
    once = file.read_text()
    kubeconfig.run(file, None, tools, {})
    assert file.read_text() == once
    config = yaml.safe_load(once)
    assert config["clusters"][0] == other
    assert config["preferences"] == {"colors": True}
    assert [each["name"] for each in config["clusters"]] == ["other", _ARN]


def test_what_is_no_kubeconfig_is_not_overwritten(tools, tmp_path):
    """It may be anything that somebody named by mistake."""
    file = tmp_path / "config"
    file.write_text("- 1\n")
    with pytest.raises(Failure, match="is not a kubeconfig"):
        kubeconfig.run(file, None, tools, {})
    assert file.read_text() == "- 1\n"


def test_a_cluster_that_is_not_there_is_not_found(tools, tmp_path):
    """The remedy deploys it."""
    tools.aws.client("eks").delete_cluster(name="techpulse")
    with pytest.raises(Failure, match="there is no EKS cluster techpulse in us-east-2") as raised:
        kubeconfig.run(tmp_path / "config", None, tools, {})
    assert raised.value.code == 3


@pytest.mark.parametrize(
    ("caller", "role"),
    [
        ("arn:aws:sts::111122223333:assumed-role/Admin/me", None),
        ("arn:aws:sts::444455556666:assumed-role/Admin/me", "Admin"),
        ("arn:aws:sts::111122223333:assumed-role/Developer/me", "Admin"),
        ("arn:aws:iam::111122223333:user/Admin", "Admin"),
    ],
)
def test_a_role_is_taken_unless_one_has_it(tools, tmp_path, caller, role):
    """An assumed role has another ARN than the role, and no path."""
    sts = SimpleNamespace(get_caller_identity=lambda: {"Arn": caller})
    clients = {"sts": sts, "eks": tools.aws.client("eks")}
    elsewhere = replace(tools, aws=SimpleNamespace(client=clients.__getitem__))
    kubeconfig.run(tmp_path / "config", None, elsewhere, {})
    arguments = yaml.safe_load((tmp_path / "config").read_text())["users"][0]["user"]["exec"][
        "args"
    ]
    expected = [f"arn:aws:iam::111122223333:role/{role}"] if role else []
    assert arguments[arguments.index(_REGION) + 1 :] == (["--role-arn", *expected] if role else [])


def _request(console):
    """Return expiry and the presigned request of the token that was printed."""
    credential = json.loads(console.stdout.getvalue())
    assert credential["kind"] == "ExecCredential"
    text = credential["status"]["token"].removeprefix("k8s-aws-v1.")
    assert "=" not in text
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    return credential["status"]["expirationTimestamp"], url, parse_qs(url.query)


def test_a_token_is_a_signed_question_who_asks(tools, console):
    """For one cluster, whose name is signed with it; STS of the region answers."""
    assert kubeconfig.print_token("techpulse", None, tools.aws, console) == 0
    _, url, query = _request(console)
    assert url.netloc == "sts.us-east-2.amazonaws.com"
    assert query["Action"] == ["GetCallerIdentity"]
    assert query["X-Amz-SignedHeaders"] == ["host;x-k8s-aws-id"]
    assert query["X-Amz-Expires"] == ["60"]


def test_a_token_of_a_role_is_signed_by_the_role(tools, console):
    """Its keys are the session's, which has a token of its own."""
    role = tools.aws.client("iam").create_role(RoleName="Admin", AssumeRolePolicyDocument="{}")
    kubeconfig.print_token("techpulse", role["Role"]["Arn"], tools.aws, console)
    _, _, query = _request(console)
    assert query["X-Amz-Security-Token"]
    assert not query["X-Amz-Credential"][0].startswith("testing/")
