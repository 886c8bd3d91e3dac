"""Templates and requests with one mistake each, which CloudFormation refuses before it begins."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.local_aws.stacks import Stacks

REGION = "eu-west-2"
LOGS = {"Type": "AWS::Logs::LogGroup", "Properties": {}}
ROLE = {
    "Type": "AWS::IAM::Role",
    "Properties": {
        "AssumeRolePolicyDocument": {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "ec2.amazonaws.com"},
                    "Action": "sts:AssumeRole",
                }
            ],
        }
    },
}


@pytest.fixture
def stacks(aws):
    """Return CloudFormation of a region that only these tests use."""
    return Stacks(aws.client("cloudformation", REGION))


def named(value):
    """Return resources with one log group, which is called so."""
    return {"Resources": {"L": {**LOGS, "Properties": {"LogGroupName": value}}}}


def asked(kind="String", **more):
    """Return a parameter and a resource."""
    return {"Resources": {"L": LOGS}, "Parameters": {"P": {"Type": kind, **more}}}


def out(**outputs):
    """Return outputs and a resource."""
    return {"Resources": {"L": LOGS}, "Outputs": outputs}


# What is wrong: the template, and what the refusal says.
TEMPLATES = {
    "section": ({"Resources": {"L": LOGS}, "Resource": {}}, r"properties \[Resource\]"),
    "empty section": ({"Resources": {"L": LOGS}, "Outputs": None}, "Outputs must be an object"),
    "version": ({"Resources": {"L": LOGS}, "AWSTemplateFormatVersion": "2012-10-17"}, "no version"),
    "description": ({"Resources": {"L": LOGS}, "Description": "x" * 1025}, "greater than 1024"),
    "macro": ({"Resources": {"L": LOGS}, "Transform": "AWS::Serverless-2016-10-31"}, "no macros"),
    "name": ({"Resources": {"L-1": LOGS}}, "name L-1 is non alphanumeric"),
    "many": ({"Resources": {f"L{n}": LOGS for n in range(501)}}, "maximum allowed, 500"),
    "type": ({"Resources": {"L": {"Type": "AWS::Logs::Group"}}}, r"types: \[AWS::Logs::Group\]"),
    "attribute": ({"Resources": {"L": {**LOGS, "Dependson": "M"}}}, "property 'Dependson'"),
    "properties": ({"Resources": {"L": {**LOGS, "Properties": []}}}, "must be an object"),
    "policy": ({"Resources": {"L": {**LOGS, "DeletionPolicy": "Keep"}}}, "DeletionPolicy Keep"),
    "snapshot": ({"Resources": {"L": {**LOGS, "DeletionPolicy": "Snapshot"}}}, "not support Snap"),
    "condition": ({"Resources": {"L": {**LOGS, "Condition": "C"}}}, "condition dependency C"),
    "if": (named({"Fn::If": ["C", "a", "b"]}), "condition dependency C"),
    "function": (named({"Fn::Concat": ["a", "b"]}), "Fn::Concat"),
    "arguments": (named({"Fn::Join": ["a"]}), "Fn::Join .* a list of 2"),
    "sub": (named({"Fn::Sub": ["a"]}), "Fn::Sub .* malformed"),
    "attribute of": (named({"Fn::GetAtt": "L"}), "Fn::GetAtt .* malformed"),
    "map": (named({"Fn::FindInMap": ["M", "a", "b"]}), "no map M"),
    "map's key": (
        {**named({"Fn::FindInMap": ["M", "a", "b"]}), "Mappings": {"M": {"a": {"c": "x"}}}},
        "no second-level key b",
    ),
    "condition's reference": (
        {"Resources": {"L": LOGS}, "Conditions": {"C": {"Fn::Equals": [{"Ref": "L"}, "x"]}}},
        r"Unresolved dependencies \[L\]",
    ),
    "condition's form": (
        {"Resources": {"L": LOGS}, "Conditions": {"C": "true"}},
        "only be boolean",
    ),
    "output": (out(O={"Description": "x"}), "must contain a Value"),
    "output's name": (out(**{"O-1": {"Value": "x"}}), "O-1 is non alphanumeric"),
    "output's list": (out(O={"Value": ["x"]}), "must evaluate to a String"),
    "export": (out(O={"Value": "x", "Export": {"Name": "a b"}}), "no name of an export"),
    "exports": (
        out(**{each: {"Value": "x", "Export": {"Name": "e"}} for each in "OP"}),
        "Duplicate Export names: e",
    ),
    "parameter's type": (asked("Integer"), "Unrecognized parameter type: Integer"),
    "parameter's property": (asked(Allowed=["a"]), "parameter property 'Allowed'"),
    "parameter and resource": (
        {"Resources": {"L": LOGS}, "Parameters": {"L": {"Type": "String", "Default": "x"}}},
        "names a parameter and a resource",
    ),
    "no value": (asked(), r"Parameters: \[P\] must have values"),
    "pattern": (asked(Default="A", AllowedPattern="[a-z]+"), r"match pattern \[a-z\]"),
    "described": (
        asked(Default="A", AllowedPattern="[a-z]+", ConstraintDescription="small letters"),
        "failed to satisfy constraint: small letters",
    ),
    "number": (asked("Number", Default="one"), "must be a number"),
    "least": (asked("Number", Default=1, MinValue=2), "not less than 2"),
    "most": (asked("Number", Default=3, MaxValue=2), "not greater than 2"),
    "short": (asked(Default="", MinLength=1), "at least 1 char"),
    "long": (asked(Default="abc", MaxLength=2), "at most 2 char"),
    "VPC": (asked("AWS::EC2::VPC::Id", Default="vpc-0123456789abcdef0"), "P does not exist"),
}


@pytest.mark.parametrize("mistake", TEMPLATES)
def test_a_template_with_a_mistake_makes_no_stack(stacks, mistake):
    """Neither a stack nor a change set begins, and what is said is CloudFormation's."""
    template, said = TEMPLATES[mistake]
    body = json.dumps(template)
    with pytest.raises(ClientError, match=said) as caught:
        stacks.client.create_stack(StackName="wrong", TemplateBody=body)
    assert caught.value.response["Error"]["Code"] == "ValidationError"
    with pytest.raises(ClientError, match=said):
        stacks.client.create_change_set(
            StackName="wrong", ChangeSetName="c", ChangeSetType="CREATE", TemplateBody=body
        )
    names = [each["StackName"] for each in stacks.client.describe_stacks()["Stacks"]]
    assert "wrong" not in names


