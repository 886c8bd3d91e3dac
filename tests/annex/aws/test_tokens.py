"""Whose a Kubernetes token is, as the API server behind EKS clusters asks the local AWS."""

import base64
import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest

from megatron_eks.localcloud.aws.server import TOKENS_PATH
from megatron_eks.ops.cluster.kubeconfig import token

REGION = "eu-north-1"
NAME = "tokens"
ROLE = "arn:aws:iam::000000000000:role/team/Admin"
ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
VIEW = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"


@pytest.fixture(scope="module", autouse=True)
def eks(aws):
    """Make a cluster that one role administers."""
    eks = aws.client("eks", REGION)
    found = aws.client("ec2", REGION).describe_subnets()["Subnets"]
    subnets = [each["SubnetId"] for each in found]
    eks.create_cluster(name=NAME, roleArn=ROLE, resourcesVpcConfig={"subnetIds": subnets})
    let_in(eks, ROLE, ADMIN)
    return eks


def let_in(eks, principal, policy, **entry):
    """Give a principal access by a policy of EKS."""
    eks.create_access_entry(clusterName=NAME, principalArn=principal, **entry)
    eks.associate_access_policy(
        clusterName=NAME, principalArn=principal, policyArn=policy, accessScope={"type": "cluster"}
    )


def session_of(aws, role, session="me"):
    """Return a client of STS for who has assumed a role."""
    assumed = aws.client("sts", REGION).assume_role(RoleArn=role, RoleSessionName=session)
    found = assumed["Credentials"]
    return boto3.client(
        "sts",
        region_name=REGION,
        endpoint_url=aws.endpoint_url,
        aws_access_key_id=found["AccessKeyId"],
        aws_secret_access_key=found["SecretAccessKey"],
        aws_session_token=found["SessionToken"],
    )


def token_of(aws, role, session="me"):
    """Return what `meks token` gives who has assumed a role."""
    return token(session_of(aws, role, session), NAME)


def review(aws, text):
    """Ask whose a token is."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": text},
    }
    return json.loads(aws.tell(TOKENS_PATH, body))["status"]


def url_of(text):
    """Return the presigned request that a token is."""
    encoded = text.rpartition(".")[2]
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()


def changed(text, old, new):
    """Return a token whose request is another one."""
    url = url_of(text)
    assert old in url
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.replace(old, new).encode()).decode()


def test_an_administrator_is_known_by_role_and_session(aws):
    """The name is EKS's own, without the role's path."""
    status = review(aws, token_of(aws, ROLE))
    assert status["user"]["username"] == "arn:aws:sts::000000000000:assumed-role/Admin/me"
    assert status["user"]["groups"] == ["system:masters"]
    assert status["user"]["extra"]["canonicalArn"] == [ROLE]


def test_an_access_entry_names_user_and_groups(aws, eks):
    """RBAC decides what they may; a policy for reading makes no administrator."""
    role = "arn:aws:iam::000000000000:role/Reader"
    let_in(eks, role, VIEW, username="reader:{{SessionName}}", kubernetesGroups=["readers"])
    user = review(aws, token_of(aws, role, "ann"))["user"]
    assert (user["username"], user["groups"]) == ("reader:ann", ["readers"])
    eks.delete_access_entry(clusterName=NAME, principalArn=role)
    assert review(aws, token_of(aws, role, "ann")) == {"authenticated": False}


def test_a_role_without_an_access_entry_is_nobody(aws):
    """Deploying a cluster lets nobody in; the end of another role's name is not that role."""
    for role in ("Deployer", "NoAdmin"):
        arn = f"arn:aws:iam::000000000000:role/{role}"
        assert review(aws, token_of(aws, arn)) == {"authenticated": False}


def test_a_token_is_taken_for_fifteen_minutes(aws, monkeypatch):
    """However long its request may be sent."""
    for minutes, taken in ((14, True), (16, False), (-16, False)):
        sts = session_of(aws, ROLE)
        signed = datetime.now(tz=UTC) - timedelta(minutes=minutes)
        with monkeypatch.context() as clock:
            clock.setattr("botocore.auth.get_current_datetime", lambda signed=signed: signed)
            text = token(sts, NAME)
        assert review(aws, text)["authenticated"] is taken


@pytest.mark.parametrize(
    "text",
    ["", "k8s-aws-v1.", "k8s-aws-v1.!", "k8s-aws-v1.aHR0cDovL3gvP0FjdGlvbj1B", "Bearer", "é"],
)
def test_what_is_no_token_is_nobodys(aws, text):
    """The API server asks about every token that it does not know itself."""
    assert review(aws, text) == {"authenticated": False}


def test_only_a_request_for_a_cluster_is_a_token(aws):
    """A request for who one is may be presigned for other ends."""
    text = token_of(aws, ROLE)
    assert review(aws, changed(text, "x-k8s-aws-id", "x-k8s-aws-no")) == {"authenticated": False}
    other = changed(text, "GetCallerIdentity", "GetSessionToken")
    assert review(aws, other) == {"authenticated": False}
    assert review(aws, text.replace("k8s-aws-v1.", "k8s-aws-v2.")) == {"authenticated": False}


def test_a_token_that_nobody_signed_is_nobodys(aws):
    """Its parts are public: the name of a role that is let in, a cluster's, and the time."""
    text = token_of(aws, ROLE)
    other = boto3.client(
        "sts",
        region_name=REGION,
        endpoint_url=aws.endpoint_url,
        aws_access_key_id=url_of(text).partition("X-Amz-Credential=")[2].partition("%2F")[0],
        aws_secret_access_key="guessed",  # noqa: S106 -- nobody's
    )
    assert review(aws, token(other, NAME)) == {"authenticated": False}
    signature = url_of(text).partition("X-Amz-Signature=")[2]
    assert review(aws, changed(text, signature, "0" * 64)) == {"authenticated": False}
    assert review(aws, changed(text, "X-Amz-Security-Token=", "X-Amz-Security-Token=A")) == {
        "authenticated": False
    }


def test_a_token_for_one_cluster_is_none_for_another(aws):
    """The cluster's name is signed, and who asks whose the token is adds his own."""
    assert review(aws, token(session_of(aws, ROLE), "elsewhere")) == {"authenticated": False}


def test_whoever_changes_an_association_is_told_what_it_is(eks):
    """Made, changed and deleted: the answer has it each time."""
    wanted = {"namespace": "jobs", "serviceAccount": "job", "roleArn": ROLE}
    made = eks.create_pod_identity_association(clusterName=NAME, **wanted)["association"]
    number = {"clusterName": NAME, "associationId": made["associationId"]}
    other = ROLE.replace("Admin", "Job")
    changed = eks.update_pod_identity_association(**number, roleArn=other)["association"]
    gone = eks.delete_pod_identity_association(**number)["association"]
    assert [each["roleArn"] for each in (made, changed, gone)] == [ROLE, other, other]
