"""Rules over where things stand: zones of clusters and file systems, placement, add-on settings."""

import ipaddress
import json
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from itertools import combinations

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.json_texts import json_fault
from megatron_eks.rules.launch_templates import (
    DATA,
    has_gpus,
    instance_type_of,
    launch_template_of,
    launch_templates,
)
from megatron_eks.rules.lustre import file_systems
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, number, text, truth

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FEWEST_ZONES = 2
_FIND_IN_MAP = 3
_ALL = "Fn::GetAZs"
_ASKED = "the zone of "


def subnets(templates: TemplateSet) -> Iterator[Finding]:
    """Require two zones of a cluster, one of nodes and their file system, and private EFA nodes.

    EKS User Guide, "VPC and subnet considerations"; FSx for Lustre User Guide, "Accessing file
    systems": across zones traffic is slower and billed, and EFA does not reach;
    terraform-aws-eks issue 3533: nodes with several interfaces get no public address.
    """
    yield from _overlaps(templates)
    for cluster in templates.resources("AWS::EKS::Cluster"):
        config = mapping(cluster.properties.get("ResourcesVpcConfig")) or {}
        given = items(config.get("SubnetIds"))
        yield from _without_zone(templates.targets(given or [], cluster.file))
        places = _places(templates, given, cluster)
        few = places is not None and len(places) < _FEWEST_ZONES
        if few or _is_one_subnet(templates, config.get("SubnetIds"), cluster):
            found = "subnets in 1 zone: EKS refuses the cluster" if given else "no subnet"
            path = ("ResourcesVpcConfig", "SubnetIds")
            yield cluster.find(Code.SUBNETS, path, found, "name subnets in two zones or more")
    for template in launch_templates(templates):
        for group in template.node_groups:
            given = items(group.properties.get("Subnets"))
            several = len(template.interfaces or []) > 1
            for target in templates.targets(given or [], group.file):
                public = target is not None and truth(target.properties.get("MapPublicIpOnLaunch"))
                if several and public and target is not None:
                    found = f"{target.id} is public, and nodes with several interfaces get no "
                    found += "public address: they never join"
                    yield group.find(Code.SUBNETS, ("Subnets",), found, "name a private subnet")
    nodes = _zones_of_gpus(templates)
    for system in file_systems(templates):
        given = items(system.resource.properties.get("SubnetIds"))
        zones = _zones(templates, given, system.resource)
        if zones and nodes and not any(_may_be_one(zones[0], each) for each in nodes):
            found = f"in {zones[0]}, and the GPU nodes are in {' and '.join(sorted(nodes))}"
            yield system.resource.find(
                Code.SUBNETS, ("SubnetIds",), found, "put it into their zone", Level.WARNING
            )


def _zones_of_gpus(templates: TemplateSet) -> set[str]:
    """Return the zones of all nodes with GPUs; none where one of them cannot be known."""
    found: set[str] = set()
    known = {template.resource: template for template in launch_templates(templates)}
    for group in templates.resources("AWS::EKS::Nodegroup"):
        used = launch_template_of(group, templates)
        template = known.get(used) if used is not None else None
        kind = template.instance_type if template is not None else instance_type_of(group)
        if has_gpus(kind or "") or (template is not None and template.has_efa):
            zones = _zones(templates, items(group.properties.get("Subnets")), group)
            if zones is None:
                return set()
            found |= set(zones)
    return found


def _zones(templates: TemplateSet, values: object, user: Resource) -> list[str] | None:
    """Return the zones of subnets at hand, as text or `zone 0`; None when one cannot be known."""
    if not isinstance(values, list) or not values:
        return None
    apart = _apart(templates)
    found = [
        _zone(each.properties.get("AvailabilityZone"), apart) if each is not None else None
        for each in templates.targets(values, user.file)
    ]
    return None if None in found else [each for each in found if each]


def _zone(value: Json, apart: AbstractSet[str]) -> str | None:
    """Return a zone by its name, its place among those of the region, or who names it."""
    name = text(value.get("Ref")) if isinstance(value, dict) else None
    if name is not None:
        return f"{_ASKED}{name}" if name in apart else None
    chosen = value.get("Fn::Select") if isinstance(value, dict) else None
    if isinstance(chosen, list) and len(chosen) == 2 and isinstance(chosen[1], dict):  # noqa: PLR2004 -- what Fn::Select takes
        index = number(chosen[0])
        return f"zone {index} of the region" if index is not None and _ALL in chosen[1] else None
    return text(value)


