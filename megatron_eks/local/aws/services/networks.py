"""What EC2 refuses of networks, and moto takes: things that belong together and do not."""

import re

from moto.core.exceptions import ServiceException

from megatron_eks.local.aws.services.operation import parameters
from megatron_eks.local.aws.services.reservations import Reservations
from megatron_eks.local.aws.values import Object, Value

_SERVICE = re.compile(r"com\.amazonaws\.(?P<region>[a-z]{2}(-[a-z]+)+-\d)\.")


class Ec2Error(ServiceException):
    """An error of EC2, by its code."""


class Networks(Reservations):
    """EC2 that looks at both ends of what it connects."""

    def create_nat_gateway(self) -> Value:
        """CreateNatGateway; an address serves one."""
        allocation = parameters(self).get("AllocationId")
        if allocation:
            (address, *_) = self.ec2_backend.address_by_allocation([allocation])
            if address.association_id:
                raise Ec2Error(
                    "Resource.AlreadyAssociated",
                    f"Elastic IP address [{allocation}] is already associated",
                )
        return super().create_nat_gateway()

    def attach_internet_gateway(self) -> Value:
        """AttachInternetGateway; a VPC has one at most."""
        vpc = parameters(self)["VpcId"]
        if any(each.vpc and each.vpc.id == vpc for each in self._gateways()):
            raise Ec2Error(
                "InvalidParameterValue", f"Network {vpc} already has an internet gateway attached"
            )
        return super().attach_internet_gateway()

    def create_route(self) -> Value:
        """CreateRoute; an internet gateway is of the table's VPC, and attached before."""
        given = parameters(self)
        gateway, table = given.get("GatewayId") or "", given["RouteTableId"]
        found = [each for each in self._gateways() if each.id == gateway]
        own = self.ec2_backend.get_route_table(table).vpc_id
        if found and (found[0].vpc is None or found[0].vpc.id != own):
            raise Ec2Error(
                "InvalidParameterValue",
                f"route table {table} and network gateway {gateway} belong to different networks",
            )
        return super().create_route()

    def authorize_security_group_ingress(self) -> Value:
        """AuthorizeSecurityGroupIngress; a group of another VPC takes a peering."""
        self._check_groups(parameters(self))
        return super().authorize_security_group_ingress()

    def authorize_security_group_egress(self) -> Value:
        """AuthorizeSecurityGroupEgress, likewise."""
        self._check_groups(parameters(self))
        return super().authorize_security_group_egress()

    def create_vpc_endpoint(self) -> Value:
        """CreateVpcEndpoint; a service is of this region, or its region is named."""
        given = parameters(self)
        name = given.get("ServiceName") or ""
        match = _SERVICE.match(name)
        if match and match["region"] != self.region and not given.get("ServiceRegion"):
            raise Ec2Error(
                "InvalidServiceName", f"The Vpc Endpoint Service '{name}' does not exist"
            )
        return super().create_vpc_endpoint()

    def _gateways(self) -> list[Value]:
        return list(self.ec2_backend.internet_gateways.values())

    def _check_groups(self, given: Object) -> None:
        own = self.ec2_backend.get_security_group_from_id(given.get("GroupId"))
        if own is None or self.ec2_backend.vpc_pcxs:
            return
        for rule in given.get("IpPermissions") or []:
            for pair in rule.get("UserIdGroupPairs") or []:
                other = self.ec2_backend.get_security_group_from_id(pair.get("GroupId"))
                if other is not None and other.vpc_id != own.vpc_id:
                    raise Ec2Error(
                        "InvalidGroup.NotFound",
                        "You have specified two resources that belong to different networks.",
                    )
