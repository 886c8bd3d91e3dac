"""What moto's EC2 lacks: placement groups, and deletions that what is in use forbids."""

import uuid

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.models.elastic_network_interfaces import NetworkInterface

from megatron_eks.local.aws.services.networks import Ec2Error, Networks
from megatron_eks.local.aws.services.operation import kept, parameters, present
from megatron_eks.local.aws.values import ACCOUNT, Object, Value


class DependencyError(Ec2Error):
    """Something that is to be deleted is in use."""

    code = "DependencyViolation"


class Ec2Api(Networks):
    """EC2 with placement groups, reservations and dependencies."""

    def delete_subnet(self) -> Value:
        """DeleteSubnet, which an interface in it forbids: of a node, a file system, an endpoint."""
        subnet = parameters(self)["SubnetId"]
        if any(each.subnet.id == subnet for each in self._interfaces()):
            raise DependencyError(f"The subnet '{subnet}' has dependencies and cannot be deleted.")
        return super().delete_subnet()

    def delete_security_group(self) -> Value:
        """DeleteSecurityGroup, which an interface and a rule of another group forbid."""
        wanted = parameters(self).get("GroupId")
        used = any(wanted == one.id for each in self._interfaces() for one in each.group_set)
        if wanted and (used or self._is_named(wanted)):
            raise DependencyError(f"resource {wanted} has a dependent object")
        return super().delete_security_group()

    def delete_vpc(self) -> Value:
        """DeleteVpc, which a security group in it forbids."""
        vpc = parameters(self)["VpcId"]
        groups = self.ec2_backend.groups.get(vpc, {}).values()
        if any(each.name != "default" for each in groups):
            raise DependencyError(f"The vpc '{vpc}' has dependencies and cannot be deleted.")
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
        """Tell whether a rule of another group names a group."""
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
        name = given["GroupName"]
        if name in self._groups():
            raise Ec2Error(
                "InvalidPlacementGroup.Duplicate",
                f"The Placement Group '{name}' already exists.",
            )
        number = f"pg-{uuid.uuid4().hex[:17]}"
        group = present(
            {
                "GroupName": name,
                "State": "available",
                "Strategy": given.get("Strategy", "cluster"),
                "PartitionCount": given.get("PartitionCount"),
                "GroupId": number,
                "GroupArn": f"arn:aws:ec2:{self.region}:{ACCOUNT}:placement-group/{name}",
            }
        )
        self._groups()[name] = group
        return ActionResult({"PlacementGroup": group})

    def describe_placement_groups(self) -> ActionResult:
        """DescribePlacementGroups."""
        given = parameters(self)
        wanted = given.get("GroupNames") or list(self._groups())
        return ActionResult({"PlacementGroups": [self._group(name) for name in wanted]})

    def delete_placement_group(self) -> EmptyResult:
        """DeletePlacementGroup."""
        name = parameters(self)["GroupName"]
        self._groups().pop(self._group(name)["GroupName"])
        return EmptyResult()

    def _groups(self) -> Object:
        return kept(self.ec2_backend, "placement_groups")

    def _group(self, name: str) -> Object:
        if name not in self._groups():
            raise Ec2Error(
                "InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown."
            )
        group: Object = self._groups()[name]
        return group
