"""Mistakes, one in each template or request, and what is said of them."""

import pytest
from botocore.exceptions import ClientError

from tests.annex.aws.stacks import Stacks

REGION = "eu-west-1"

GROUP = "sg-0123456789abcdef0"
SUBNET = "subnet-0123456789abcdef0"
ROLE = "arn:aws:iam::000000000000:role/r"


def launched(**data):
    """Return a launch template."""
    metadata = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    return "AWS::EC2::LaunchTemplate", {"LaunchTemplateData": {"MetadataOptions": metadata, **data}}


def nodes(**properties):
    """Return a node group."""
    return "AWS::EKS::Nodegroup", {
        "ClusterName": "c",
        "NodeRole": ROLE,
        "Subnets": [SUBNET],
        "AmiType": "AL2023_x86_64_NVIDIA",
        "InstanceTypes": ["g5.12xlarge"],
        "ScalingConfig": {"MinSize": 0, "DesiredSize": 0, "MaxSize": 2},
        **properties,
    }


# Name: resource type, its properties, and what the reason says.
MISTAKES = {
    "a property that the type does not have": (
        "AWS::Logs::LogGroup",
        {"LogGroupName": "/x", "Retention": 30},
        "Additional properties are not allowed ('Retention' was unexpected)",
    ),
    "a value that is not one of several": (
        "AWS::Logs::LogGroup",
        {"RetentionInDays": 31},
        "31 is not one of",
    ),
    "a property that must be there": (
        "AWS::SSM::Parameter",
        {"Type": "String"},
        "'Value' is a required property",
    ),
    "a number in the place of a text": (
        "AWS::EC2::VPC",
        {"CidrBlock": "10.0.0.0/16", "EnableDnsSupport": "perhaps"},
        "'perhaps' is not of type 'boolean'",
    ),
    "a type that local AWS lacks": (
        "AWS::SQS::Queue",
        {},
        "Unrecognized resource type, or one that local AWS lacks",
    ),
    "an instance type of a family that only EC2 could know": (
        *launched(InstanceType="m99.large"),
        "Value 'm99.large' at 'LaunchTemplateData.InstanceType' failed to satisfy constraint",
    ),
    "a way to buy of a wrong name": (*nodes(CapacityType="SPOTS"), "'SPOTS' is not one of"),
    "a cluster that is not there": (
        "AWS::EKS::Addon",
        {"ClusterName": "nobody", "AddonName": "vpc-cni"},
        "No cluster found for name: nobody",
    ),
    "a repository's name in capitals": (
        "AWS::ECR::Repository",
        {"RepositoryName": "Upper"},
        "'Upper' does not match",
    ),
    "a policy that AWS does not have": (
        "AWS::IAM::Role",
        {
            "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []},
            "ManagedPolicyArns": ["arn:aws:iam::aws:policy/AmazonFSxFull"],
        },
        "does not exist or is not attachable",
    ),
    "what only the service knows": (
        "AWS::EC2::Subnet",
        {"VpcId": "vpc-0123456789abcdef0", "CidrBlock": "10.0.0.0/24"},
        "vpc-0123456789abcdef0 does not exist",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_the_reason_of_a_rollback(aws, name):
    """The event of the resource says what is wrong with it."""
    kind, properties, said = MISTAKES[name]
    stacks = Stacks(aws.client("cloudformation", REGION))
    resources = {"Wrong": {"Type": kind, "Properties": properties}}
    stack = f"mistake-{list(MISTAKES).index(name)}"
    assert stacks.create(stack, resources) == "ROLLBACK_COMPLETE"
    assert said in stacks.reasons(stack, "CREATE_FAILED")["Wrong"]


def test_a_circle_is_refused(aws):
    """There is no order in which its resources could be made."""
    stacks = Stacks(aws.client("cloudformation", REGION))
    circle = {one: {"Type": "AWS::KMS::Key", "DependsOn": two} for one, two in ("AB", "BA")}
    with pytest.raises(ClientError, match="Circular dependency"):
        stacks.create("circle", circle)


def test_a_client_that_checks_nothing_is_checked(aws):
    """An enumeration and a limit, which botocore leaves to the service."""
    eks = aws.client("eks", REGION)
    with pytest.raises(ClientError, match=r"'amiType' failed .* enum value set") as error:
        eks.create_nodegroup(
            clusterName="c", nodegroupName="n", subnets=[], nodeRole="r", amiType="AL2023"
        )
    assert error.value.response["Error"]["Code"] == "InvalidParameterException"
    with pytest.raises(
        ClientError, match=r"'LustreConfiguration\.PerUnitStorageThroughput' failed"
    ):
        aws.client("fsx", REGION).create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=1200,
            SubnetIds=["subnet-0123456789abcdef0"],
            LustreConfiguration={"PerUnitStorageThroughput": 2000},
        )


def test_an_operation_that_is_not_there_is_said_to_be_missing(aws):
    """No client waits and tries again."""
    with pytest.raises(ClientError, match="local AWS cannot do this"):
        aws.client("eks", REGION).describe_addon_versions()


def test_an_import_by_identifiers_is_refused(aws):
    """And not carried out as an update."""
    cloud = aws.client("cloudformation", REGION)
    with pytest.raises(ClientError, match="cannot import resources by their identifiers"):
        cloud.create_change_set(
            StackName="taken", ChangeSetName="import", ChangeSetType="IMPORT", TemplateBody="{}"
        )
