"""Rules over where things stand: zones of clusters and file systems, placement, add-on settings."""

import ipaddress
import json
from collections.abc import Iterator
from itertools import combinations

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.launch_templates import DATA, launch_templates
from megatron_eks.rules.lustre import file_systems
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, shown, text, truth

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FEWEST_ZONES = 2


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
        zones = _zones(templates, given, cluster)
        alone = len(given) == 1 if given is not None else False
        if zones is not None and given and (alone or len(set(zones)) < _FEWEST_ZONES):
            found = f"subnets in {len(set(zones))} zone: EKS refuses the cluster"
            path = ("ResourcesVpcConfig", "SubnetIds")
            yield cluster.find(Code.SUBNETS, path, found, "name subnets in two zones or more")
    nodes: set[str] = set()
    for template in launch_templates(templates):
        for group in template.node_groups:
            given = items(group.properties.get("Subnets"))
            if template.has_efa:
                nodes |= set(_zones(templates, given, group) or [])
            several = len(template.interfaces or []) > 1
            for target in templates.targets(given or [], group.file):
                public = target is not None and truth(target.properties.get("MapPublicIpOnLaunch"))
                if several and public and target is not None:
                    found = f"{target.id} is public, and nodes with several interfaces get no "
                    found += "public address: they never join"
                    yield group.find(Code.SUBNETS, ("Subnets",), found, "name a private subnet")
    for system in file_systems(templates):
        given = items(system.resource.properties.get("SubnetIds"))
        zones = _zones(templates, given, system.resource)
        if zones and len(nodes) == 1 and not set(zones) & nodes:
            found = f"in {zones[0]}, and the EFA nodes are in {next(iter(nodes))}"
            yield system.resource.find(
                Code.SUBNETS, ("SubnetIds",), found, "put it into their zone", Level.WARNING
            )


def _zones(templates: TemplateSet, values: object, user: Resource) -> list[str] | None:
    """Return the zones of subnets at hand, written as text; None when one cannot be known."""
    if not isinstance(values, list) or not values:
        return None
    found = [
        text(each.properties.get("AvailabilityZone")) if each is not None else None
        for each in templates.targets(values, user.file)
    ]
    return None if None in found else [each for each in found if each]


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
    more = {
        templates.target(each.properties.get("VpcId"), each.file)
        for each in templates.resources("AWS::EC2::VPCCidrBlock")
    }
    for subnet, vpc, network in known:
        whole = _network(text(vpc.properties.get("CidrBlock")))
        inside = whole is None or vpc in more or network.version != whole.version
        if not inside and whole is not None and not _within(network, whole):
            found = f"{network} is not part of the VPC's {whole}"
            yield subnet.find(Code.SUBNETS, ("CidrBlock",), found, "take a part of it")
    for (_, one_vpc, one), (subnet, vpc, other) in combinations(known, 2):
        if one_vpc is vpc and one.overlaps(other):
            found = f"{other} overlaps {one} of another subnet"
            yield subnet.find(Code.SUBNETS, ("CidrBlock",), found, "take a free part of the VPC")


def _network(written: str | None) -> Network | None:
    try:
        return ipaddress.ip_network(written) if written else None
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
            except ValueError:
                found = f"{shown(written)} is not JSON"
                yield addon.find(Code.ADDON_SETTINGS, path, found, "correct it")
