"""Guards of how nodes are bought: reservations, Capacity Blocks, spot, placement groups."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.nodes import NodeGroup, node_groups
from megatron_eks.guards.templates import Templates, template_guard
from megatron_eks.guards.values import Value

_BLOCK = "capacity-block"
_RESERVATION = re.compile(r"cr-([0-9a-f]{8}|[0-9a-f]{17})")
_GROUP = re.compile(r"arn:aws[a-z-]*:resource-groups:.+")


@template_guard
def purchase(templates: Templates) -> Iterator[Finding]:
    """Node group and launch template buy in the same way.

    A Capacity Block is named three times, and EKS refuses the group, or EC2 starts nothing, with
    one of them missing (EKS User Guide, "Create a managed node group with Capacity Blocks for ML").
    """
    for each in node_groups(templates):
        if each.template is None:
            continue
        market = each.data["InstanceMarketOptions"]["MarketType"]
        kind, reserved = each.group["CapacityType"], _target(each)
        block = "CAPACITY_BLOCK"
        if market.text == "spot":
            why = "EKS refuses it in the launch template: spot is the node group's CapacityType"
            yield from market.must_be(Code.CAPACITY_RESERVATION, None, why=why)
        elif each.data["InstanceMarketOptions"] and kind.text != block:
            why = "the launch template asks for a Capacity Block"
            yield from kind.must_be(Code.CAPACITY_RESERVATION, block, why=why)
        if market.text != "spot" and (kind.text == block or each.data["InstanceMarketOptions"]):
            why = "the nodes of a Capacity Block start in this market only"
            yield from market.must_be(Code.CAPACITY_RESERVATION, _BLOCK, why=why)
        if kind.text == block:
            yield from _block(each)
        if kind.text == "SPOT" and reserved.raw:
            why = "spot nodes do not start in the reservation, which is paid for and idle"
            yield from kind.must_be(Code.CAPACITY_RESERVATION, "ON_DEMAND", why=why)


@template_guard
def reservation(templates: Templates) -> Iterator[Finding]:
    """Name a reservation by its id or its group, or it stays idle while it is paid for.

    EC2 API, LaunchTemplateCapacityReservationSpecificationRequest.
    """
    for template in templates.of("EC2::LaunchTemplate"):
        given = template["LaunchTemplateData"]["CapacityReservationSpecification"]
        target = given["CapacityReservationTarget"]
        name, group = target["CapacityReservationId"], target["CapacityReservationResourceGroupArn"]
        preference = given["CapacityReservationPreference"]
        if given and not preference and bool(name) == bool(group):
            found = (
                "both an id and a group" if name else "neither an id nor a group of reservations"
            )
            remedy = "name one: CapacityReservationId or CapacityReservationResourceGroupArn"
            yield target.finding(Code.CAPACITY_RESERVATION, f"{found}: EC2 refuses it", remedy)
        if target:
            why = "EC2 refuses it beside a target"
            allowed = (None, "capacity-reservations-only")
            yield from preference.must_be(Code.CAPACITY_RESERVATION, *allowed, why=why)
        for value, form, right in (
            (name, _RESERVATION, "write cr- and 17 hexadecimal digits"),
            (group, _GROUP, "write arn:aws:resource-groups:REGION:ACCOUNT:group/NAME"),
        ):
            if value and not isinstance(value.raw, dict) and not form.fullmatch(value.text):
                found = f"{value.raw!r} is no {value.name}: EC2 finds no capacity by it"
                yield value.finding(Code.CAPACITY_RESERVATION, found, right)


@template_guard
def placement(templates: Templates) -> Iterator[Finding]:
    """Nodes stand close together: by their reservation, or in a cluster placement group.

    A reservation that was made outside a group has no capacity in it (eksctl issue 7949). EC2 User
    Guide, "Placement strategies": spread takes seven instances in a zone.
    """
    for group in templates.of("EC2::PlacementGroup"):
        why = "EFA nodes of one job stand far apart"
        yield from group["Strategy"].must_be(Code.PLACEMENT, "cluster", None, why=why)
    for each in [group for group in node_groups(templates) if group.has_gpus]:
        placed = each.data["Placement"]
        name = placed["GroupName"] or placed["GroupId"]
        named = templates.target(placed["GroupName"])
        kind, reserved = each.group["CapacityType"].text, _target(each)
        if named and named.type != "AWS::EC2::PlacementGroup":
            found = f"{named.name} is no placement group: EC2 refuses the launch"
            yield placed["GroupName"].finding(Code.PLACEMENT, found, "name the pool's group")
        elif name and (reserved.raw or kind == "CAPACITY_BLOCK"):
            found = "a reservation made outside this group has no capacity in it: no node starts"
            remedy = "remove Placement, unless the reservation was made in the group"
            level = Level.ERROR if kind == "CAPACITY_BLOCK" else Level.WARNING
            yield placed.finding(Code.CAPACITY_RESERVATION, found, remedy, level)
        elif not name and not reserved.raw and kind in {"", "ON_DEMAND"} and _talks(each):
            found = "neither a reservation nor a placement group: nodes start from anywhere in the "
            found += "zone, and outside of what is reserved"
            remedy = "name the reservation (CapacityReservationId), or a cluster placement group"
            yield placed.finding(Code.PLACEMENT, found, remedy, Level.WARNING)


def _target(each: NodeGroup) -> Value:
    return each.data["CapacityReservationSpecification"]["CapacityReservationTarget"]


def _talks(each: NodeGroup) -> bool:
    return (
        each.template is not None and each.instance is not None and each.instance.efa_interfaces > 0
    )


def _block(each: NodeGroup) -> Iterator[Finding]:
    target, scaling = _target(each), each.group["ScalingConfig"]
    if not target["CapacityReservationId"] and not target["CapacityReservationResourceGroupArn"]:
        found = "a Capacity Block that nobody names: no node starts in it"
        remedy = "add CapacityReservationTarget with CapacityReservationId: cr-..."
        yield target.finding(Code.CAPACITY_RESERVATION, found, remedy)
    for size in (scaling["MinSize"], scaling["DesiredSize"]):
        if size.number:
            why = "the block may not have started, and then the stack fails"
            yield from size.must_be(Code.CAPACITY_RESERVATION, 0, why=why)
    if each.instance and not each.instance.capacity_blocks:
        found = f"AWS sells no Capacity Blocks of {each.instance.name}"
        remedy = "use a type of the P families, or another CapacityType"
        yield each.data["InstanceType"].finding(Code.CAPACITY_RESERVATION, found, remedy)
