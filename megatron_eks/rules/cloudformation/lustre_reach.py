"""Rules over rules of Lustre's groups that look open, and admit none of its clients."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.cloudformation.lustre_ports import PORTS
from megatron_eks.rules.cloudformation.networks import Network, networks_of
from megatron_eks.rules.cloudformation.security_groups import ALL, GROUP, TCP, Rule, rules_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping

_VPC = "AWS::EC2::VPC"
_NODES = ("AWS::EKS::Nodegroup", "AWS::AutoScaling::AutoScalingGroup")


def protocols(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse rules for Lustre's ports by another protocol than TCP.

    FSx for Lustre User Guide, "File system access control with Amazon VPC": Lustre is TCP alone.
    """
    for _, rule in _rules(templates):
        others = {port for port in PORTS if (rule.first or 0) <= port <= (rule.last or -1)}
        if rule.protocol not in {TCP, ALL, None} and others:
            found = f"{rule.protocol} on Lustre's ports, and Lustre is TCP: no node mounts it"
            path = (*rule.path, "IpProtocol")
            yield rule.resource.find(Code.LUSTRE_PORTS, path, found, "write tcp")


def ranges(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a range of addresses in which the VPC, whose nodes mount the file system, is not.

    FSx for Lustre User Guide, "File system access control with Amazon VPC": the source is the
    group, or the addresses, of the clients.
    """
    made = any(True for kind in _NODES for _ in templates.resources(kind))
    for group in _groups(templates) if made else ():
        vpc = templates.target(group.properties.get("VpcId"), group.file)
        rules = rules_of(group, "Ingress", templates)
        more = any(True for _ in templates.resources("AWS::EC2::VPCCidrBlock"))
        if vpc is None or vpc.type != _VPC or rules is None or more:
            continue
        own = networks_of(vpc.properties.get("CidrBlock"), vpc, templates)
        from_others = [rule for rule in rules if rule.group is not group]
        given = [_source(rule, templates) for rule in from_others]
        # Every way in has to be known, and to be a range.
        if not own or not given or not all(given):
            continue
        admitted = [one for each in given for one in each]
        of_nodes = _nodes_in(vpc, templates)
        if _meet(admitted, own) and (not of_nodes or _meet(admitted, of_nodes)):
            continue
        where = f"the VPC is {own[0]}"
        if _meet(admitted, own):
            where = f"nodes are in {', '.join(map(str, of_nodes))}"
        found = f"{given[0][0]} is admitted, and {where}: no node of it mounts the file system"
        place = (*from_others[0].path, "CidrIp")
        remedy = f"write CidrIp: {own[0]}, or SourceSecurityGroupId with the nodes' group"
        yield from_others[0].resource.find(Code.LUSTRE_PORTS, place, found, remedy)


def _meet(some: list[Network], others: list[Network]) -> bool:
    return any(
        one.version == other.version and one.overlaps(other) for one in some for other in others
    )


def _nodes_in(vpc: Resource, templates: TemplateSet) -> list[Network]:
    """Return the ranges of the subnets of all node groups; none where one cannot be known."""
    found: dict[Network, None] = {}
    for group in templates.resources(_NODES[0]):
        listed = items(group.properties.get("Subnets"))
        for subnet in templates.targets(listed or [None], group.file):
            own = (
                networks_of(subnet.properties.get("CidrBlock"), subnet, templates)
                if subnet is not None
                and templates.target(subnet.properties.get("VpcId"), subnet.file) is vpc
                else []
            )
            if not own:
                return []
            found |= dict.fromkeys(own)
    # Instances of one's own, and pods in subnets of their own, may be anywhere in the VPC.
    others = any(True for _ in templates.resources(_NODES[1]))
    return [] if others else [*found]


def _source(rule: Rule, templates: TemplateSet) -> list[Network]:
    """Return the addresses that a rule admits; none where they cannot be known."""
    body = rule.resource.properties
    if rule.path:
        key, index = str(rule.path[0]), rule.path[1]
        listed = items(body.get(key)) or [body.get(key)]
        body = mapping(listed[index] if isinstance(index, int) else None) or {}
    return networks_of(body.get("CidrIp"), rule.resource, templates) if rule.is_range else []


def _rules(templates: TemplateSet) -> Iterator[tuple[Resource, Rule]]:
    for group in _groups(templates):
        for rule in rules_of(group, "Ingress", templates) or []:
            yield group, rule


def _groups(templates: TemplateSet) -> list[Resource]:
    found: dict[Resource, None] = {}
    for system in templates.resources("AWS::FSx::FileSystem"):
        if not is_absent(system.properties.get("LustreConfiguration")):
            listed = items(system.properties.get("SecurityGroupIds")) or []
            carried = templates.targets(listed, system.file)
            found |= {each: None for each in carried if each is not None and each.type == GROUP}
    return list(found)
