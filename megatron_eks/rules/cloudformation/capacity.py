"""Rules over how nodes are bought and what they tell their pods: reservations and metadata."""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.config.model import RESERVATION
from megatron_eks.config.spellings import of_value
from megatron_eks.rules.ami_paths import families
from megatron_eks.rules.cloudformation.own_nodes import names_a_cluster, scaled
from megatron_eks.rules.cloudformation.properties import named
from megatron_eks.rules.launch_templates import (
    DATA,
    LaunchTemplate,
    launch_template_of,
    launch_templates,
)
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_intrinsic,
    is_placeholder,
    items,
    mapping,
    number,
    shown,
    text,
)

_TARGET = (DATA, "CapacityReservationSpecification", "CapacityReservationTarget")
_RESERVATION_PATH = (*_TARGET, "CapacityReservationId")
_MARKET_PATH = (DATA, "InstanceMarketOptions", "MarketType")
_BLOCK = "capacity-block"
# EC2 API, LaunchTemplateInstanceMetadataOptionsRequest.
_HOPS = range(1, 65)


def metadata_service(templates: TemplateSet) -> Iterator[Finding]:
    """Require session tokens for a node's metadata, and pods one hop too far from it.

    EKS Best Practices, "Restrict access to the instance profile assigned to the worker node".
    """
    own = {each.template for each in scaled(templates) if names_a_cluster(each.group)}
    for template in launch_templates(templates):
        options = mapping(template.data.get("MetadataOptions"))
        # Without a word the AMI decides, and that of Amazon Linux 2023 demands a token.
        judged = template.node_groups or (template.resource in own and options)
        if options is None or not judged:
            continue
        tokens, hops = options.get("HttpTokens"), options.get("HttpPutResponseHopLimit")
        path = (DATA, "MetadataOptions")
        if is_absent(tokens) or text(tokens) == "optional":
            found = (
                "session tokens are optional" if text(tokens) else "nothing demands a session token"
            )
            remedy = "set HttpTokens to required"
            yield template.resource.find(Code.NODE_METADATA, (*path, "HttpTokens"), found, remedy)
        if text(options.get("HttpEndpoint")) == "disabled":
            found = "the metadata service is off, and a node learns from it who it is"
            remedy = "set HttpEndpoint to enabled"
            yield template.resource.find(Code.NODE_METADATA, (*path, "HttpEndpoint"), found, remedy)
        limit = number(hops)
        if limit is not None and limit not in _HOPS:
            found, remedy = f"hop limit {limit}: EC2 takes 1 to 64", "use 1"
            place = (*path, "HttpPutResponseHopLimit")
            yield template.resource.find(Code.NODE_METADATA, place, found, remedy)
        elif (is_absent(hops) and _may_be_al2023(template, templates)) or (limit or 0) > 1:
            found = (
                "the AMI decides the hop limit, which is 2 on Amazon Linux 2023"
                if limit is None
                else f"hop limit {limit} lets pods take the node's role"
            )
            yield template.resource.find(
                Code.NODE_METADATA,
                (*path, "HttpPutResponseHopLimit"),
                found,
                "set HttpPutResponseHopLimit to 1",
                Level.WARNING,
            )


def _may_be_al2023(template: LaunchTemplate, templates: TemplateSet) -> bool:
    """Tell whether nodes may run Amazon Linux 2023; other AMIs have EC2's limit of 1."""
    known = families(template, templates)
    return not known or any(not each or each.startswith("AL2023") for each in known)


def _is_asked_for(templates: TemplateSet, given: Json, file: str) -> bool:
    """Tell whether a value is a parameter that has to be given: no condition asks for it."""
    name = text(given.get("Ref")) if isinstance(given, dict) else None
    asked = {each for _, each in named(templates.part(file, "Conditions"), ())}
    return name is not None and name not in asked


def reservations(templates: TemplateSet) -> Iterator[Finding]:
    """Require capacity reservations by EC2's own names, each used in one way.

    EC2 API, CapacityReservationTarget; a placement group that the reservation was not made in
    ends in InsufficientInstanceCapacity (eksctl issue 7949, terraform-aws-eks pull 3730).
    """
    for template in launch_templates(templates):
        target = _reservation(template)
        specification = mapping(template.data.get("CapacityReservationSpecification")) or {}
        preference = text(specification.get("CapacityReservationPreference"))
        if target and preference in {"none", "open"}:
            found = f"preference {preference} beside a target: EC2 refuses the two together"
            remedy = "remove it, or write capacity-reservations-only"
            path: Path = (*_TARGET[:-1], "CapacityReservationPreference")
            yield template.resource.find(Code.CAPACITY_RESERVATION, path, found, remedy)
        given = target.get("CapacityReservationId")
        reservation = text(templates.default(given, template.resource.file))
        is_open = reservation == "" and _is_asked_for(templates, given, template.resource.file)
        if reservation is not None and not is_open and not re.search(RESERVATION, reservation):
            found = f"{shown(reservation)} is no capacity reservation"
            remedy = of_value(reservation, RESERVATION) or "write cr- and 17 hexadecimal digits"
            yield template.resource.find(
                Code.CAPACITY_RESERVATION, _RESERVATION_PATH, found, remedy
            )
        owner = text(target.get("CapacityReservationResourceGroupArn")) or "arn:"
        if not owner.startswith("arn:") and not is_placeholder(owner):
            found = f"{shown(owner)} is no ARN of a resource group: EC2 refuses the template"
            by_id = re.search(RESERVATION, owner)
            form = "arn:aws:resource-groups:REGION:ACCOUNT:group/NAME"
            remedy = "name it as CapacityReservationId" if by_id else f"write {form}"
            path = (*_TARGET, "CapacityReservationResourceGroupArn")
            yield template.resource.find(Code.CAPACITY_RESERVATION, path, found, remedy)
        placement = mapping(template.data.get("Placement")) or {}
        for key in ("GroupName", "GroupId"):
            if target and not is_absent(placement.get(key)):
                yield template.resource.find(
                    Code.CAPACITY_RESERVATION,
                    (DATA, "Placement", key),
                    "a placement group with a reservation that may have been made outside it",
                    "remove the group, unless the reservation was made in it",
                    Level.WARNING,
                )
        for group in template.node_groups:
            yield from _purchase(group, template, reserved=bool(target))


