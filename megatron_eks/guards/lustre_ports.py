"""Guards of the ports through which nodes reach Lustre and EFS."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.lustre import file_systems, gpu_subnets, uses_efa, zone
from megatron_eks.guards.statements import listed
from megatron_eks.guards.templates import Resource, Templates, template_guard
from megatron_eks.guards.values import Value

_BLOCKS = (frozenset({988}), frozenset(range(1018, 1024)))
_EVERYTHING = frozenset(range(65536))
_NFS = 2049
_ANYBODY = "addresses"
_ADDRESSES = ("CidrIp", "CidrIpv6", "SourcePrefixListId", "DestinationPrefixListId")
_SIDES = {"Ingress": "SourceSecurityGroupId", "Egress": "DestinationSecurityGroupId"}


@dataclass(frozen=True)
class Rule:
    """What a rule of a security group opens in one direction."""

    body: Value
    resource: Resource
    """The rule itself, or the group that holds it."""
    way: tuple[str, str, str]
    """Group, direction, and who is at the other end."""

    @property
    def ports(self) -> frozenset[int]:
        """The ports of TCP that it opens."""
        protocol = str(self.body["IpProtocol"].raw)
        first, last = self.body["FromPort"].number, self.body["ToPort"].number
        if protocol == "-1":
            return _EVERYTHING
        if protocol not in {"tcp", "6"} or first is None or last is None:
            return frozenset()
        return _EVERYTHING.intersection(range(max(int(first), 0), min(int(last), 65535) + 1))


def group_name(templates: Templates, group: Value) -> str:
    """Return what stands for a group, wherever it is named."""
    target = templates.target(group)
    return target.name if target else templates.text(group) or str(group.raw)


def group_rules(templates: Templates) -> Iterator[Rule]:
    """Return every rule of every security group, also those that stand alone."""
    for way, side in _SIDES.items():
        alone = templates.of(f"EC2::SecurityGroup{way}")
        rules = [(e.properties, e, group_name(templates, e["GroupId"])) for e in alone]
        for group in templates.of("EC2::SecurityGroup"):
            rules += [(each, group, group.name) for each in group[f"SecurityGroup{way}"]]
        for body, resource, group_ in rules:
            by_address = any(body[key] for key in _ADDRESSES)
            peer = _ANYBODY if by_address else group_name(templates, body[side])
            yield Rule(body, resource, (group_, way, peer))


@template_guard
def lustre_ports(templates: Templates) -> Iterator[Finding]:
    """Open Lustre's ports both ways, before FSx tries them: it makes no file system otherwise.

    FSx for Lustre User Guide, "File system access control with Amazon VPC"; "Working with
    EFA-enabled file systems": all traffic between the groups, as EFA is not TCP.
    """
    rules, code = list(group_rules(templates)), Code.LUSTRE_PORTS
    groups = {each.name: each for each in templates.of("EC2::SecurityGroup")}
    for system in file_systems(templates):
        own, carried, efa = system["SecurityGroupIds"], _carried(templates), uses_efa(system)
        servers = [group_name(templates, each) for each in listed(own)]
        near = [each for each in rules if {*servers} & {*each.way}]
        nodes = {e for r in near for e in r.way} - {*servers, *_SIDES, _ANYBODY, "None"}
        if not servers or {*servers} & carried - nodes or (carried and not carried & nodes):
            found = "no security group that is open to the nodes' group: mounts hang"
            remedy = "name the file servers' group, and open TCP 988 and 1018-1023 to the nodes'"
            yield own.finding(code, found, remedy)
        if not {*servers} <= groups.keys():
            continue  # another group that is not at hand may complete this one
        lacking = [e for e in _ways(servers, nodes, groups) if not _is_open(e, rules, efa=efa)]
        what = "all traffic (EFA)" if efa else "TCP 988 and 1018-1023"
        for rule in (e for e in near if e.ports not in (_EVERYTHING, *_BLOCKS)):
            closed = rule.way in lacking
            ports = f"{rule.body['FromPort'].raw}-{rule.body['ToPort'].raw}"
            found = f"it opens {rule.body['IpProtocol'].raw} {ports}: "
            found += "Lustre's ports are closed, and mounts hang" if closed else "Lustre needs less"
            level = Level.ERROR if closed else Level.WARNING
            yield rule.body.finding(code, found, f"open {what}, and no more", level)
        shut = {rule.way for rule in near if rule.ports not in (_EVERYTHING, *_BLOCKS)}
        for group, way, peer in (each for each in lacking if each not in shut):
            found = f"{group} lacks {way.lower()} of {what} for {peer}: mounts hang"
            place = groups[group][f"SecurityGroup{way}"] if group in groups else own
            yield place.finding(code, found, f"add it to SecurityGroup{way} of {group}")
        for rule in (e for e in near if e.way[1:] == ("Ingress", _ANYBODY)):
            if rule.body["CidrIp"].raw == "0.0.0.0/0" or rule.body["CidrIpv6"].raw == "::/0":
                found = "everybody in reach may mount the file system: Lustre asks for no password"
                yield rule.body.finding(Code.OPEN_TO_ALL, found, "name the nodes' group instead")
        waits = system.body["DependsOn"]
        for alone in (e.resource for e in near if e.resource.name not in {*groups, *waits.texts}):
            if alone.file == system.file:
                found = f"it does not wait for {alone.name}: FSx finds its ports closed, and fails"
                yield waits.finding(code, found, f"add {alone.name} to DependsOn")


def _ways(
    servers: list[str], nodes: set[str], groups: dict[str, Resource]
) -> Iterator[tuple[str, str, str]]:
    """Return which group must open which way for whom."""
    for server, peer in product(servers, (*servers, *sorted(nodes))):
        yield from ((server, "Ingress", peer), (server, "Egress", peer))
    for node, server in product(sorted(nodes), servers):
        yield node, "Ingress", server
        # A group without a rule of its own lets everything out.
        if node in groups and groups[node]["SecurityGroupEgress"]:
            yield node, "Egress", server


def _is_open(way: tuple[str, str, str], rules: list[Rule], *, efa: bool) -> bool:
    ways = (way, (*way[:2], "" if efa else _ANYBODY))
    opened = [each.ports for each in rules if each.way in ways]
    wanted = _EVERYTHING if efa else frozenset().union(*_BLOCKS)
    return frozenset().union(*opened) >= wanted


def _carried(templates: Templates) -> set[str]:
    """Return the groups that nodes carry."""
    found = []
    for data in (e["LaunchTemplateData"] for e in templates.of("EC2::LaunchTemplate")):
        found += listed(data["SecurityGroupIds"])
        found += [group for each in data["NetworkInterfaces"] for group in listed(each["Groups"])]
    return {group_name(templates, each) for each in found}


@template_guard
def mount_targets(templates: Templates) -> Iterator[Finding]:
    """Give nodes an address of EFS in their own zone, and open NFS to them.

    EFS User Guide, "Managing mount targets", "Using VPC security groups".
    """
    code, rules = Code.NETWORK_PART, group_rules(templates)
    open_groups = {e.way[0] for e in rules if _NFS in e.ports and e.way[1] == "Ingress"}
    for system in templates.of("EFS::FileSystem"):
        targets = [e for e in templates.of("EFS::MountTarget") if e in templates.users(system)]
        zones = [zone(templates, each["SubnetId"]) for each in targets]
        for groups in (each["SecurityGroups"] for each in targets):
            if not {group_name(templates, each) for each in listed(groups)} & open_groups:
                found = "its security group does not admit TCP 2049: mounts hang"
                yield groups.finding(code, found, "admit it from the nodes' group")
        for subnet in gpu_subnets(templates):
            if zone(templates, subnet) not in zones:
                found = "no mount target of EFS in this pool's zone: its pods cannot mount it"
                yield subnet.finding(code, found, "add an AWS::EFS::MountTarget there")
