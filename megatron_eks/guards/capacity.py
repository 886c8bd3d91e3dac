"""Guards of how nodes are bought: reservations, Capacity Blocks, spot, placement groups."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.nodes import node_groups
from megatron_eks.guards.templates import Templates, constants, template_guard
from megatron_eks.guards.values import Row, report, written

_BLOCK = "capacity-block"
_RESERVATION = re.compile(r"cr-([0-9a-f]{8}|[0-9a-f]{17})")
_PLACED = {"", "ON_DEMAND"}
_EARLY = "the block may not have started, and then the stack fails"
_CLUSTER: Row = ("Strategy", ("cluster", None), "EFA nodes of one job stand far apart")


@template_guard
def purchase(templates: Templates) -> Iterator[Finding]:
    """Node group and launch template buy in the same way, and name what they buy.

    A Capacity Block is named three times, and EKS refuses the group, or EC2 starts nothing, with
    one of them missing (EKS User Guide, "Create a managed node group with Capacity Blocks for ML").
    """
    for each in [one for one in node_groups(templates) if one.template]:
        kind, market = each.group["CapacityType"], each.data["InstanceMarketOptions"]["MarketType"]
        given, sizes = each.data["CapacityReservationSpecification"], each.group["ScalingConfig"]
        target, mode = given["CapacityReservationTarget"], given["CapacityReservationPreference"]
        name, group = target["CapacityReservationId"], target["CapacityReservationResourceGroupArn"]
        block, spot = kind.text == "CAPACITY_BLOCK", kind.text == "SPOT" and market.text != _BLOCK
        for matters, value, right, why in (
            (market.text == _BLOCK, kind, "CAPACITY_BLOCK", "the template asks for a block"),
            (block, market, _BLOCK, "the nodes of a block start in this market only"),
            (not block and market.text != _BLOCK, market, None, "CapacityType says it, and alone"),
            (spot and target, kind, "ON_DEMAND", "the reservation stays idle"),
            (target and mode, mode, "capacity-reservations-only", "EC2 refuses it with a target"),
            (block and sizes["MinSize"], sizes["MinSize"], 0, _EARLY),
            (block and sizes["DesiredSize"], sizes["DesiredSize"], 0, _EARLY),
        ):
            if matters:
                yield from value.must_be(Code.CAPACITY_RESERVATION, right, why=why)
        nameless = ((given and not mode) or block) and bool(name) == bool(group)
        wrong = name and not isinstance(name.raw, dict) and not _RESERVATION.fullmatch(name.text)
        unsold = block and each.instance and not each.instance.capacity_blocks
        found = "not one of id and group of reservations: no node starts"
        remedy = "give CapacityReservationId alone, or CapacityReservationResourceGroupArn"
        other = f"{written(name.raw)} is no id of a reservation: no node starts"
        yield from report(
            Code.CAPACITY_RESERVATION,
            (nameless, target, found, remedy),
            (wrong, name, other, "write cr- and 17 hexadecimal digits"),
            (unsold, kind, f"AWS sells no blocks of {each.type_name}", "set it to 'ON_DEMAND'"),
        )


@template_guard
def placement(templates: Templates) -> Iterator[Finding]:
    """Nodes stand close together: by their reservation, or in a cluster placement group.

    A reservation that was made outside a group has no capacity in it (eksctl issue 7949; EC2 User
    Guide, "Placement strategies").
    """
    yield from constants(templates.of("EC2::PlacementGroup"), Code.PLACEMENT, (_CLUSTER,))
    for each in [one for one in node_groups(templates) if one.template]:
        placed, kind = each.data["Placement"], each.group["CapacityType"].text
        reserved = each.data["CapacityReservationSpecification"]["CapacityReservationTarget"]
        group, block = placed["GroupName"] or placed["GroupId"], kind == "CAPACITY_BLOCK"
        efa = each.instance and each.instance.efa_interfaces
        if group and (reserved or block):
            found = "a reservation made outside this group has no capacity in it"
            remedy = "remove Placement, unless the reservation was made in the group"
            level = Level.ERROR if block else Level.WARNING
            yield placed.finding(Code.CAPACITY_RESERVATION, found, remedy, level)
        elif not (group or reserved) and kind in _PLACED and efa:
            found = "neither a reservation nor a placement group: nodes start far apart"
            remedy = "name the reservation (CapacityReservationId), or a cluster placement group"
            yield placed.finding(Code.PLACEMENT, found, remedy, Level.WARNING)
