"""`meks preflight aws` against a local AWS: what it reads, and what it makes of refusals."""

import json
from pathlib import Path

import pytest
from botocore.awsrequest import AWSResponse

from megatron_eks.__main__ import main
from megatron_eks.ops import checks
from megatron_eks.ops.cluster import deploy, preflight
from megatron_eks.ops.failure import Failure
from tests import schemas
from tests.annex.aws.running import local_aws
from tests.ops.aws.conftest import open_aws
from tests.ops.aws.fakes import console, project_in, tools, written
from tests.ops.aws.quick_cdk import LOCAL_CLUSTER, ROLE, QuickCdk

_CLUSTER = LOCAL_CLUSTER.replace("name: techpulse", "name: preflight")
_FETCH = "schema_version: 1\nkind: fetch\nname: f\ns3_uri: {}\ndirectory: /shared/data/f\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Run a local AWS of its own: two clusters of one account cannot have the same repositories."""
    with local_aws(tmp_path_factory.mktemp("aws")) as server:
        server.client("iam", "us-east-2").create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
        yield server


@pytest.fixture(scope="module")
def deployed(server, tmp_path_factory):
    """Deploy a cluster, and return its file."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment("us-east-2").items():
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("project")
        file, aws = project_in(folder, _CLUSTER), open_aws()
        assert deploy.run([], tools(file, aws, console(yes=True)), QuickCdk(file, folder, aws)) == 0
    return file


def judged(file: Path, aws):
    """Return what each check of an account says, and the exit code."""
    of = console()
    found = tools(file, aws, of)
    results, _ = preflight.account(found)
    code = checks.report(found.plan, results, "json", of)
    shown = schemas.read("preflight", written(of))
    return {each["name"]: each for each in shown["checks"]}, code


def codes(check):
    """Return the codes of what a check found."""
    return [each["code"] for each in check["findings"]]


def test_an_empty_account_passes_before_a_deployment(tmp_path, aws):
    """What is not there yet is not said to be right."""
    checks, code = judged(project_in(tmp_path, _CLUSTER.replace("preflight", "nobody")), aws)
    verdicts = {name: each["verdict"] for name, each in checks.items()}
    assert code == 0
    assert verdicts["permissions"] == verdicts["quotas"] == "passed"
    assert verdicts["zones offer the types"] == "passed"
    assert verdicts["EKS cluster"] == verdicts["file systems"] == "nothing yet"


def test_a_deployed_cluster_passes(deployed, aws):
    """All that EKS, FSx and EC2 say of it; the images are to be built."""
    checks, code = judged(deployed, aws)
    assert code == 0
    told = {name: codes(each) for name, each in checks.items() if each["findings"]}
    assert told == {
        "default security group": ["MEKS-0831"],
        "images": ["MEKS-0835", "MEKS-0835"],
    }
    passed = {name for name, each in checks.items() if each["verdict"] == "passed"}
    assert {"EKS cluster", "add-ons", "node groups", "file systems", "free addresses"} <= passed


def test_a_job_file_that_the_deployed_role_does_not_know_is_found(deployed, aws):
    """Its pods would be denied after their GPUs were paid for; one command gives them the right."""
    job = deployed.with_name("jobs") / "fetch.yaml"
    job.parent.mkdir()
    job.write_text(_FETCH.format("s3://models/llama"))
    try:
        checks, code = judged(deployed, aws)
        assert code == 4
        (finding,) = checks["S3 for jobs"]["findings"]
        assert finding["code"] == "MEKS-0839"
        assert "s3://models/llama" in finding["found"]
        assert finding["remedy"].startswith("run: meks deploy Storage")
        cdk = QuickCdk(deployed, deployed.parent, aws)
        assert deploy.run([], tools(deployed, aws, console(yes=True)), cdk) == 0
        assert judged(deployed, aws)[0]["S3 for jobs"]["verdict"] == "passed"
        job.write_text(_FETCH.format("s3://models/llama/base"))
        assert judged(deployed, aws)[0]["S3 for jobs"]["verdict"] == "passed"
        job.write_text(_FETCH.format("s3://models/llama-2"))
        assert codes(judged(deployed, aws)[0]["S3 for jobs"]) == ["MEKS-0839"]
    finally:
        job.unlink()


def test_a_reservation_is_read_from_the_account(tmp_path, aws):
    """One instance, in another zone."""
    made = aws.client("ec2").create_capacity_reservation(
        InstanceType="p4d.24xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-east-2a",
        InstanceCount=1,
    )["CapacityReservation"]["CapacityReservationId"]
    text = _CLUSTER.replace(
        "    max_nodes: 2", f"    max_nodes: 2\n    capacity: {{type: reservation, id: {made}}}"
    )
    checks, _ = judged(project_in(tmp_path, text), aws)
    check = checks["reservations and Capacity Blocks"]
    assert codes(check) == ["MEKS-0826", "MEKS-0826"]
    assert {each["path"] for each in check["findings"]} == {"gpu_pools[0].capacity.id"}
    # At its place in the file, as with every other finding about a key.
    assert check["findings"][0]["line"] > 1


def test_a_region_without_the_type_is_an_error(tmp_path, server, monkeypatch):
    """Ireland has had no p5 so far."""
    for name, value in server.environment("eu-west-1").items():
        monkeypatch.setenv(name, value)
    text = _CLUSTER.replace("us-east-2", "eu-west-1").replace("p4d.24xlarge", "p5.48xlarge")
    file = project_in(tmp_path, text)
    assert main(["preflight", "aws", "--cluster", str(file)]) == 4


def answering(client, operation, status, code, answers):
    """Let AWS refuse the first so many requests of an operation."""
    seen = []

    def answer(request, **_):
        seen.append(request.url)
        if len(seen) > answers:
            return None
        response = AWSResponse(request.url, status, {"x-amzn-errortype": code}, None)
        body = {"__type": code, "message": "refused by the test"}
        response._content = json.dumps(body).encode()  # noqa: SLF001 -- botocore reads a body through urllib3 alone
        return response

    client.meta.events.register_first(f"before-send.{operation}", answer)
    return seen


def test_throttling_is_waited_for(deployed, aws, monkeypatch):
    """Two refusals of a busy account change nothing."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    seen = answering(
        aws.client("eks"), "eks.DescribeClusterVersions", 429, "ThrottlingException", 2
    )
    checks, code = judged(deployed, aws)
    assert (code, len(seen)) == (0, 3)
    assert checks["Kubernetes version supported"]["verdict"] == "passed"