# What is wrong: arguments of CreateStack, and what the refusal says.
REQUESTS: dict[str, tuple[dict[str, object], str]] = {
    "underscore": ({"StackName": "a_b"}, "stackName"),
    "digit": ({"StackName": "1a"}, "stackName"),
    "long name": ({"StackName": "a" * 129}, "less than or equal to 128"),
    "long body": ({"TemplateBody": json.dumps({"x": "y" * 52_000})}, "equal to 51200"),
    "two bodies": ({"TemplateURL": "https://s3.amazonaws.com/b/t"}, "Either Template URL or"),
    "two ways to fail": ({"OnFailure": "DELETE", "DisableRollback": True}, "OnFailure or Disable"),
    "AWS's tag": ({"Tags": [{"Key": "aws:a", "Value": "b"}]}, "aws: prefixed"),
    "tags": ({"Tags": [{"Key": "a", "Value": "b"}] * 2}, "Duplicate tag keys found: a"),
    "parameters": (
        {"Parameters": [{"ParameterKey": "P", "ParameterValue": "x"}] * 2},
        "Duplicate parameter keys",
    ),
}


@pytest.mark.parametrize("mistake", REQUESTS)
def test_a_request_with_a_mistake_makes_no_stack(stacks, mistake):
    """Names, sizes and tags are refused beside a right template."""
    given, said = REQUESTS[mistake]
    right: dict[str, object] = {
        "StackName": "right",
        "TemplateBody": json.dumps({"Resources": {"L": LOGS}}),
    }
    with pytest.raises(ClientError, match=said):
        stacks.client.create_stack(**right | given)


