"""Who is kept out of the local AWS: everybody without a key of this very start."""

import contextlib
import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from megatron_eks.localcloud.aws import keys
from megatron_eks.localcloud.aws.keys import Key, Keys
from megatron_eks.localcloud.aws.server import FAILURES_PATH, NODES_PATH, TOKENS_PATH
from tests.annex.aws.running import fail_next

REGION = "us-east-2"
ROLE = "arn:aws:iam::000000000000:role/any/Role"
CALLS = (
    ("s3", "list_buckets"),
    ("sts", "get_caller_identity"),
    ("iam", "list_roles"),
    ("eks", "list_clusters"),
    ("ec2", "describe_vpcs"),
    ("fsx", "describe_file_systems"),
    ("cloudformation", "describe_stacks"),
    ("codebuild", "list_projects"),
    ("ecr", "describe_repositories"),
    ("ssm", "describe_parameters"),
    ("logs", "describe_log_groups"),
)


def client(aws, service, key, token=None, **config):
    """Return a client with a key."""
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=aws.endpoint_url,
        aws_access_key_id=key.access_key_id,
        aws_secret_access_key=key.secret_access_key,
        aws_session_token=token,
        config=Config(retries={"total_max_attempts": 1}, **config),
    )


def refused(call, *code):
    """Say whether a call is refused as a stranger's."""
    with pytest.raises(ClientError) as raised:
        call()
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    if code:
        assert raised.value.response["Error"]["Code"] in code
    return True


def answer_of(request):
    """Send a request and return the answer's status and content."""
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 -- our own server
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def status(request):
    """Send a request and return the answer's status."""
    return answer_of(request)[0]


@pytest.mark.parametrize(("service", "operation"), CALLS)
def test_a_key_of_another_start_is_refused(aws, service, operation):
    """Of any service, whoever made it up; the owner's works."""
    for key in (Key("local-aws", "not-a-secret"), Keys.new().administrator, Key("testing", "x")):
        call = getattr(client(aws, service, key), operation)
        assert refused(call, "InvalidClientTokenId")
    guessed = Key(aws.keys.administrator.access_key_id, "guessed")
    assert refused(getattr(client(aws, service, guessed), operation), "SignatureDoesNotMatch")
    assert refused(
        getattr(client(aws, service, guessed, signature_version=UNSIGNED), operation),
        # S3's address has no other sign of whose it is.
        *("MissingAuthenticationToken", "403"),
    )
    getattr(client(aws, service, aws.keys.administrator), operation)()


def test_what_aws_takes_unsigned_is_refused(aws):
    """AssumeRoleWithWebIdentity needs no key on AWS, where the token is checked."""
    sts = client(aws, "sts", Key("a", "b"), signature_version=UNSIGNED)
    assert refused(
        lambda: sts.assume_role_with_web_identity(
            RoleArn=ROLE, RoleSessionName="me", WebIdentityToken="anything"
        ),
        "MissingAuthenticationToken",
    )


@pytest.mark.parametrize(
    "path",
    [
        *(FAILURES_PATH, NODES_PATH, TOKENS_PATH),
        *("/moto-api/reset", "/moto-api/data.json", "/moto-api/reset-auth", "/favicon.ico"),
        *("/latest/meta-data/iam/security-credentials/", "/", "/us-east-1_a/.well-known/jwks.json"),
    ],
)
@pytest.mark.parametrize("bearer", ["", "Bearer ", "Bearer not-a-secret", "Bearer é"])
def test_addresses_beside_awss_own_want_the_secret(aws, path, bearer):
    """To ask, to change, or to look."""
    for data in (None, b"{}"):
        headers = {"Authorization": bearer} if bearer else {}
        request = urllib.request.Request(aws.endpoint_url + path, data, headers)  # noqa: S310 -- our own
        assert status(request) == 403


def test_a_session_is_taken_by_its_key_and_token(aws):
    """What STS gave out is known; one of the three alone is nothing."""
    found = client(aws, "sts", aws.keys.administrator).assume_role(
        RoleArn=ROLE, RoleSessionName="me"
    )["Credentials"]
    key, token = Key(found["AccessKeyId"], found["SecretAccessKey"]), found["SessionToken"]
    arn = client(aws, "sts", key, token).get_caller_identity()["Arn"]
    assert arn == "arn:aws:sts::000000000000:assumed-role/Role/me"
    for other in (None, "x" * 20):
        assert refused(client(aws, "sts", key, other).get_caller_identity, "InvalidClientTokenId")
    wrong = Key(key.access_key_id, "x")
    assert refused(client(aws, "sts", wrong, token).get_caller_identity, "SignatureDoesNotMatch")


def test_a_key_of_a_user_is_taken_while_it_is_active(aws):
    """As IAM has it."""
    iam = client(aws, "iam", aws.keys.administrator)
    iam.create_user(UserName="bob")
    made = iam.create_access_key(UserName="bob")["AccessKey"]
    key = Key(made["AccessKeyId"], made["SecretAccessKey"])
    assert client(aws, "sts", key).get_caller_identity()["Arn"].endswith(":user/bob")
    iam.update_access_key(UserName="bob", AccessKeyId=key.access_key_id, Status="Inactive")
    assert refused(client(aws, "sts", key).get_caller_identity, "InvalidClientTokenId")