def capacity_blocks(templates: TemplateSet) -> Iterator[Finding]:
    """Require a Capacity Block's id, market and type in the launch template, and one subnet.

    EKS User Guide, "Create a managed node group with Capacity Blocks for ML".
    """
    for group in templates.resources("AWS::EKS::Nodegroup"):
        if text(group.properties.get("CapacityType")) != "CAPACITY_BLOCK":
            continue
        resource = launch_template_of(group, templates)
        if is_absent(group.properties.get("LaunchTemplate")):
            found, remedy = "a Capacity Block without launch template", "name the block in one"
            yield group.find(Code.CAPACITY_RESERVATION, ("LaunchTemplate",), found, remedy)
        template = next(
            (each for each in launch_templates(templates) if each.resource is resource), None
        )
        if template is not None:
            yield from _block_template(template)
        sizes = mapping(group.properties.get("ScalingConfig")) or {}
        for key in ("DesiredSize", "MinSize"):
            if (number(sizes.get(key)) or 0) > 0:
                found = "nodes are wanted before the block starts, and the stack fails without them"
                remedy = "set it to 0, and scale up when the block has started"
                path = ("ScalingConfig", key)
                yield group.find(Code.CAPACITY_RESERVATION, path, found, remedy, Level.WARNING)
                break
        if len(items(group.properties.get("Subnets")) or []) > 1:
            found, remedy = "a Capacity Block is in one zone", "name the one subnet of its zone"
            yield group.find(Code.CAPACITY_RESERVATION, ("Subnets",), found, remedy)


def _block_template(template: LaunchTemplate) -> Iterator[Finding]:
    def missing(path: Path, remedy: str) -> Finding:
        found = f"a Capacity Block needs {path[-1]} in the launch template"
        return template.resource.find(Code.CAPACITY_RESERVATION, path, found, remedy)

    instance = template.instance
    if instance is not None and not instance.capacity_blocks:
        path = (DATA, "InstanceType")
        found = f"AWS sells no Capacity Blocks of {instance.name}"
        remedy = "use another instance type, or another kind of capacity"
        yield template.resource.find(Code.CAPACITY_RESERVATION, path, found, remedy)
    if is_absent(template.data.get("InstanceType")):
        yield missing((DATA, "InstanceType"), "add it there, and remove it from the node group")
    market = mapping(template.data.get("InstanceMarketOptions"))
    if market is not None and (
        is_absent(market.get("MarketType")) or _market(template) not in {None, _BLOCK}
    ):
        yield missing(_MARKET_PATH, f"set it to {_BLOCK}")
    target = _reservation(template)
    if _reservation_known(template) and is_absent(target.get("CapacityReservationId")):
        yield missing(_RESERVATION_PATH, "add the id of the block, cr-...")


def _purchase(group: Resource, template: LaunchTemplate, *, reserved: bool) -> Iterator[Finding]:
    """Check that node group and launch template buy in the same way."""
    value = group.properties.get("CapacityType")
    capacity = "ON_DEMAND" if is_absent(value) else text(value)
    if _market(template) == "spot" and capacity != "CAPACITY_BLOCK":
        found = "spot instances asked for in the launch template: EKS refuses the node group"
        remedy = "set CapacityType: SPOT in the node group instead"
        yield template.resource.find(Code.CAPACITY_RESERVATION, _MARKET_PATH, found, remedy)
    if _market(template) == _BLOCK and capacity in {"ON_DEMAND", "SPOT"}:
        found = f"CapacityType {capacity}, and the launch template asks for a Capacity Block"
        remedy = "set it to CAPACITY_BLOCK"
        yield group.find(Code.CAPACITY_RESERVATION, ("CapacityType",), found, remedy)
    elif reserved and capacity == "SPOT":
        found = "spot instances do not run in a capacity reservation"
        yield group.find(Code.CAPACITY_RESERVATION, ("CapacityType",), found, "set it to ON_DEMAND")


def _market(template: LaunchTemplate) -> str | None:
    return text((mapping(template.data.get("InstanceMarketOptions")) or {}).get("MarketType"))


def _reservation(template: LaunchTemplate) -> Mapping[str, Json]:
    specification = mapping(template.data.get("CapacityReservationSpecification")) or {}
    return mapping(specification.get("CapacityReservationTarget")) or {}


def _reservation_known(template: LaunchTemplate) -> bool:
    specification = mapping(template.data.get("CapacityReservationSpecification"))
    return specification is not None and not is_intrinsic(
        specification.get("CapacityReservationTarget")
    )