def _may_be_one(zone: str, other: str) -> bool:
    """Tell whether two zones may be the same: by name and by place nobody can compare."""
    kinds = [[each.startswith(mark) for mark in ("zone ", _ASKED)] for each in (zone, other)]
    return zone == other or kinds[0] != kinds[1]


def _apart(templates: TemplateSet) -> set[str]:
    """Return the parameters that give the subnets of one cluster their zones, each another.

    EKS User Guide, "VPC requirements and considerations": EKS refuses a cluster in one zone.
    """
    found: set[str] = set()
    for cluster in templates.resources("AWS::EKS::Cluster"):
        config = mapping(cluster.properties.get("ResourcesVpcConfig")) or {}
        listed = templates.targets(items(config.get("SubnetIds")) or [], cluster.file)
        zones = [each.properties.get("AvailabilityZone") if each else None for each in listed]
        names = {text(each.get("Ref")) if isinstance(each, dict) else None for each in zones}
        if len(names) >= _FEWEST_ZONES and None not in names:
            found |= {name for name in names if name}
    return found


def _places(templates: TemplateSet, values: object, user: Resource) -> set[str] | None:
    """Return what tells zones apart: names, or one expression; None when they may yet differ."""
    if not isinstance(values, list) or not values:
        return None
    found: set[str] = set()
    for subnet in templates.targets(values, user.file):
        zone = None if subnet is None else subnet.properties.get("AvailabilityZone")
        if subnet is None or subnet.type != "AWS::EC2::Subnet" or is_absent(zone):
            return None
        # "" stands for the stack's own region.
        written = json.dumps(zone, sort_keys=True).replace('{"Ref": "AWS::Region"}', '""')
        written = re.sub(r'\["(\d+)", ', r"[\1, ", written)
        found.add(written if isinstance(zone, str) else f"{subnet.file} {written}")
    return found


def _is_one_subnet(templates: TemplateSet, value: Json, user: Resource) -> bool:
    """Tell a list of one subnet or none from one that an expression may fill."""
    if not isinstance(value, list) or len(value) > 1:
        return False
    target = templates.target(value[0], user.file) if value else None
    literal = bool(value) and str(text(value[0])).startswith("subnet-")
    return not value or literal or (target is not None and target.type == "AWS::EC2::Subnet")


def _without_zone(subnets: "list[Resource | None]") -> Iterator[Finding]:
    for subnet in subnets:
        if subnet is None or subnet.type != "AWS::EC2::Subnet":
            continue
        keys = ("AvailabilityZone", "AvailabilityZoneId")
        if all(is_absent(subnet.properties.get(key)) for key in keys):
            found, remedy = "no zone, so EC2 chooses one, and a cluster needs two", "name the zone"
            yield subnet.find(Code.SUBNETS, keys[:1], found, remedy, Level.WARNING)


def _overlaps(templates: TemplateSet) -> Iterator[Finding]:
    """Find subnets of one VPC that overlap, or lie outside of it (EC2 API, CreateSubnet)."""
    known: list[tuple[Resource, Resource, Network]] = []
    for subnet in templates.resources("AWS::EC2::Subnet"):
        network = _network(text(subnet.properties.get("CidrBlock")))
        vpc = templates.target(subnet.properties.get("VpcId"), subnet.file)
        if network is not None and vpc is not None:
            known.append((subnet, vpc, network))
        if network is not None and not _starts_a_network(subnet.properties["CidrBlock"]):
            found = f"{subnet.properties['CidrBlock']} starts inside {network}, which EC2 takes"
            remedy = f"write {network}, or another"
            yield subnet.find(Code.SUBNETS, ("CidrBlock",), found, remedy, Level.WARNING)
    more = {
        templates.target(each.properties.get("VpcId"), each.file)
        for each in templates.resources("AWS::EC2::VPCCidrBlock")
    }
    for subnet, vpc, network in known:
        wholes = networks_of(vpc.properties.get("CidrBlock"), vpc, templates)
        same = [each for each in wholes if each.version == network.version]
        if same and vpc not in more and not any(_within(network, each) for each in same):
            found = f"{network} is not part of the VPC's {' or '.join(map(str, same))}"
            yield subnet.find(Code.SUBNETS, ("CidrBlock",), found, "take a part of it")
    for (_, one_vpc, one), (subnet, vpc, other) in combinations(known, 2):
        if one_vpc is vpc and one.overlaps(other):
            found = f"{other} overlaps {one} of another subnet"
            yield subnet.find(Code.SUBNETS, ("CidrBlock",), found, "take a free part of the VPC")