def test_a_session_that_is_no_roles_is_refused(aws):
    """The ones that moto makes for users have a secret that is printed in its source."""
    found = client(aws, "sts", aws.keys.administrator).get_session_token()["Credentials"]
    key = Key(found["AccessKeyId"], found["SecretAccessKey"])
    assert refused(client(aws, "sts", key, found["SessionToken"]).get_caller_identity)


@pytest.fixture(scope="module")
def stored(aws):
    """Make a bucket with an object whose name needs escapes."""
    s3 = client(aws, "s3", aws.keys.administrator)
    s3.create_bucket(Bucket="strangers", CreateBucketConfiguration={"LocationConstraint": REGION})
    names = {"Bucket": "strangers", "Key": "a b//ü+../&=?.txt"}
    s3.put_object(**names, Body=b"content", Metadata={"note": "two  spaces"})
    return s3, names


def test_names_with_any_letters_are_signed_as_aws_signs_them(stored):
    """S3 escapes a path once and takes no dots out of it, other than all other services."""
    s3, names = stored
    assert s3.get_object(**names)["Body"].read() == b"content"
    listed = s3.list_objects_v2(Bucket="strangers", Prefix="a b//ü+", Delimiter="/&")
    assert [each["Prefix"] for each in listed["CommonPrefixes"]] == ["a b//ü+../&"]


def test_a_presigned_address_holds_for_one_object_and_for_a_time(stored, monkeypatch):
    """For what it was made for, and by nobody else."""
    s3, names = stored
    url = s3.generate_presigned_url("get_object", Params=names, ExpiresIn=60)
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 -- our own server
        assert answer.read() == b"content"
    early = datetime.now(tz=UTC) - timedelta(seconds=61)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: early)
    late = s3.generate_presigned_url("get_object", Params=names, ExpiresIn=60)
    others = (late, url.replace("strangers/", "strangers/x"), url.replace("s=60", "s=600"))
    for other in (*others, url.partition("&X-Amz-Signature")[0]):
        assert status(other) == 403


def test_a_request_may_not_be_changed_on_its_way(stored):
    """Neither its content, nor a header that was signed."""
    s3, names = stored
    sent: dict[str, Any] = {}
    s3.meta.events.register_last(
        "before-send.s3.PutObject", lambda request, **_: sent.update(vars(request))
    )
    s3.put_object(**names, Body=b"content")
    for data, change in (
        (b"another", {}),
        (b"content", {"X-Amz-Date": "20200101T000000Z"}),
        (b"content", {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}),
    ):
        headers = {name: _text(value) for name, value in sent["headers"].items()}
        headers = {
            name: value for name, value in headers.items() if name not in {"Expect", *change}
        }
        request = urllib.request.Request(  # noqa: S310 -- our own server
            sent["url"], data, headers | change, method="PUT"
        )
        assert status(request) == 403


def _text(value):
    return value.decode() if isinstance(value, bytes) else value


def test_pods_have_s3_and_nothing_else(stored, aws):
    """Neither the account, nor another role, nor by a content that moto would take for STS's."""
    _, names = stored
    pods = aws.keys.pods
    s3 = client(aws, "s3", pods)
    assert s3.get_object(**names)["Body"].read() == b"content"
    for service, operation in CALLS[1:]:
        assert refused(getattr(client(aws, service, pods), operation), "AccessDenied")
    sts = client(aws, "sts", pods)
    assert refused(lambda: sts.assume_role(RoleArn=ROLE, RoleSessionName="me"), "AccessDenied")
    url = s3.generate_presigned_url("list_buckets", HttpMethod="POST")
    form = f"Action=AssumeRoleWithWebIdentity&RoleArn={ROLE}&RoleSessionName=me&WebIdentityToken=a"
    request = urllib.request.Request(  # noqa: S310 -- our own server
        url, form.encode(), {"Content-Type": "application/x-www-form-urlencoded"}
    )
    _, said = answer_of(request)
    assert b"ListAllMyBucketsResult" in said


def test_the_keys_are_in_no_place_that_others_read(aws, tmp_path):
    """A file for the owner alone, and no process's arguments."""
    keys_file = tmp_path / keys.FILE
    keys_file.touch(0o644)
    aws.keys.write(keys_file)
    assert keys_file.stat().st_mode & 0o777 == 0o600
    assert keys.read(keys_file) == aws.keys
    arguments = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        # It may end while one looks.
        with contextlib.suppress(OSError):
            arguments.append(file.read_bytes())
    for key in (aws.keys.administrator, aws.keys.pods):
        assert not any(key.secret_access_key.encode() in each for each in arguments)


def test_failures_on_demand_are_for_the_owner(aws):
    """The rest of this folder counts on them."""
    fail_next(aws, "AWS::Nobody::Wants", "never met")
    assert json.loads(aws.tell(NODES_PATH, {})) == aws.nodes()
