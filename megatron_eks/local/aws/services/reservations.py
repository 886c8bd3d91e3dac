"""Capacity reservations of EC2, which moto lacks; Capacity Blocks among them, without a price."""

import uuid
from datetime import UTC, datetime

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

from megatron_eks.local.aws.services.operation import NotFoundError, kept, parameters, present
from megatron_eks.local.aws.values import ACCOUNT, Object


class UnknownReservationError(NotFoundError):
    """No such reservation."""

    code = "InvalidCapacityReservationId.NotFound"


class Reservations(EC2Response):
    """Operations on capacity reservations."""

    def create_capacity_reservation(self) -> ActionResult:
        """CreateCapacityReservation; active at once."""
        given = parameters(self)
        number = f"cr-{uuid.uuid4().hex[:17]}"
        count = int(given["InstanceCount"])
        found = present(
            {
                "CapacityReservationId": number,
                "OwnerId": ACCOUNT,
                "InstanceType": given["InstanceType"],
                "InstancePlatform": given["InstancePlatform"],
                "AvailabilityZone": given.get("AvailabilityZone"),
                "TotalInstanceCount": count,
                "AvailableInstanceCount": count,
                "State": "active",
                "StartDate": datetime.now(tz=UTC),
                "EndDate": given.get("EndDate"),
                "InstanceMatchCriteria": given.get("InstanceMatchCriteria", "open"),
            }
        )
        self._reservations()[number] = found
        return ActionResult({"CapacityReservation": found})

    def describe_capacity_reservations(self) -> ActionResult:
        """DescribeCapacityReservations; an unknown one is an error."""
        wanted = parameters(self).get("CapacityReservationIds") or list(self._reservations())
        return ActionResult({"CapacityReservations": [self._reservation(each) for each in wanted]})

    def cancel_capacity_reservation(self) -> ActionResult:
        """CancelCapacityReservation; it stays visible for a while."""
        found = self._reservation(parameters(self)["CapacityReservationId"])
        found |= {"State": "cancelled", "AvailableInstanceCount": 0}
        return ActionResult({"Return": True})

    def _reservations(self) -> Object:
        return kept(self.ec2_backend, "reservations")

    def _reservation(self, number: str) -> Object:
        if number not in self._reservations():
            raise UnknownReservationError(f"The Capacity Reservation '{number}' does not exist.")
        found: Object = self._reservations()[number]
        return found
