"""The VPC, its subnets, and the way out of them."""

import pytest

from megatron_eks.guards.check import check_templates
from tests.guards.slips import ABSENT, Json, in_template

GONE = "AWS::CloudFormation::WaitConditionHandle"
HTTPS = {"CidrIp": "0.0.0.0/0", "IpProtocol": "tcp", "FromPort": 443, "ToPort": 443}
LINK = "EC2::SubnetRouteTableAssociation Private"
PUBLIC = {"Ref": "PublicRoutes"}
PART, UNUSED = "NETWORK_PART", "ENDPOINT_UNUSED"


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        ("EC2::VPC", "EnableDnsHostnames", False, PART),
        ("EC2::Subnet Private", "MapPublicIpOnLaunch", True, "PUBLIC_ADDRESS"),
        (LINK, "Type", GONE, PART),
        (LINK, "RouteTableId", PUBLIC, PART),
        ("EC2::Route Private", "NatGatewayId", ABSENT, PART),
        ("EC2::Route Private", "DestinationCidrBlock", "10.0.0.0/8", PART),
        ("EC2::NatGateway", "Type", GONE, PART),
        ("EC2::NatGateway", "SubnetId", {"Ref": "PrivateSubnetuseast2a"}, PART),
        ("EC2::VPCEndpoint S3", "Type", GONE, UNUSED),
        ("EC2::VPCEndpoint S3", "RouteTableIds", [PUBLIC], UNUSED),
        ("EC2::SecurityGroup Node", "SecurityGroupIngress", [HTTPS], "OPEN_TO_ALL"),
        ("EC2::Subnet Private", "CidrBlock", "10.0.0.0/28", "SUBNETS"),
        ("EC2::Subnet Private", "AvailabilityZone", "us-east-2b", "SUBNETS"),
    ],
)
def test_mistakes_in_the_network(resource, path, value, code):
    """Each is found under its code."""
    assert code in in_template(resource, path, value)


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        ("EC2::VPCEndpoint eksauth", "PrivateDnsEnabled", False, UNUSED),
        ("EC2::VPCEndpoint ecrapi", "ServiceName", "com.amazonaws.us-west-2.ecr.api", UNUSED),
        ("EC2::VPCEndpoint ecrapi", "SecurityGroupIds", ABSENT, UNUSED),
        ("EC2::SecurityGroup Endpoint", "SecurityGroupIngress 0 ToPort", 80, UNUSED),
        ("EC2::SecurityGroup Endpoint", "SecurityGroupIngress 0 CidrIp", "10.1.0.0/16", UNUSED),
    ],
)
def test_mistakes_in_endpoints(resource, path, value, code):
    """Endpoints that cannot be used are found."""
    assert code in in_template(resource, path, value, "private-cluster")


def test_endpoints_are_the_way_out_without_nat():
    """Each one that is missing is named."""
    tag = {"Key": "kubernetes.io/role/internal-elb", "Value": "1"}
    subnet = {"AvailabilityZone": "us-east-2a", "Tags": [tag]}
    link = {"SubnetId": {"Ref": "S"}, "RouteTableId": {"Ref": "T"}}
    resources: Json = {
        "S": {"Type": "AWS::EC2::Subnet", "Properties": subnet},
        "T": {"Type": "AWS::EC2::RouteTable", "Properties": {}},
        "A": {"Type": "AWS::EC2::SubnetRouteTableAssociation", "Properties": link},
    }
    for name in ("ec2", "ecr.api", "ecr.dkr"):
        service = {"ServiceName": f"com.amazonaws.us-east-2.{name}"}
        resources[name] = {"Type": "AWS::EC2::VPCEndpoint", "Properties": service}
    found = [each.found for each in check_templates({"Network": {"Resources": resources}})]
    assert [each for each in found if "no NAT gateway" in each] == [
        "no NAT gateway, and no endpoint for eks-auth: nodes or pods cannot reach it"
    ]


@pytest.mark.parametrize(
    ("resource", "path", "value"),
    [
        ("EC2::SecurityGroup Node", "SecurityGroupEgress", lambda rules: [*rules, HTTPS]),
        ("EC2::Subnet Private", "MapPublicIpOnLaunch", ABSENT),
        ("EC2::Subnet PrivateSubnetuseast2b", "CidrBlock", "10.0.64.0/19"),
    ],
)
def test_other_networks_that_work(resource, path, value):
    """Nothing is found in them."""
    assert in_template(resource, path, value) == set()
