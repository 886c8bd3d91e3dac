"""What moto's EC2 lacks: placement groups, capacity reservations, and what EC2 refuses.

It refuses deletions of what is in use. Capacity Blocks are among the reservations, without a price.
"""

import uuid
from datetime import UTC, datetime

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.models.elastic_network_interfaces import NetworkInterface
from moto.ec2.responses import EC2Response

from megatron_eks.localcloud.aws.services.operation import (
    ServiceError,
    found,
    kept,
    parameters,
    taken,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Value


class Ec2Api(EC2Response):
    """EC2 with placement groups, reservations and dependencies."""

    def create_capacity_reservation(self) -> ActionResult:
        """CreateCapacityReservation; active at once."""
        given = parameters(self)
        number = f"cr-{uuid.uuid4().hex[:17]}"
        count = int(given["InstanceCount"])
        reservation = {
            "InstanceMatchCriteria": "open",
            **given,
            "CapacityReservationId": number,
            "OwnerId": ACCOUNT,
            "TotalInstanceCount": count,
            "AvailableInstanceCount": count,
            "State": "active",
            "StartDate": datetime.now(tz=UTC),
        }
        kept(self.ec2_backend, "reservations")[number] = reservation
        return ActionResult({"CapacityReservation": reservation})

    def describe_capacity_reservations(self) -> ActionResult:
        """DescribeCapacityReservations; an unknown one is an error."""
        wanted = parameters(self).get("CapacityReservationIds")
        code = "InvalidCapacityReservationId.NotFound"
        reservations = [
            found(self.ec2_backend, "reservations", each, code)
            for each in wanted or kept(self.ec2_backend, "reservations")
        ]
        return ActionResult({"CapacityReservations": reservations})

    def delete_subnet(self) -> Value:
        """DeleteSubnet, which an interface in it forbids: of a node, a file system, an endpoint."""
        subnet = parameters(self)["SubnetId"]
        if any(each.subnet.id == subnet for each in self._interfaces()):
            raise ServiceError(
                "DependencyViolation",
                f"The subnet '{subnet}' has dependencies and cannot be deleted.",
            )
        return super().delete_subnet()

    def delete_security_group(self) -> Value:
        """DeleteSecurityGroup, which an interface and a rule of another group forbid."""
        wanted = parameters(self).get("GroupId")
        used = any(wanted == one.id for each in self._interfaces() for one in each.group_set)
        if wanted and (used or self._is_named(wanted)):
            raise ServiceError("DependencyViolation", f"resource {wanted} has a dependent object")
        return super().delete_security_group()

    def delete_vpc(self) -> Value:
        """DeleteVpc, which a security group in it forbids."""
        vpc = parameters(self)["VpcId"]
        groups = self.ec2_backend.groups.get(vpc, {}).values()
        if any(each.name != "default" for each in groups):
            raise ServiceError(
                "DependencyViolation", f"The vpc '{vpc}' has dependencies and cannot be deleted."
            )
        return super().delete_vpc()

    def delete_nat_gateway(self) -> Value:
        """DeleteNatGateway, and its interface."""
        gateway = self.ec2_backend.nat_gateways.get(parameters(self)["NatGatewayId"])
        answer = super().delete_nat_gateway()
        if gateway is not None:
            self.ec2_backend.enis.pop(gateway._eni.id, None)  # noqa: SLF001 -- moto keeps it there
        return answer

    def _interfaces(self) -> list[NetworkInterface]:
        """Return the interfaces that live; moto keeps those of instances that have ended."""
        return [
            each
            for each in self.ec2_backend.enis.values()
            if each.instance is None or each.instance.state != "terminated"
        ]

    def _is_named(self, wanted: str) -> bool:
        return any(
            source.get("GroupId") == wanted
            for groups in self.ec2_backend.groups.values()
            for group in groups.values()
            if group.id != wanted
            for rule in (*group.ingress_rules, *group.egress_rules)
            for source in (rule.source_group or {},)
        )

    def create_placement_group(self) -> ActionResult:
        """CreatePlacementGroup."""
        given = parameters(self)
        name, groups = given["GroupName"], kept(self.ec2_backend, "placement_groups")
        if name in groups:
            raise ServiceError(
                "InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists."
            )
        groups[name] = {
            "Strategy": "cluster",
            **given,
            "State": "available",
            "GroupId": f"pg-{uuid.uuid4().hex[:17]}",
            "GroupArn": f"arn:aws:ec2:{self.region}:{ACCOUNT}:placement-group/{name}",
        }
        return ActionResult({"PlacementGroup": groups[name]})

    def delete_placement_group(self) -> EmptyResult:
        """DeletePlacementGroup."""
        code = "InvalidPlacementGroup.Unknown"
        taken(self.ec2_backend, "placement_groups", parameters(self)["GroupName"], code)
        return EmptyResult()