@pytest.mark.parametrize(
    ("name", "given", "needed"),
    [
        ({}, [], "CAPABILITY_IAM"),
        ({"RoleName": "r"}, ["CAPABILITY_IAM"], "CAPABILITY_NAMED_IAM"),
    ],
)
def test_roles_take_an_acknowledgement(stacks, name, given, needed):
    """Named ones take another than those that CloudFormation names."""
    role = {**ROLE, "Properties": ROLE["Properties"] | name}
    body = json.dumps({"Resources": {"Role": role}})
    with pytest.raises(ClientError, match=rf"\[{needed}\]") as caught:
        stacks.client.create_stack(StackName="roles", TemplateBody=body, Capabilities=given)
    assert caught.value.response["Error"]["Code"] == "InsufficientCapabilitiesException"


def test_what_is_unusual_and_right_is_made(stacks):
    """Dates without quotes, a list as a parameter, functions with defaults, and conditions."""
    body = """
AWSTemplateFormatVersion: 2010-09-09
Parameters:
  Days: {Type: Number, Default: 7, MinValue: 1, MaxValue: 30}
  Names: {Type: CommaDelimitedList, Default: "one, two"}
  Loud: {Type: String, Default: true, AllowedValues: [true, false]}
Mappings:
  Sizes: {small: {days: 3}}
Conditions:
  IsLoud: !Equals [!Ref Loud, "true"]
  Both: !And [!Condition IsLoud, !Not [!Equals [!Ref Days, 1]]]
Resources:
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument:
        Version: 2012-10-17
        Statement:
          - {Effect: Allow, Principal: {Service: ec2.amazonaws.com}, Action: "sts:AssumeRole"}
  Group:
    Type: AWS::Logs::LogGroup
    Condition: Both
    Properties:
      LogGroupName: !Join ["/", ["", right, !Select [1, !Ref Names]]]
      RetentionInDays: !If [IsLoud, !Ref Days, !FindInMap [Sizes, small, days]]
Outputs:
  Group: {Condition: Both, Value: !Ref Group, Export: {Name: !Sub "${AWS::StackName}:group"}}
"""
    stacks.client.create_stack(
        StackName="unusual", TemplateBody=body, Capabilities=["CAPABILITY_IAM"]
    )
    assert stacks.status("unusual") == "CREATE_COMPLETE"
    assert stacks.physical("unusual")["Group"] == "/right/two"


IMPORT = {"ChangeSetName": "c", "ChangeSetType": "IMPORT"}


def wanted(name):
    """Return what an import change set is told of a log group."""
    return [
        {
            "ResourceType": "AWS::Logs::LogGroup",
            "LogicalResourceId": name,
            "ResourceIdentifier": {"LogGroupName": "/found"},
        }
    ]


@pytest.mark.parametrize(
    ("policy", "given", "said"),
    [
        ("Retain", {}, "ResourcesToImport must be specified"),
        ("Retain", {"ResourcesToImport": wanted("M")}, r"\[M\] are not in the template"),
        (None, {"ResourcesToImport": wanted("L")}, "must have DeletionPolicy"),
    ],
)
def test_an_import_with_a_mistake_is_refused(stacks, policy, given, said):
    """What is imported is in the template, and says what becomes of it."""
    template = named("/found")
    if policy:
        template["Resources"]["L"]["DeletionPolicy"] = policy
    body = json.dumps(template)
    with pytest.raises(ClientError, match=said):
        stacks.client.create_change_set(
            StackName="imported-wrongly", TemplateBody=body, **IMPORT, **given
        )


def test_an_import_makes_a_stack(aws, stacks):
    """`cdk import` of a new stack: it takes over what exists."""
    aws.client("logs", REGION).create_log_group(logGroupName="/found")
    template = named("/found")
    template["Resources"]["L"]["DeletionPolicy"] = "Retain"
    stacks.client.create_change_set(
        StackName="imported",
        TemplateBody=json.dumps(template),
        ResourcesToImport=wanted("L"),
        **IMPORT,
    )
    stacks.client.execute_change_set(StackName="imported", ChangeSetName="c")
    assert stacks.status("imported") == "IMPORT_COMPLETE"
