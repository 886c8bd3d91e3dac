"""What services refuse of things that do not go together, and that nothing is left of it."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.annex.aws.stacks import Stacks

REGION = "eu-west-3"


def of(kind, **properties):
    """Return a resource."""
    return {"Type": f"AWS::{kind}", "Properties": properties}


def ref(name, attribute=None):
    """Return a reference to a resource, or to one of its attributes."""
    return {"Fn::GetAtt": [name, attribute]} if attribute else {"Ref": name}


def trusting(service):
    """Return a role's trust in a service."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [statement]}


NETWORK = {
    "Vpc": of("EC2::VPC", CidrBlock="10.0.0.0/16", EnableDnsHostnames=True),
    "Other": of("EC2::VPC", CidrBlock="10.1.0.0/16", EnableDnsHostnames=True),
    "A": of(
        "EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.0.0/24", AvailabilityZone=f"{REGION}a"
    ),
    "B": of(
        "EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.1.0/24", AvailabilityZone=f"{REGION}b"
    ),
    "Group": of("EC2::SecurityGroup", GroupDescription="a", VpcId=ref("Vpc")),
    "ForeignGroup": of("EC2::SecurityGroup", GroupDescription="b", VpcId=ref("Other")),
    "Gateway": of("EC2::InternetGateway"),
    "Routes": of("EC2::RouteTable", VpcId=ref("Vpc")),
}
ATTACHED = of("EC2::VPCGatewayAttachment", VpcId=ref("Vpc"), InternetGatewayId=ref("Gateway"))
OUT = of(
    "EC2::Route",
    RouteTableId=ref("Routes"),
    DestinationCidrBlock="0.0.0.0/0",
    GatewayId=ref("Gateway"),
)
ADDRESS = of("EC2::EIP", Domain="vpc")


def cluster(**network):
    """Return a cluster and its role."""
    access = {"PublicAccessCidrs": ["8.8.8.8/32"], "SubnetIds": [ref("A"), ref("B")]}
    policy = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
    return {
        "ClusterRole": of(
            "IAM::Role",
            AssumeRolePolicyDocument=trusting("eks.amazonaws.com"),
            ManagedPolicyArns=[policy],
        ),
        "Cluster": of(
            "EKS::Cluster",
            Name="services",
            Version="1.35",
            RoleArn=ref("ClusterRole", "Arn"),
            ResourcesVpcConfig=access | network,
        ),
    }


def nodes(**properties):
    """Return a node group with its cluster and role."""
    policies = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryReadOnly")
    return cluster() | {
        "NodeRole": of(
            "IAM::Role",
            AssumeRolePolicyDocument=trusting("ec2.amazonaws.com"),
            ManagedPolicyArns=[f"arn:aws:iam::aws:policy/{each}" for each in policies],
        ),
        "Nodes": of(
            "EKS::Nodegroup",
            ClusterName=ref("Cluster"),
            NodeRole=ref("NodeRole", "Arn"),
            InstanceTypes=["g5.12xlarge"],
            AmiType="AL2023_x86_64_NVIDIA",
            **properties,
        ),
    }


