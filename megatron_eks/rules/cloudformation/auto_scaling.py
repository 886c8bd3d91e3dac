"""Rules over Auto Scaling groups of nodes: their sizes, and whose they are."""

from collections.abc import Iterator
from itertools import pairwise

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.own_nodes import names_a_cluster, scaled
from megatron_eks.rules.launch_templates import DATA, launch_templates
from megatron_eks.rules.node_start import user_data_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    number,
    text,
    written,
)

_SIZES = ("MinSize", "DesiredCapacity", "MaxSize")
_TAG = "kubernetes.io/cluster/"
_OF_EKS = "/aws/service/eks/optimized-ami/"
_STARTS = ("NodeConfig", "/etc/eks/bootstrap.sh", "settings.kubernetes")


def sizes(templates: TemplateSet) -> Iterator[Finding]:
    """Require the sizes of a group in order: minimum, wanted, maximum.

    EC2 Auto Scaling API, CreateAutoScalingGroup.
    """
    for group in templates.resources("AWS::AutoScaling::AutoScalingGroup"):
        given = [
            (name, templates.default(group.properties.get(name), group.file)) for name in _SIZES
        ]
        known = [(name, size) for name, each in given if (size := number(each)) is not None]
        for (name, size), (next_name, next_size) in pairwise(known):
            if size > next_size:
                found = f"{name} {size} is above {next_name} {next_size}: Auto Scaling refuses it"
                remedy = "put the three in order: MinSize, DesiredCapacity, MaxSize"
                yield group.find(Code.NODE_GROUP_SIZE, (name,), found, remedy)


def tags(templates: TemplateSet) -> Iterator[Finding]:
    """Require of instances that start as nodes the tag of their cluster.

    EKS User Guide, "Troubleshoot problems with Amazon EKS clusters and nodes", nodes fail to join:
    nodes must have kubernetes.io/cluster/NAME: owned.
    """
    known = {template.resource: template for template in launch_templates(templates)}
    for nodes in scaled(templates):
        template = known.get(nodes.template)
        data = (user_data_of(template) or "") if template is not None else ""
        listed = items(nodes.group.properties.get("Tags"))
        if listed is None or template is None or not any(mark in data for mark in _STARTS):
            continue
        keys = [
            _key(each) for each in [*listed, *_of_instances(template.data.get("TagSpecifications"))]
        ]
        if None in keys:
            continue
        of_clusters = [key.removeprefix(_TAG) for key in keys if key and key.startswith(_TAG)]
        name = _only_name(templates)
        if not of_clusters:
            found = f"instances that start as nodes, without a tag {_TAG}NAME: they may not join"
            remedy = f"add Key: {_TAG}{name or 'NAME'}, Value: owned, PropagateAtLaunch: true"
            yield nodes.group.find(Code.NODE_TAG, ("Tags",), found, remedy, Level.WARNING)
        elif name and not any(is_placeholder(each) or each == name for each in of_clusters):
            found = f"a tag for cluster {of_clusters[0]!r}, and this one is {name!r}: no node joins"
            yield nodes.group.find(Code.NODE_TAG, ("Tags",), found, f"write {_TAG}{name}")


def starts(templates: TemplateSet) -> Iterator[Finding]:
    """Require of instances with EKS' own AMI the data by which they find their cluster.

    EKS User Guide, "Launch self-managed Amazon Linux nodes": only managed groups are given it by
    EKS; nodeadm finds no NodeConfig otherwise, and the instance never joins.
    """
    for nodes in scaled(templates):
        data = mapping(nodes.template.properties.get(DATA)) or {}
        image = data.get("ImageId")
        ami = text(templates.default(image, nodes.template.file)) or written(image) or ""
        if names_a_cluster(nodes.group) and _OF_EKS in ami and is_absent(data.get("UserData")):
            found = "no user data, and EKS' AMI is told by it which cluster to join: no node joins"
            remedy = (
                "write a NodeConfig with cluster name, apiServerEndpoint, certificateAuthority "
            )
            remedy += "and cidr, or make it an AWS::EKS::Nodegroup"
            path = (DATA, "UserData")
            yield nodes.template.find(Code.USER_DATA, path, found, remedy)


def zones(templates: TemplateSet) -> Iterator[Finding]:
    """Require one subnet for instances with EFA interfaces.

    EC2 User Guide, "EFA limitations": EFA traffic does not cross zones, and a group spreads its
    instances over all that it is given.
    """
    known = {template.resource: template for template in launch_templates(templates)}
    for nodes in scaled(templates):
        template = known.get(nodes.template)
        listed = items(nodes.group.properties.get("VPCZoneIdentifier")) or []
        places = {
            text(subnet.properties.get("AvailabilityZone")) if subnet is not None else None
            for subnet in templates.targets(listed, nodes.group.file)
        }
        several = len(listed) > 1 and (None in places or len(places) > 1)
        if template is not None and template.has_efa and _is_over_zones(nodes.group):
            found = "no subnet and several zones: instances start in the default VPC, and EFA "
            found += "traffic does not cross zones"
            remedy = "write VPCZoneIdentifier with the one subnet of the nodes instead"
            place = ("AvailabilityZones",)
            yield nodes.group.find(Code.NODE_GROUP_SUBNETS, place, found, remedy)
        if template is not None and template.has_efa and several:
            found = f"{len(listed)} subnets, and EFA traffic does not cross availability zones"
            remedy = "name the one subnet of the zone that has the capacity"
            path = ("VPCZoneIdentifier",)
            yield nodes.group.find(Code.NODE_GROUP_SUBNETS, path, found, remedy)


def _is_over_zones(group: Resource) -> bool:
    """Tell whether a group without subnets is given more zones than one, or all."""
    zones = group.properties.get("AvailabilityZones")
    every = isinstance(zones, dict) and "Fn::GetAZs" in zones
    subnets = is_absent(group.properties.get("VPCZoneIdentifier"))
    return subnets and (every or len(items(zones) or []) > 1)


def _key(tag: Json) -> str | None:
    return written((mapping(tag) or {}).get("Key"))


def _of_instances(value: Json) -> list[Json]:
    found: list[Json] = []
    for each in items(value) or []:
        body = mapping(each) or {}
        found += (items(body.get("Tags")) or []) if body.get("ResourceType") == "instance" else []
    return found


def _only_name(templates: TemplateSet) -> str | None:
    """Return the name of the one cluster at hand, where it is written out."""
    clusters: list[Resource] = [*templates.resources("AWS::EKS::Cluster")]
    if len(clusters) != 1:
        return None
    return text(templates.default(clusters[0].properties.get("Name"), clusters[0].file))
