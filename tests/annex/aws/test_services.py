"""What services refuse, and that nothing is left of it; secrets that stay with them."""

import pytest

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
    "A": of(
        "EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.0.0/24", AvailabilityZone=f"{REGION}a"
    ),
    "B": of(
        "EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.0.1.0/24", AvailabilityZone=f"{REGION}b"
    ),
}


SIZES = {"MinSize": 0, "DesiredSize": 1, "MaxSize": 2}
CLUSTER = {
    "ClusterRole": of(
        "IAM::Role",
        AssumeRolePolicyDocument=trusting("eks.amazonaws.com"),
        ManagedPolicyArns=["arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"],
    ),
    "Cluster": of(
        "EKS::Cluster",
        Name="services",
        Version="1.35",
        RoleArn=ref("ClusterRole", "Arn"),
        ResourcesVpcConfig={"SubnetIds": [ref("A"), ref("B")]},
    ),
}


# What is wrong: more resources, the one that is refused, and what is said of it.
MISTAKES = {
    "nodes in a subnet that is not there": (
        CLUSTER
        | {
            "Nodes": of(
                "EKS::Nodegroup",
                ClusterName=ref("Cluster"),
                NodeRole=ref("ClusterRole", "Arn"),
                InstanceTypes=["g5.12xlarge"],
                AmiType="AL2023_x86_64_NVIDIA",
                ScalingConfig=SIZES,
                Subnets=["subnet-0123456789abcdef0"],
            )
        },
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
