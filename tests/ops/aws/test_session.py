"""What goes wrong between here and AWS is one line with a remedy, and never a secret."""

import boto3
import pytest
from botocore import exceptions
from botocore.awsrequest import AWSResponse
from botocore.stub import Stubber

from megatron_eks.ops.aws.session import Aws, explained, open_session
from megatron_eks.ops.failure import Failure

KEY = "AKIAEXAMPLEKEY000000"


@pytest.fixture
def aws(monkeypatch, tmp_path):
    """Return clients with credentials of nobody, and no files of the person who runs this."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return Aws(boto3.Session(KEY, "secret-secret", region_name="us-east-2"), "us-east-2")


def refusal(aws, code, message):
    """Return what a service's refusal becomes."""
    eks = aws.client("eks")
    with Stubber(eks) as stub:
        stub.add_client_error("describe_cluster", code, message)
        with pytest.raises(exceptions.ClientError) as caught:
            eks.describe_cluster(name="techpulse")
    return explained(caught.value)


def test_an_expired_session_says_how_to_log_in(aws):
    """The most frequent mistake has the plainest answer."""
    failure = refusal(aws, "ExpiredTokenException", "The security token is expired")
    assert str(failure) == (
        "MEKS-0740 the AWS credentials have expired - log in again: `aws sso login`, or however "
        "you got them"
    )
    assert failure.code == 1


def test_a_missing_permission_is_named(aws):
    """Whoever administers the account needs its name, and nothing else."""
    message = (
        "User: arn:aws:sts::123456789012:assumed-role/Dev/me is not authorized to perform: "
        "eks:DescribeCluster on resource: arn:aws:eks:us-east-2:123456789012:cluster/techpulse"
    )
    failure = refusal(aws, "AccessDeniedException", message)
    assert str(failure) == (
        "MEKS-0741 DescribeCluster: not allowed: eks:DescribeCluster - ask who administers the "
        "account for this permission"
    )


def test_an_encoded_refusal_is_left_out(aws):
    """EC2's message is a page of base64; the operation's name says more."""
    failure = refusal(aws, "UnauthorizedOperation", "Encoded authorization failure: " + "x" * 900)
    assert str(failure).startswith("MEKS-0741 DescribeCluster: not allowed: DescribeCluster - ")


def test_a_refusal_stays_one_line(aws):
    """What AWS says cannot move the cursor."""
    failure = refusal(aws, "InvalidRequestException", "no\n\x1b[31mred")
    assert str(failure).startswith("MEKS-0744 DescribeCluster: no\\n\\x1b[31mred (Invalid")


def test_throttling_is_waited_for(aws, monkeypatch):
    """Two refusals are no reason to give up."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    eks = aws.client("eks")
    answers = [429, 429, 200]
    seen: list[int] = []

    def answer(request, **_):
        status = answers[len(seen)]
        seen.append(status)
        body = b'{"clusters": []}' if status == 200 else b'{"message": "slow down"}'
        headers = {"x-amzn-errortype": "ThrottlingException"} if status != 200 else {}
        response = AWSResponse(request.url, status, headers, None)
        response._content = body  # noqa: SLF001 -- botocore reads a body through urllib3 alone
        return response

    eks.meta.events.register("before-send.eks.ListClusters", answer)
    assert eks.list_clusters()["clusters"] == []
    assert seen == [429, 429, 200]


def test_throttling_without_end_is_a_failure(aws):
    """After the last attempt it says so."""
    failure = refusal(aws, "ThrottlingException", "Rate exceeded")
    assert str(failure).startswith("MEKS-0743 DescribeCluster: AWS still asks for fewer requests")


def test_an_endpoint_out_of_reach_is_its_own_exit_code(monkeypatch):
    """5 is not reachable; the address helps to see what is wrong."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:9")
    aws = Aws(boto3.Session(KEY, "secret-secret", region_name="us-east-2"), "us-east-2")
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(exceptions.BotoCoreError) as caught:
        aws.account()
    failure = explained(caught.value)
    assert failure.code == 5
    assert str(failure).startswith("MEKS-0742 http://localhost:9/: no answer (EndpointConnection")


def test_no_credentials_is_a_mistake_of_usage(monkeypatch, tmp_path):
    """Nothing is wrong with AWS, but with how this was called."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(exceptions.NoCredentialsError) as caught:
        open_session("us-east-2", {}).account()
    failure = explained(caught.value)
    assert failure.code == 2
    assert "no valid AWS credentials - set AWS_PROFILE" in str(failure)


def test_a_profile_that_nobody_has_is_named(monkeypatch, tmp_path):
    """It is found when the session is opened."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "stagging")
    with pytest.raises(Failure) as caught:
        open_session("us-east-2", {})
    assert "The config profile (stagging) could not be found" in str(caught.value)
    assert caught.value.code == 2


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_another_region_is_refused(variable):
    """Nobody means to make a cluster beside the one of the file."""
    with pytest.raises(Failure) as caught:
        open_session("us-east-2", {variable: "eu-west-1"})
    assert caught.value.code == 2
    assert str(caught.value).startswith(
        f"MEKS-0745 {variable} is eu-west-1, and the cluster file says us-east-2 - unset"
    )


def test_the_first_of_two_variables_wins():
    """As with the AWS CLI."""
    both = {"AWS_REGION": "us-east-2", "AWS_DEFAULT_REGION": "eu-west-1"}
    assert open_session("us-east-2", both).region == "us-east-2"
