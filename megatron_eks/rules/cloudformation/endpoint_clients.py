"""Rule over interface endpoints that do not admit the nodes beside them."""

import ipaddress
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.networks import networks_of
from megatron_eks.rules.cloudformation.security_groups import ALL, GROUP, TCP, Rule, rules_of
from megatron_eks.rules.launch_templates import launch_templates
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text, truth

_HTTPS = 443
_PEERS = ("CidrIpv6", "SourcePrefixListId", "SourceSecurityGroupName")
_BY_ROUTE = frozenset({"CoreNetworkArn", "TransitGatewayId", "VpcPeeringConnectionId"})
# What gives a VPC further ranges, or joins it to other networks.
_JOINS = (
    *("AWS::EC2::ClientVpn", "AWS::EC2::TransitGateway", "AWS::EC2::VPCCidrBlock"),
    *("AWS::EC2::VPCPeeringConnection", "AWS::EC2::VPN", "AWS::DirectConnect::"),
    *("AWS::NetworkManager::", "AWS::VpcLattice::", "AWS::CloudFormation::Stack", "AWS::RAM::"),
)


def clients(templates: TemplateSet) -> Iterator[Finding]:
    """Require of an interface endpoint's groups that they admit the subnets of all node groups.

    AWS PrivateLink Guide, "Access an AWS service using an interface VPC endpoint": by its private
    name every call to the service goes to the endpoint, which drops what its groups do not admit.
    """
    judged: set[Resource] = set()
    subnets = _subnets(templates)
    for endpoint in templates.resources("AWS::EC2::VPCEndpoint"):
        listed = items(endpoint.properties.get("SecurityGroupIds")) or []
        groups = templates.targets(listed, endpoint.file)
        known = [each for each in groups if each is not None and each.type == GROUP]
        if not known or len(known) != len(groups) or known[0] in judged:
            continue
        judged.add(known[0])
        rules = [rules_of(each, "Ingress", templates) for each in known]
        opened = [each for listed in rules for each in listed or [] if _is_open(each)]
        if None in rules or not opened:
            continue
        vpc = templates.target(endpoint.properties.get("VpcId"), endpoint.file)
        private = truth(endpoint.properties.get("PrivateDnsEnabled")) is True
        own = _range_of(vpc, templates) if private and vpc is not None else None
        away = [_range(each) for each in opened]
        if own is not None and all(each and not each.overlaps(own) for each in away):
            found = f"{away[0]} is not in the VPC, which is {own}: nothing in it reaches "
            found += f"{endpoint.id} and its like"
            path, remedy = (*opened[0].path, "CidrIp"), f"write {own}, or the group of the nodes"
            yield opened[0].resource.find(Code.ENDPOINT_UNUSED, path, found, remedy)
            continue
        for group, subnet in subnets:
            if templates.target(subnet.properties.get("VpcId"), subnet.file) is not vpc:
                continue
            if vpc is not None and all(
                _shuts_out(each, group, subnet, templates) for each in opened
            ):
                found = (
                    f"admits no TCP 443 from {subnet.id}, where {group.id} has nodes: they reach "
                )
                found += f"no service behind {endpoint.id} and its like, and do not join"
                remedy = "admit the whole range of the VPC"
                path = ("SecurityGroupIngress",)
                yield known[0].find(Code.ENDPOINT_UNUSED, path, found, remedy)
                break


def _range_of(vpc: Resource, templates: TemplateSet) -> ipaddress.IPv4Network | None:
    """Return the range of a VPC that has one, and no other network beside it; None otherwise.

    VPC User Guide, "Connect your VPC": callers may be in what a VPC is joined to.
    """
    joined = any(each.type.startswith(_JOINS) for each in templates.everything()) or any(
        not _BY_ROUTE.isdisjoint(each.properties) for each in templates.resources("AWS::EC2::Route")
    )
    return None if joined else _literal(vpc.properties.get("CidrBlock"))


def _range(rule: Rule) -> ipaddress.IPv4Network | None:
    """Return the addresses that a rule admits; None where these are not written, or others."""
    body = _body(rule)
    alone = rule.is_range and set(body).isdisjoint(_PEERS)
    return _literal(body.get("CidrIp")) if alone else None


def _literal(value: Json) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text(value) or "", strict=False)
    except ValueError:
        return None


def _subnets(templates: TemplateSet) -> list[tuple[Resource, Resource]]:
    """Return the subnets of node groups, each once, with one that has nodes there."""
    found: dict[Resource, Resource] = {}
    for group in templates.resources("AWS::EKS::Nodegroup"):
        for subnet in templates.targets(items(group.properties.get("Subnets")) or [], group.file):
            if subnet is not None and subnet.type == "AWS::EC2::Subnet":
                found.setdefault(subnet, group)
    return [(group, subnet) for subnet, group in found.items()]


def _is_open(rule: Rule) -> bool:
    if rule.protocol in {ALL, None}:
        return True
    return rule.protocol == TCP and (rule.first or 0) <= _HTTPS <= (rule.last or 2**16)


def _shuts_out(rule: Rule, group: Resource, subnet: Resource, templates: TemplateSet) -> bool:
    """Tell whether a rule surely does not admit the nodes of a subnet."""
    if rule.group is not None:
        return _carried_by_none(rule.group, group, templates)
    if not rule.is_range:
        return False
    value = _body(rule).get("CidrIp")
    if is_absent(value):
        return False
    ranges = networks_of(value, rule.resource, templates)
    own = networks_of(subnet.properties.get("CidrBlock"), subnet, templates)
    if len(own) != 1 or not ranges:
        return False
    return not any(_holds(each, own[0]) for each in ranges)


def _body(rule: Rule) -> dict[str, Json]:
    body: Json = dict(rule.resource.properties)
    for key in rule.path:
        if isinstance(body, dict) and isinstance(key, str):
            body = body.get(key)
        elif isinstance(body, list) and isinstance(key, int):
            body = body[key]
    return mapping(body) or {}


def _carried_by_none(admitted: Resource, group: Resource, templates: TemplateSet) -> bool:
    """Tell whether no interface of a node group's nodes carries a group, as far as all is known."""
    for template in launch_templates(templates):
        if group in template.node_groups:
            carried = items(template.data.get("SecurityGroupIds")) or []
            for interface in template.interfaces or []:
                carried = [*carried, *(items(interface.body.get("Groups")) or [])]
            targets = templates.targets(carried, template.resource.file)
            return bool(targets) and None not in targets and admitted not in targets
    return False


def _holds(
    outer: ipaddress.IPv4Network | ipaddress.IPv6Network,
    inner: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> bool:
    return outer.version == inner.version and (
        int(outer.network_address) <= int(inner.network_address)
        and int(inner.broadcast_address) <= int(outer.broadcast_address)
    )