# What is wrong: more resources, the one that is refused, and what is said of it.
MISTAKES = {
    "a second gateway": (
        {
            "Attached": ATTACHED,
            "Second": of("EC2::InternetGateway"),
            "Wrong": {
                **of(
                    "EC2::VPCGatewayAttachment",
                    VpcId=ref("Vpc"),
                    InternetGatewayId=ref("Second"),
                ),
                "DependsOn": "Attached",
            },
        },
        "Wrong",
        "already has an internet gateway attached",
    ),
    "a gateway of nobody": ({"Wrong": OUT}, "Wrong", "belong to different networks"),
    "an address for two gateways": (
        {
            "Attached": ATTACHED,
            "Wide": {**OUT, "DependsOn": "Attached"},
            "Joined": of(
                "EC2::SubnetRouteTableAssociation", SubnetId=ref("A"), RouteTableId=ref("Routes")
            ),
            "Address": ADDRESS,
            "First": of(
                "EC2::NatGateway", SubnetId=ref("A"), AllocationId=ref("Address", "AllocationId")
            ),
            "Wrong": {
                **of(
                    "EC2::NatGateway",
                    SubnetId=ref("A"),
                    AllocationId=ref("Address", "AllocationId"),
                ),
                "DependsOn": "First",
            },
        },
        "Wrong",
        "is already associated",
    ),
    "groups of two networks": (
        {
            "Wrong": of(
                "EC2::SecurityGroupIngress",
                GroupId=ref("Group", "GroupId"),
                IpProtocol="-1",
                SourceSecurityGroupId=ref("ForeignGroup", "GroupId"),
            )
        },
        "Wrong",
        "belong to different networks",
    ),
    "an endpoint of another region": (
        {
            "Wrong": of(
                "EC2::VPCEndpoint",
                VpcId=ref("Vpc"),
                VpcEndpointType="Gateway",
                ServiceName="com.amazonaws.us-west-2.s3",
                RouteTableIds=[ref("Routes")],
            )
        },
        "Wrong",
        "'com.amazonaws.us-west-2.s3' does not exist",
    ),
    "nodes in no subnet": (nodes(Subnets=[]), "Nodes", "a node group needs at least one subnet"),
    "nodes in a subnet that is not there": (
        nodes(Subnets=["subnet-0123456789abcdef0"]),
        "Nodes",
        "does not exist",
    ),
    "a policy that AWS does not have": (
        {
            "Wrong": of(
                "IAM::Role",
                AssumeRolePolicyDocument=trusting("ec2.amazonaws.com"),
                ManagedPolicyArns=["arn:aws:iam::aws:policy/AmazonFSxFull"],
            )
        },
        "Wrong",
        "does not exist or is not attachable",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_and_nothing_is_left(aws, name):
    """The resource's event says why, and the stack goes back to nothing."""
    more, wrong, said = MISTAKES[name]
    stacks = Stacks(aws.client("cloudformation", REGION))
    stack = f"service-{list(MISTAKES).index(name)}"
    status = stacks.create(stack, NETWORK | more)
    reasons = stacks.reasons(stack, "CREATE_FAILED")
    assert said in reasons.get(wrong, ""), reasons
    assert status == "ROLLBACK_COMPLETE", stacks.reasons(stack, "DELETE_FAILED")


def test_sizes_that_are_not_given_are_chosen(aws):
    """A node group with one of the three sizes is made, and goes with its stack."""
    stacks = Stacks(aws.client("cloudformation", REGION))
    group = nodes(Subnets=[ref("A")], ScalingConfig={"MaxSize": 3})
    assert stacks.create("sizes", NETWORK | group) == "CREATE_COMPLETE"
    eks = aws.client("eks", REGION)
    (name,) = eks.list_nodegroups(clusterName="services")["nodegroups"]
    found = eks.describe_nodegroup(clusterName="services", nodegroupName=name)["nodegroup"]
    assert found["scalingConfig"] == {"minSize": 1, "desiredSize": 1, "maxSize": 3}
    assert stacks.delete("sizes") == "DELETE_COMPLETE"


def project(**more):
    """Return a project without a source, whose steps are its own."""
    steps = json.dumps({"version": "0.2", "phases": {"build": {"commands": ["true"]}}})
    return {
        "name": "steps",
        "source": {"type": "NO_SOURCE", "buildspec": steps},
        "artifacts": {"type": "NO_ARTIFACTS"},
        "environment": {
            "type": "LINUX_CONTAINER",
            "image": "aws/codebuild/standard:7.0",
            "computeType": "BUILD_GENERAL1_SMALL",
        },
        "serviceRole": "arn:aws:iam::000000000000:role/r",
        **more,
    }


def test_a_project_without_a_source_has_its_steps_alone(aws):
    """Nobody asks it for a place, and its build succeeds."""
    codebuild = aws.client("codebuild", REGION)
    codebuild.create_project(**project())
    (found,) = codebuild.batch_get_projects(names=["steps"])["projects"]
    assert "location" not in found["source"]
    assert codebuild.start_build(projectName="steps")["build"]["buildStatus"] == "SUCCEEDED"


def test_a_part_of_a_network_is_none(aws):
    """CodeBuild takes a VPC with subnets and groups."""
    with pytest.raises(ClientError, match="subnets and securityGroupIds must be specified"):
        aws.client("codebuild", REGION).create_project(
            **project(name="part", vpcConfig={"vpcId": "vpc-0123456789abcdef0"})
        )


def test_a_subscription_whose_address_is_a_secret(aws):
    """Its value comes to the topic, and into nothing that CloudFormation shows."""
    url, name = "https://events.example.com/integration/0123abcd/enqueue", "prod/alarms"
    aws.client("secretsmanager", REGION).create_secret(Name=name, SecretString=url)
    endpoint = f"{{{{resolve:secretsmanager:{name}:SecretString}}}}"
    resources = {
        "Topic": of("SNS::Topic", TopicName="alarms"),
        "Webhook": of(
            "SNS::Subscription", TopicArn=ref("Topic"), Protocol="https", Endpoint=endpoint
        ),
    }
    client = aws.client("cloudformation", REGION)
    stacks = Stacks(client)
    assert stacks.create("told", resources) == "CREATE_COMPLETE"
    (found,) = aws.client("sns", REGION).list_subscriptions()["Subscriptions"]
    assert (found["Protocol"], found["Endpoint"]) == ("https", url)
    assert stacks.changes("told", resources) == []
    shown = client.describe_stack_events(StackName="told"), client.get_template(StackName="told")
    assert url not in str(shown)
    assert stacks.delete("told") == "DELETE_COMPLETE"
    resources["Webhook"]["Properties"]["Endpoint"] = endpoint.replace(name, "prod/none")
    assert stacks.create("untold", resources) == "ROLLBACK_COMPLETE"
    assert "find the specified secret" in str(stacks.reasons("untold", "CREATE_FAILED"))
    assert stacks.delete("untold") == "DELETE_COMPLETE"
    aws.client("secretsmanager", REGION).delete_secret(
        SecretId=name, ForceDeleteWithoutRecovery=True
    )
