"""Guard of how nodes are bought and placed: reservations, Capacity Blocks, spot, groups."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.nodes import node_groups
from megatron_eks.guards.templates import Templates, constants, template_guard
from megatron_eks.guards.values import Row, report, written

_RESERVATION = re.compile(r"cr-([0-9a-f]{8}|[0-9a-f]{17})")
_ONLY = (None, "capacity-reservations-only")
_CLUSTER: Row = ("Strategy", ("cluster", None), "EFA nodes of one job stand far apart")
_FAR = "neither a reservation nor a placement group: nodes start far apart"
_APART = "a reservation made outside this group has no capacity in it"


@template_guard
def capacity(templates: Templates) -> Iterator[Finding]:
    """Group and template buy in one way, name what they buy, and its nodes stand close together.

    A Capacity Block is named three times, and EKS refuses the group, or EC2 starts nothing, with
    one of them missing (EKS User Guide, "Create a managed node group with Capacity Blocks for ML").
    A reservation made outside a placement group has no capacity in it (eksctl issue 7949).
    """
    yield from constants(templates.of("EC2::PlacementGroup"), Code.PLACEMENT, [_CLUSTER])
    for each in [one for one in node_groups(templates) if one.template]:
        kind, market = each.group["CapacityType"], each.data["InstanceMarketOptions"]["MarketType"]
        given, placed = each.data["CapacityReservationSpecification"], each.data["Placement"]
        target, mode = given["CapacityReservationTarget"], given["CapacityReservationPreference"]
        name, arn = target["CapacityReservationId"], target["CapacityReservationResourceGroupArn"]
        block = kind.text == "CAPACITY_BLOCK" or market.text == "capacity-block"
        for matters, value, right, why in (
            (block, kind, ("CAPACITY_BLOCK",), "the template asks for a block"),
            (block, market, ("capacity-block",), "the nodes of a block start in this market only"),
            (not block, market, (None,), "CapacityType says it, and alone"),
            (target, kind, ("ON_DEMAND", "CAPACITY_BLOCK", None), "the reservation stays idle"),
            (target, mode, _ONLY, "EC2 refuses it with a target"),
        ):
            if matters:
                yield from value.must_be(Code.CAPACITY_RESERVATION, *right, why=why)
        nameless = ((given and not mode) or block) and bool(name) == bool(arn)
        wrong = name and not isinstance(name.raw, dict) and not _RESERVATION.fullmatch(name.text)
        unsold = block and each.instance and not each.instance.capacity_blocks
        group = placed["GroupName"] or placed["GroupId"]
        efa = each.instance and each.instance.efa_interfaces and kind.text != "SPOT"
        lone, found = not (group or target or block), "not one of id and group of reservations"
        yield from report(
            Code.CAPACITY_RESERVATION,
            (nameless, target, f"{found}: no node starts", "give CapacityReservationId alone"),
            (wrong, name, f"{written(name.raw)} is no id of a reservation", "write cr-DIGITS"),
            (unsold, kind, f"AWS sells no blocks of {each.type_name}", "set it to 'ON_DEMAND'"),
        )
        yield from report(
            Code.PLACEMENT,
            (efa and lone, placed, _FAR, "name the reservation, or a cluster placement group"),
            (group and (target or block), placed, _APART, "remove one, unless it was made there"),
            level=Level.WARNING,
        )