def networks_of(value: Json, user: Resource, templates: TemplateSet) -> list[Network]:
    """Return the networks that a value may be; none where one of them cannot be known.

    A mapping gives one for each of its rows, and a parameter its default and the allowed ones.
    """
    given: list[Json] = [value]
    if isinstance(value, dict) and len(value) == 1 and "Ref" in value:
        parameters = templates.part(user.file, "Parameters") or {}
        parameter = mapping(parameters.get(str(value["Ref"]))) or {}
        given = [parameter.get("Default"), *(items(parameter.get("AllowedValues")) or [])]
    elif isinstance(value, dict) and len(value) == 1:
        given = _mapped(items(value.get("Fn::FindInMap")) or [], user, templates)
    networks = [_network(text(each)) for each in given]
    return [] if None in networks else [each for each in dict.fromkeys(networks) if each]


def _mapped(names: list[Json], user: Resource, templates: TemplateSet) -> list[Json]:
    """Return every value that a look-up in a mapping may give; its row is rarely known."""
    if len(names) != _FIND_IN_MAP or not isinstance(names[0], str):
        return [None]
    # A mapping has nothing but texts, so what stands here is all that there can be.
    rows = mapping((templates.part(user.file, "Mappings") or {}).get(names[0])) or {}
    _, row, key = names
    chosen = [rows.get(row)] if isinstance(row, str) else list(rows.values())
    values = [
        each
        for columns in chosen
        for name, each in (mapping(columns) or {}).items()
        if name == key or not isinstance(key, str)
    ]
    return values or [None]


def _starts_a_network(written: Json) -> bool:
    try:
        ipaddress.ip_network(str(written))
    except ValueError:
        return False
    return True


def _network(written: str | None) -> Network | None:
    try:
        return ipaddress.ip_network(written, strict=False) if written else None
    except ValueError:
        return None


def _within(inner: Network, outer: Network) -> bool:
    same = inner.version == outer.version
    return same and int(inner[0]) >= int(outer[0]) and int(inner[-1]) <= int(outer[-1])


def placement(templates: TemplateSet) -> Iterator[Finding]:
    """Require a cluster placement group of nodes with EFA: others keep them apart.

    EC2 User Guide, "Placement strategies"; spread takes seven instances in a zone at most.
    """
    for template in launch_templates(templates):
        value = mapping(template.data.get("Placement")) or {}
        key = "GroupName" if not is_absent(value.get("GroupName")) else "GroupId"
        group = templates.target(value.get(key), template.resource.file)
        if group is None or not template.has_efa:
            continue
        strategy = text(group.properties.get("Strategy"))
        if group.type == "AWS::EC2::PlacementGroup" and strategy in {"spread", "partition"}:
            found = f"{group.id} is a {strategy} group, which keeps nodes apart"
            path = (DATA, "Placement", key)
            remedy = "use a group with Strategy cluster"
            yield template.resource.find(Code.PLACEMENT, path, found, remedy)


def addon_settings(templates: TemplateSet) -> Iterator[Finding]:
    """Require settings of an add-on as a text that is JSON.

    EKS API, CreateAddon.configurationValues; YAML is read as well, so only a broken text that
    starts as JSON is refused.
    """
    for addon in templates.resources("AWS::EKS::Addon"):
        value = addon.properties.get("ConfigurationValues")
        written = text(value)
        path = ("ConfigurationValues",)
        if isinstance(value, dict) and value and mapping(value) is not None:
            found = "a mapping, and EKS takes a text"
            yield addon.find(Code.ADDON_SETTINGS, path, found, "write it as JSON in quotes")
        elif written is not None and written.lstrip().startswith("{"):
            try:
                json.loads(written)
            except json.JSONDecodeError as wrong:
                # The text may hold what nobody is to read.
                found, remedy = json_fault(written, wrong)
                yield addon.find(Code.ADDON_SETTINGS, path, found, remedy)
