"""Reservations, Capacity Blocks, spot and placement groups."""

import pytest

from tests.guards.slips import ABSENT, in_template

_GPU, _TEMPLATE = "EKS::Nodegroup Pool", "EC2::LaunchTemplate Pool"
_TARGET = "LaunchTemplateData CapacityReservationSpecification CapacityReservationTarget"
_MARKET = "LaunchTemplateData InstanceMarketOptions"
_PLACEMENT = "LaunchTemplateData Placement"
_ID = f"{_TARGET} CapacityReservationId"
_ARN = "arn:aws:resource-groups:us-east-2:123456789012:group/p5"
_BLOCK, _RESERVED, _ON_DEMAND = "p5-capacity-block", "p5-reservation", "default"
_WRONG = {"CAPACITY_RESERVATION"}


@pytest.mark.parametrize(
    ("cluster", "resource", "path", "value", "codes"),
    [
        (_RESERVED, _TEMPLATE, _TARGET, {"CapacityReservationResourceGroupArn": _ARN}, set()),
        (_RESERVED, _TEMPLATE, f"{_TARGET} CapacityReservationResourceGroupArn", _ARN, _WRONG),
        (_RESERVED, _TEMPLATE, _ID, ABSENT, _WRONG),
        (_RESERVED, _TEMPLATE, _ID, "cb-0123456789abcdef0", _WRONG),
        (_BLOCK, _GPU, "UpdateConfig UpdateStrategy", "DEFAULT", _WRONG),
        (_RESERVED, _TEMPLATE, _TARGET.rsplit(maxsplit=1)[0], ABSENT, {"PLACEMENT"}),
        (_RESERVED, _TEMPLATE, _PLACEMENT, {"GroupName": "rack"}, {"PLACEMENT"}),
        (_RESERVED, _GPU, "CapacityType", "SPOT", _WRONG),
        (_RESERVED, _GPU, "CapacityType", "CAPACITY_BLOCK", _WRONG),
        (_BLOCK, _GPU, "CapacityType", ABSENT, _WRONG),
        (_BLOCK, _GPU, "ScalingConfig DesiredSize", 2, {"NODE_GROUP_SIZE"}),
        (_BLOCK, _TEMPLATE, _MARKET, ABSENT, _WRONG),
        (_BLOCK, _TEMPLATE, _MARKET, {"MarketType": "spot"}, _WRONG),
        (_BLOCK, _TEMPLATE, _ID, ABSENT, _WRONG),
        (_BLOCK, _TEMPLATE, _PLACEMENT, {"GroupName": "rack"}, {"PLACEMENT"}),
        (_ON_DEMAND, _GPU, "CapacityType", "SPOT", set()),
        (_ON_DEMAND, _TEMPLATE, _PLACEMENT, ABSENT, {"PLACEMENT"}),
        (_ON_DEMAND, "EC2::PlacementGroup", "Strategy", "spread", {"PLACEMENT"}),
    ],
)
def test_capacity(cluster, resource, path, value, codes):
    """Node group and launch template buy in the same way, and nodes stand close together."""
    assert in_template(resource, path, value, cluster) == codes
