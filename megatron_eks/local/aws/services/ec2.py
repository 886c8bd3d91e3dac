"""Placement groups, which moto's EC2 lacks."""

import uuid

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.responses import EC2Response

from megatron_eks.local.aws.services.operation import kept, parameters, present
from megatron_eks.local.aws.values import ACCOUNT, Object


class Ec2Error(ServiceException):
    """An error of EC2, by its code."""


class Ec2Api(EC2Response):
    """EC2 with placement groups."""

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
