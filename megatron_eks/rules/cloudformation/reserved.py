"""Rules over capacity reservations that are made here, and the nodes that should run in them."""

import json
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.launch_templates import DATA, LaunchTemplate, launch_templates
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, number, text

_KIND = "AWS::EC2::CapacityReservation"
_GROUP = "AWS::ResourceGroups::Group"
_PATH = (DATA, "CapacityReservationSpecification")


def unused(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a targeted reservation that something targets it.

    EC2 User Guide, "Create a Capacity Reservation": only instances that name a targeted reservation
    run in it; it is paid whether used or not.
    """
    for reservation in templates.resources(_KIND):
        criteria = templates.default(
            reservation.properties.get("InstanceMatchCriteria"), reservation.file
        )
        if criteria == "targeted" and not _is_named(reservation, templates):
            found = "targeted, and nothing here targets it: it is paid, and stays empty"
            remedy = "name it in the launch template: CapacityReservationSpecification."
            remedy += f"CapacityReservationTarget.CapacityReservationId, Ref {reservation.id}"
            path = ("InstanceMatchCriteria",)
            yield reservation.find(Code.CAPACITY_RESERVATION, path, found, remedy)


def _is_named(reservation: Resource, templates: TemplateSet) -> bool:
    """Tell whether a resource, or an output, names it; what leaves the stack may be used there."""
    quoted = (f'"{reservation.id}"', f"${{{reservation.id}}}", f"${{{reservation.id}.")
    parts = [
        json.dumps(dict(each.body))
        for each in templates.everything()
        if each.file == reservation.file and each is not reservation
    ]
    # A group that is made elsewhere may have it.
    if any(_is_of_a_group(each) for each in launch_templates(templates)):
        return True
    parts += [json.dumps(each) for file, each in templates.outputs() if file == reservation.file]
    return any(mark in part for part in parts for mark in quoted)


def _is_of_a_group(template: LaunchTemplate) -> bool:
    specification = mapping(template.data.get("CapacityReservationSpecification")) or {}
    target = mapping(specification.get("CapacityReservationTarget")) or {}
    group = text(target.get("CapacityReservationResourceGroupArn")) or ""
    return group.startswith("arn:")


def fitting(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a targeted reservation the type and zone of the nodes that target it.

    EC2 User Guide, "Launch instances into an existing Capacity Reservation": type, platform and
    zone must be those of the reservation, or the launch ends in InsufficientInstanceCapacity.
    """
    for template in launch_templates(templates):
        specification = mapping(template.data.get("CapacityReservationSpecification")) or {}
        target = mapping(specification.get("CapacityReservationTarget")) or {}
        reservation = templates.target(target.get("CapacityReservationId"), template.resource.file)
        if reservation is None or reservation.type != _KIND:
            continue
        given = text(
            templates.default(reservation.properties.get("InstanceType"), reservation.file)
        )
        if given and template.instance_type and given != template.instance_type:
            found = f"{reservation.id} reserves {given}, and this launches {template.instance_type}"
            yield _wrong(template, found, f"launch {given}, or reserve the other type")
        platform = text(reservation.properties.get("InstancePlatform"))
        if platform is not None and platform != "Linux/UNIX":
            found = f"{reservation.id} is for {platform}, and nodes run Linux/UNIX"
            yield _wrong(template, found, f"set InstancePlatform of {reservation.id} to Linux/UNIX")
        placement = mapping(template.data.get("Placement")) or {}
        own = placement.get("Tenancy")
        if text(reservation.properties.get("Tenancy")) == "dedicated" and (
            is_absent(own) or own == "default"
        ):
            found = f"{reservation.id} is for dedicated tenancy, and this launches without it"
            remedy = f"remove Tenancy of {reservation.id}"
            yield _wrong(template, found, remedy)
        zone = text(reservation.properties.get("AvailabilityZone"))
        for group in template.node_groups if zone else ():
            listed = items(group.properties.get("Subnets")) or []
            zones = [
                text(each.properties.get("AvailabilityZone")) if each else None
                for each in templates.targets(listed, group.file)
            ]
            if zones and None not in zones and zone not in zones:
                found = (
                    f"{reservation.id} is in {zone}, and {group.id} in {', '.join(map(str, zones))}"
                )
                yield _wrong(template, found, f"name a subnet of {zone} in {group.id}")


def endings(templates: TemplateSet) -> Iterator[Finding]:
    """Require an end of a reservation that ends, and room in it for the nodes that target it.

    EC2 API, CreateCapacityReservation.EndDateType; EC2 User Guide, "Create a Capacity Reservation".
    """
    for reservation in templates.resources(_KIND):
        kind, end = (reservation.properties.get(key) for key in ("EndDateType", "EndDate"))
        if kind == "limited" and is_absent(end):
            found = "limited, and no EndDate: EC2 refuses the reservation"
            path = ("EndDateType",)
            remedy = "add EndDate, or write unlimited"
            yield reservation.find(Code.CAPACITY_RESERVATION, path, found, remedy)
        elif not is_absent(end) and (is_absent(kind) or kind == "unlimited"):
            found = "an EndDate of what has no end: EC2 refuses the reservation"
            remedy = "write EndDateType: limited, or remove EndDate"
            yield reservation.find(Code.CAPACITY_RESERVATION, ("EndDate",), found, remedy)
        most = _nodes_wanted(reservation, templates)
        count = number(
            templates.default(reservation.properties.get("InstanceCount"), reservation.file)
        )
        if count is not None and most is not None and most > count:
            found = f"{count} instances, and {most} nodes that target it at once: the rest end "
            found += "in InsufficientInstanceCapacity"
            path = ("InstanceCount",)
            remedy = f"reserve {most}, or lower DesiredSize"
            yield reservation.find(Code.CAPACITY_RESERVATION, path, found, remedy, Level.WARNING)


def _nodes_wanted(reservation: Resource, templates: TemplateSet) -> int | None:
    """Return how many nodes at once target a reservation; None where that cannot be known."""
    sizes = []
    for template in launch_templates(templates):
        specification = mapping(template.data.get("CapacityReservationSpecification")) or {}
        target = mapping(specification.get("CapacityReservationTarget")) or {}
        named = templates.target(target.get("CapacityReservationId"), template.resource.file)
        for group in template.node_groups if named is reservation else ():
            scaling = mapping(group.properties.get("ScalingConfig")) or {}
            least = [scaling.get(key) for key in ("MinSize", "DesiredSize")]
            known = [number(templates.default(each, group.file)) for each in least]
            sizes.append(max((each for each in known if each is not None), default=None))
    told = [each for each in sizes if each is not None]
    return sum(told) if told and len(told) == len(sizes) else None


def _wrong(template: LaunchTemplate, found: str, remedy: str) -> Finding:
    return template.resource.find(Code.CAPACITY_RESERVATION, _PATH, found, remedy, Level.ERROR)