def test_throttling_without_end_leaves_one_check_unmade(deployed, aws, monkeypatch):
    """The others are made all the same."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    answering(aws.client("eks"), "eks.DescribeClusterVersions", 429, "ThrottlingException", 99)
    checks, code = judged(deployed, aws)
    assert code == 0
    assert checks["Kubernetes version supported"]["verdict"] == "not checked"
    assert checks["quotas"]["verdict"] == "passed"


def test_credentials_that_expire_on_the_way_end_the_command(tmp_path, aws):
    """Nothing that follows would be answered; it is asked once, and said once."""
    from megatron_eks.ops.aws.session import ERRORS, explained  # noqa: PLC0415 -- for this test

    seen = answering(
        aws.client("eks"), "eks.DescribeClusterVersions", 400, "ExpiredTokenException", 99
    )
    with pytest.raises(ERRORS) as caught:
        judged(project_in(tmp_path, _CLUSTER), aws)
    failure = explained(caught.value)
    assert isinstance(failure, Failure)
    assert str(failure).startswith("MEKS-0740 the AWS credentials have expired - log in again")
    assert len(seen) == 1


def test_without_credentials_it_says_what_to_do(tmp_path, monkeypatch, capsys):
    """Usage, not a failed check; and no traceback."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert main(["preflight", "--cluster", str(project_in(tmp_path))]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        "error: MEKS-0740 no valid AWS credentials - set AWS_PROFILE, or run `aws sso login` or "
        "`aws configure`\n"
    )
