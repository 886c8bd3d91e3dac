"""Mistakes, one in each template or request, and what is said of them."""

import pytest
from botocore.exceptions import ClientError

from tests.local_aws.stacks import Stacks

REGION = "eu-west-1"

GROUP = "sg-0123456789abcdef0"
SUBNET = "subnet-0123456789abcdef0"
ROLE = "arn:aws:iam::000000000000:role/r"


def launched(**data):
    """Return a launch template."""
    metadata = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    return "AWS::EC2::LaunchTemplate", {"LaunchTemplateData": {"MetadataOptions": metadata, **data}}


def interface(**more):
    """Return an interface of a launch template."""
    given = {"DeviceIndex": 0, "NetworkCardIndex": 0, "InterfaceType": "efa", "Groups": [GROUP]}
    return given | more


def lustre(*, size=1200, subnets=(SUBNET,), version="2.15", **settings):
    """Return a file system."""
    return "AWS::FSx::FileSystem", {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": size,
        "SubnetIds": list(subnets),
        "FileSystemTypeVersion": version,
        "LustreConfiguration": {
            "DeploymentType": "PERSISTENT_2",
            "PerUnitStorageThroughput": 500,
            **settings,
        },
    }


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
    "a type that nobody has written here": (
        "AWS::SNS::Topic",
        {},
        "Unrecognized resource type, or one that local AWS lacks",
    ),
    "a protocol of a wrong name": (
        "AWS::EC2::SecurityGroupIngress",
        {"GroupId": GROUP, "IpProtocol": "all", "CidrIp": "10.0.0.0/8"},
        "MEKS-0518",
    ),
    "an interface type of a wrong name": (
        *launched(
            InstanceType="p4d.24xlarge", NetworkInterfaces=[interface(InterfaceType="efa_only")]
        ),
        "MEKS-0501: unknown interface type 'efa_only'",
    ),
    "a card without an interface": (
        *launched(InstanceType="p4d.24xlarge", NetworkInterfaces=[interface()]),
        "MEKS-0501: no interface on card 1, 2, 3",
    ),
    "a reservation of a wrong form": (
        *launched(
            CapacityReservationSpecification={
                "CapacityReservationTarget": {"CapacityReservationId": "cr-12"}
            }
        ),
        "MEKS-0508",
    ),
    "an instance type that EC2 does not know": (
        *launched(InstanceType="p5.24xlarge"),
        "MEKS-0515: 'p5.24xlarge' is no instance type",
    ),
    "an instance type of a family that only EC2 could know": (
        *launched(InstanceType="m99.large"),
        "Value 'm99.large' at 'LaunchTemplateData.InstanceType' failed to satisfy constraint",
    ),
    "a throughput that FSx does not sell": (
        *lustre(PerUnitStorageThroughput=200),
        "MEKS-0511: PERSISTENT_2 on SSD has no 200 MB/s per TiB",
    ),
    "a size that FSx does not sell": (*lustre(size=1000), "MEKS-0511"),
    "a scratch file system with a throughput": (*lustre(DeploymentType="SCRATCH_2"), "MEKS-0511"),
    "a compression of a wrong name": (*lustre(DataCompressionType="ZSTD"), "MEKS-0511"),
    "a version of Lustre that is not there": (*lustre(version="2.99"), "MEKS-0511"),
    "a file system in two subnets": (*lustre(subnets=(SUBNET, f"{SUBNET[:-1]}1")), "MEKS-0511"),
    "an image without a driver": (*nodes(AmiType="AL2023_x86_64_STANDARD"), "MEKS-0509"),
    "a way to buy of a wrong name": (*nodes(CapacityType="SPOTS"), "'SPOTS' is not one of"),
    "a smallest size above the largest": (
        *nodes(ScalingConfig={"MinSize": 3, "DesiredSize": 3, "MaxSize": 2}),
        "MEKS-0505",
    ),
    "a disk beside a launch template": (
        *nodes(DiskSize=100, LaunchTemplate={"Id": "lt-0123456789abcdef0", "Version": "1"}),
        "MEKS-0512",
    ),
    "a Kubernetes that EKS no longer runs": (
        "AWS::EKS::Cluster",
        {
            "RoleArn": ROLE,
            "Version": "1.20",
            "ResourcesVpcConfig": {
                "SubnetIds": [SUBNET],
                "EndpointPublicAccess": False,
                "EndpointPrivateAccess": True,
            },
        },
        "MEKS-0516",
    ),
    "an add-on of a wrong name": (
        "AWS::EKS::Addon",
        {"ClusterName": "c", "AddonName": "vpc-cnii"},
        "MEKS-0517",
    ),
    "a cluster that is not there": (
        "AWS::EKS::Addon",
        {"ClusterName": "nobody", "AddonName": "vpc-cni"},
        "No cluster found for name: nobody",
    ),
    "a folder of Lustre without a slash": (
        "AWS::FSx::DataRepositoryAssociation",
        {
            "FileSystemId": "fs-0123456789abcdef0",
            "FileSystemPath": "data",
            "DataRepositoryPath": "s3://b",
        },
        "MEKS-0519",
    ),
    "a machine that CodeBuild does not have": (
        "AWS::CodeBuild::Project",
        {
            "ServiceRole": ROLE,
            "Artifacts": {"Type": "NO_ARTIFACTS"},
            "Source": {"Type": "NO_SOURCE", "BuildSpec": "version: 0.2"},
            "Environment": {
                "Type": "LINUX_CONTAINER",
                "ComputeType": "BUILD_GENERAL1_HUGE",
                "Image": "aws/codebuild/standard:7.0",
            },
        },
        "MEKS-0540",
    ),
    "an address range that is none": (
        "AWS::EC2::VPC",
        {"CidrBlock": "10.0.0.0/99"},
        "MEKS-0564",
    ),
    "a repository's name in capitals": (
        "AWS::ECR::Repository",
        {"RepositoryName": "Upper"},
        "'Upper' does not match",
    ),
    "what only the service knows": (
        "AWS::EC2::Subnet",
        {"VpcId": "vpc-0123456789abcdef0", "CidrBlock": "10.0.0.0/24"},
        "vpc-0123456789abcdef0 does not exist",
    ),
    "a name with a blank": (
        "AWS::EKS::Cluster",
        {
            "Name": "two words",
            "RoleArn": "arn:aws:iam::000000000000:role/r",
            "Version": "1.35",
            "ResourcesVpcConfig": {
                "SubnetIds": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
                "EndpointPublicAccess": False,
                "EndpointPrivateAccess": True,
            },
        },
        "MEKS-0577: 'two words' has ' ': the service refuses it",
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


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({}, "At least one Resources member must be defined"),
        ({"A": {"Properties": {}}}, "must contain a Type member"),
        (
            {"A": {"Type": "AWS::KMS::Key", "Properties": {"Description": {"Ref": "Nobody"}}}},
            "Unresolved resource dependencies",
        ),
        (
            {
                "A": {"Type": "AWS::KMS::Key", "DependsOn": "B"},
                "B": {"Type": "AWS::KMS::Key", "DependsOn": "A"},
            },
            "Circular dependency",
        ),
    ],
)
def test_what_is_no_template_is_refused_at_once(aws, resources, said):
    """No stack is made of it."""
    stacks = Stacks(aws.client("cloudformation", REGION))
    with pytest.raises(ClientError, match=said):
        stacks.create("nothing", resources)


def test_roles_are_made_only_for_who_says_so(aws):
    """Without CAPABILITY_IAM a template with roles is refused."""
    client = aws.client("cloudformation", REGION)
    role = '{"Resources": {"R": {"Type": "AWS::IAM::Role", "Properties": {}}}}'
    with pytest.raises(ClientError, match="CAPABILITY_IAM"):
        client.create_stack(StackName="roles", TemplateBody=role)


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
