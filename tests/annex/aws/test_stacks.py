"""What CloudFormation promises of stacks, on stacks of a few resources."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.annex.aws.running import fail_next
from tests.annex.aws.stacks import Stacks

REGION = "eu-west-1"


@pytest.fixture
def stacks(aws):
    """Return the stacks of a region."""
    return Stacks(aws.client("cloudformation", REGION))


def parameter(value, **more):
    """Return a parameter of the parameter store."""
    return {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": value}, **more}


def logs(name, days=30, **more):
    """Return a log group."""
    properties = {"LogGroupName": name, "RetentionInDays": days}
    return {"Type": "AWS::Logs::LogGroup", "Properties": properties, **more}


def images(properties):
    """Return a repository."""
    return {"Type": "AWS::ECR::Repository", "Properties": properties}


def export(value, name):
    """Return an output that others import."""
    return {"Out": {"Value": value, "Export": {"Name": name}}}


def test_a_text_that_is_a_name_refers_to_nothing(stacks):
    """Or the two would wait for each other."""
    stacks.create("texts", {"One": parameter("Two"), "Two": parameter({"Ref": "One"})})
    assert stacks.physical("texts").keys() == {"One", "Two"}


def test_a_value_in_place_and_a_name_by_replacement(aws, stacks):
    """The public schema says which property needs a new resource, and the old one is deleted."""
    stacks.create("place", {"Logs": logs("/place/one"), "Note": parameter("a")})
    wanted = {"Logs": logs("/place/two"), "Note": parameter("b")}
    changes = {each["LogicalResourceId"]: each for each in stacks.changes("place", wanted)}
    assert (changes["Logs"]["Replacement"], changes["Note"]["Replacement"]) == ("True", "False")
    (detail,) = changes["Logs"]["Details"]
    assert detail["Target"]["Name"] == "LogGroupName"
    before = stacks.physical("place")
    assert stacks.update("place", wanted) == "UPDATE_COMPLETE"
    after = stacks.physical("place")
    assert (before["Note"] == after["Note"], after["Logs"]) == (True, "/place/two")
    groups = aws.client("logs", REGION).describe_log_groups(logGroupNamePrefix="/place")
    assert [each["logGroupName"] for each in groups["logGroups"]] == ["/place/two"]


def test_what_is_the_same_is_no_change(stacks):
    """The same template again is told in the words that clients look for."""
    stacks.create("same", {"Note": parameter("a")})
    with pytest.raises(ClientError, match=r"current status of \[FAILED\]"):
        stacks.update("same", {"Note": parameter("a")})
    found = stacks.client.describe_change_set(StackName="same", ChangeSetName="make")
    assert "didn't contain changes" in found["StatusReason"]


def test_a_failed_creation_takes_back_what_it_made(aws, stacks):
    """The stack says which resource failed and why, and nothing is left."""
    fail_next(aws, "Second", "out of luck")
    second = parameter("b", DependsOn="First")
    status = stacks.create("broken", {"First": logs("/broken"), "Second": second})
    assert status == "ROLLBACK_COMPLETE"
    assert "out of luck" in stacks.reasons("broken", "CREATE_FAILED")["Second"]
    assert "[Second]" in stacks.reasons("broken", "ROLLBACK_IN_PROGRESS")["broken"]
    groups = aws.client("logs", REGION).describe_log_groups(logGroupNamePrefix="/broken")
    assert groups["logGroups"] == []
    with pytest.raises(ClientError, match="ROLLBACK_COMPLETE state and can not be updated"):
        stacks.update("broken", {"First": logs("/broken")})


def test_a_rollback_that_fails_is_told(aws, stacks):
    """What could not be undone is named."""
    stacks.create("stuck", {"Note": parameter("a")})
    fail_next(aws, "Last", "out of luck")
    fail_next(aws, "Note", "not now", action="ROLLBACK")
    wanted = {"Note": parameter("b"), "Last": parameter("c", DependsOn="Note")}
    assert stacks.update("stuck", wanted) == "UPDATE_ROLLBACK_FAILED"
    assert "[Note]" in stacks.describe("stuck")["StackStatusReason"]


def test_events_are_told_in_their_order(stacks):
    """The latest first, and no two in one millisecond, by which clients sort them."""
    stacks.create("told", {"First": parameter("a"), "Second": parameter("b", DependsOn="First")})
    events = stacks.client.describe_stack_events(StackName="told")["StackEvents"]
    assert [(each["LogicalResourceId"], each["ResourceStatus"]) for each in events] == [
        ("told", "CREATE_COMPLETE"),
        ("Second", "CREATE_COMPLETE"),
        ("Second", "CREATE_IN_PROGRESS"),
        ("First", "CREATE_COMPLETE"),
        ("First", "CREATE_IN_PROGRESS"),
        ("told", "CREATE_IN_PROGRESS"),
        ("told", "REVIEW_IN_PROGRESS"),
    ]
    milliseconds = [int(each["Timestamp"].timestamp() * 1000) for each in events]
    assert milliseconds == sorted(set(milliseconds), reverse=True)


def test_a_failed_update_goes_back_to_what_was(aws, stacks):
    """Values, replaced resources and outputs are those of before."""
    stacks.create("back", {"Logs": logs("/back/one", 30), "Note": parameter("a")})
    before = stacks.physical("back")
    fail_next(aws, "Last", "out of luck")
    last = parameter("c", DependsOn=["Logs", "Note"])
    wanted = {"Logs": logs("/back/two", 90), "Note": parameter("b"), "Last": last}
    assert stacks.update("back", wanted) == "UPDATE_ROLLBACK_COMPLETE"
    assert stacks.physical("back") == before
    (group,) = aws.client("logs", REGION).describe_log_groups(logGroupNamePrefix="/back")[
        "logGroups"
    ]
    assert (group["logGroupName"], group["retentionInDays"]) == ("/back/one", 30)
    value = aws.client("ssm", REGION).get_parameter(Name=before["Note"])["Parameter"]["Value"]
    assert value == "a"


def test_what_was_half_made_is_taken_back_too(aws, stacks):
    """A role whose second policy is refused does not stay with its first."""
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    read = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
    }
    role = {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": "half-made",
            "AssumeRolePolicyDocument": trust,
            "Policies": [
                {"PolicyName": "good", "PolicyDocument": read},
                {"PolicyName": "bad", "PolicyDocument": {"Statement": "nothing"}},
            ],
        },
    }
    assert stacks.create("half", {"Role": role}) == "ROLLBACK_COMPLETE"
    assert "MalformedPolicyDocument" in stacks.reasons("half", "CREATE_FAILED")["Role"]
    roles = [each["RoleName"] for each in aws.client("iam", REGION).list_roles()["Roles"]]
    assert "half-made" not in roles


def test_an_export_in_use_stays(stacks):
    """It can be neither deleted nor changed while another stack imports it."""
    stacks.create("giver", {"Note": parameter("a")}, Outputs=export("one", "giver:out"))
    taker = {"Note": parameter({"Fn::ImportValue": "giver:out"})}
    assert stacks.create("taker", taker) == "CREATE_COMPLETE"
    status = stacks.update("giver", {"Note": parameter("a")}, Outputs=export("two", "giver:out"))
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    # aws-cdk#604: the stack stays what it was.
    assert stacks.delete("giver") == "UPDATE_ROLLBACK_COMPLETE"
    assert "in use by taker" in stacks.describe("giver")["StackStatusReason"]
    assert (stacks.delete("taker"), stacks.delete("giver")) == ("DELETE_COMPLETE",) * 2


def test_an_import_of_nothing_fails(stacks):
    """A stack that is deployed before what it imports from says so."""
    taker = {"Note": parameter({"Fn::ImportValue": "nobody:out"})}
    with pytest.raises(ClientError, match=r"No export named nobody:out found\."):
        stacks.create("early", taker)


def test_what_is_to_be_kept_outlives_its_stack(aws, stacks):
    """A retained resource is skipped when the stack goes, and when it is replaced."""
    keep = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
    stacks.create("kept", {"Logs": logs("/kept/one", **keep)})
    stacks.update("kept", {"Logs": logs("/kept/two", **keep)})
    assert stacks.delete("kept") == "DELETE_COMPLETE"
    groups = aws.client("logs", REGION).describe_log_groups(logGroupNamePrefix="/kept")
    assert [each["logGroupName"] for each in groups["logGroups"]] == ["/kept/one", "/kept/two"]


def test_a_name_that_is_taken_cannot_be_replaced(stacks):
    """A replacement of a named resource meets the old one, as in AWS."""
    key = {"Type": "AWS::KMS::Key", "Properties": {}}
    named = {"RepositoryName": "taken"}
    stacks.create("named", {"Key": key, "Images": images(named)})
    encrypted = {"EncryptionType": "KMS", "KmsKey": {"Fn::GetAtt": ["Key", "Arn"]}}
    wanted = {"Key": key, "Images": images({**named, "EncryptionConfiguration": encrypted})}
    assert stacks.update("named", wanted) == "UPDATE_ROLLBACK_COMPLETE"
    assert "already exists" in stacks.reasons("named", "UPDATE_FAILED")["Images"]


def _take_over(stacks, stack, **policy):
    """Make a change set that takes over what is there, and return what it says."""
    repository = {"Type": "AWS::ECR::Repository", "Properties": {"RepositoryName": "kept"}}
    stacks.client.create_change_set(
        StackName=stack,
        ChangeSetName="take",
        ChangeSetType="CREATE",
        TemplateBody=json.dumps({"Resources": {"Images": repository | policy}}),
        ImportExistingResources=True,
    )
    return stacks.client.describe_change_set(StackName=stack, ChangeSetName="take")["Changes"]


def test_what_a_stack_has_kept_is_taken_over_with_the_next(aws, stacks):
    """By its name, if it is to be kept again, and not from another stack."""
    aws.client("ecr", REGION).create_repository(repositoryName="kept")
    with pytest.raises(ClientError, match=r"have the DeletionPolicy .* resources are Images"):
        _take_over(stacks, "taker-1")
    (change,) = _take_over(stacks, "taker-1", DeletionPolicy="Retain")
    found = change["ResourceChange"]
    assert (found["Action"], found["PhysicalResourceId"]) == ("Import", "kept")
    stacks.client.execute_change_set(StackName="taker-1", ChangeSetName="take")
    assert stacks.status("taker-1") == "CREATE_COMPLETE"
    with pytest.raises(ClientError, match="kept already belongs to stack taker-1"):
        _take_over(stacks, "taker-2", DeletionPolicy="Retain")


def test_parameters_and_conditions(aws, stacks):
    """A value from the parameter store, a rule of the template, and a resource on condition."""
    aws.client("ssm", REGION).put_parameter(Name="/version", Value="7", Type="String")
    sections = {
        "Parameters": {
            "Version": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/version"}
        },
        "Conditions": {"Old": {"Fn::Equals": [{"Ref": "Version"}, "6"]}},
        "Rules": {
            "Check": {
                "Assertions": [
                    {
                        "Assert": {"Fn::Not": [{"Fn::Contains": [["1", "2"], {"Ref": "Version"}]}]},
                        "AssertDescription": "too old",
                    }
                ]
            }
        },
    }
    wanted = {"Note": parameter({"Ref": "Version"}), "Gone": parameter("x", Condition="Old")}
    assert stacks.create("asked", wanted, **sections) == "CREATE_COMPLETE"
    assert list(stacks.physical("asked")) == ["Note"]
    aws.client("ssm", REGION).put_parameter(
        Name="/version", Value="2", Type="String", Overwrite=True
    )
    with pytest.raises(ClientError, match="too old"):
        stacks.create("asked-again", wanted, **sections)
