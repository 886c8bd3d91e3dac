"""Networks: VPCs, subnets, gateways, routes, endpoints and flow logs."""

from megatron_eks.localcloud.aws.resources.ec2 import Ec2, retag
from megatron_eks.localcloud.aws.resources.handler import Context, Handler, Setting
from megatron_eks.localcloud.aws.values import Object


class Eip(Ec2):
    """An address; its physical id is the address itself."""

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Give the address back."""
        del properties
        found = self.attributes(context, physical_id, {})
        context.clients("ec2").release_address(AllocationId=found["AllocationId"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change tags."""
        allocation = str(self.attributes(context, physical_id, {})["AllocationId"])
        super().update(context, allocation, old, new)

    def create(self, context: Context, properties: Object) -> str:
        """Take an address."""
        answer = context.clients("ec2").allocate_address(Domain=properties.get("Domain", "vpc"))
        retag(context, answer["AllocationId"], {}, properties)
        return str(answer["PublicIp"])


class GatewayAttachment(Handler):
    """An Internet gateway in a VPC."""

    kind = "AWS::EC2::VPCGatewayAttachment"
    service = "ec2"
    creates = ("AttachInternetGateway", "")
    identity = ("InternetGatewayId", "VpcId")
    deletes = ("DetachInternetGateway", "InternetGatewayId", "VpcId")


class Route(Handler):
    """One route of a table."""

    kind = "AWS::EC2::Route"
    service = "ec2"
    creates = ("CreateRoute", "")
    identity = ("RouteTableId", "DestinationCidrBlock")
    updates = ("ReplaceRoute",)
    deletes = ("DeleteRoute", "RouteTableId", "DestinationCidrBlock")


class FlowLog(Ec2):
    """Flow logs of one VPC, subnet or interface."""

    def create(self, context: Context, properties: Object) -> str:
        """Begin to log."""
        given = {**properties, "ResourceIds": [properties["ResourceId"]]}
        return super().create(context, given)


HANDLERS: tuple[Handler, ...] = (
    Ec2(
        "AWS::EC2::VPC",
        ("CreateVpc", "Vpc.VpcId"),
        ("DeleteVpc", "VpcId"),
        owner="VpcId",
        settings={
            "EnableDnsSupport": Setting(
                "ModifyVpcAttribute", form=lambda on: {"EnableDnsSupport": {"Value": on}}
            ),
            "EnableDnsHostnames": Setting(
                "ModifyVpcAttribute", form=lambda on: {"EnableDnsHostnames": {"Value": on}}
            ),
        },
    ),
    Ec2(
        "AWS::EC2::Subnet",
        ("CreateSubnet", "Subnet.SubnetId"),
        ("DeleteSubnet", "SubnetId"),
        owner="SubnetId",
        settings={
            "MapPublicIpOnLaunch": Setting(
                "ModifySubnetAttribute", form=lambda on: {"MapPublicIpOnLaunch": {"Value": on}}
            )
        },
    ),
    Ec2(
        "AWS::EC2::InternetGateway",
        ("CreateInternetGateway", "InternetGateway.InternetGatewayId"),
        ("DeleteInternetGateway", "InternetGatewayId"),
    ),
    Ec2(
        "AWS::EC2::NatGateway",
        ("CreateNatGateway", "NatGateway.NatGatewayId"),
        ("DeleteNatGateway", "NatGatewayId"),
    ),
    Ec2(
        "AWS::EC2::RouteTable",
        ("CreateRouteTable", "RouteTable.RouteTableId"),
        ("DeleteRouteTable", "RouteTableId"),
    ),
    Ec2(
        "AWS::EC2::SubnetRouteTableAssociation",
        ("AssociateRouteTable", "AssociationId"),
        ("DisassociateRouteTable", "AssociationId"),
    ),
    Eip(
        "AWS::EC2::EIP",
        ("AllocateAddress", "PublicIp"),
        ("ReleaseAddress", "AllocationId"),
        answers={"AllocationId": "Addresses.0.AllocationId"},
        describes=("DescribeAddresses", "PublicIps"),
    ),
    FlowLog(
        "AWS::EC2::FlowLog",
        ("CreateFlowLogs", "FlowLogIds.0"),
        ("DeleteFlowLogs", "FlowLogIds"),
    ),
    Ec2(
        "AWS::EC2::VPCEndpoint",
        ("CreateVpcEndpoint", "VpcEndpoint.VpcEndpointId"),
        ("DeleteVpcEndpoints", "VpcEndpointIds"),
    ),
    GatewayAttachment(),
    Route(),
)
