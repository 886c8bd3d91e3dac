"""Security groups as the rules see them, and the two rules that EFA demands."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import launch_templates
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_intrinsic,
    items,
    mapping,
    number,
    shown,
    text,
    truth,
)

Direction = Literal["Ingress", "Egress"]

GROUP = "AWS::EC2::SecurityGroup"
ALL = "-1"
TCP = "tcp"

_NUMBERS = {"6": TCP, "17": "udp", "1": "icmp", "58": "icmpv6"}
_EFA = re.compile(r"\bEFA\b|\befa|Efa|elastic fabric", re.ASCII)
_PROTOCOL = re.compile(r"-1|tcp|udp|icmp|icmpv6|[0-9]{1,3}")
_PEERS: dict[Direction, str] = {
    "Ingress": "SourceSecurityGroupId",
    "Egress": "DestinationSecurityGroupId",
}


@dataclass(frozen=True)
class Rule:
    """One rule of a security group, wherever it is written."""

    resource: Resource
    path: Path
    protocol: str | None
    """In lower case; None when it cannot be known."""
    first: int | None
    last: int | None
    group: Resource | None
    """The other side, when it is a security group at hand."""
    peer: str
    """The other side, equal for equal ones."""
    is_range: bool
    """Tell whether the other side is a range of addresses."""
    is_unknown: bool
    """Tell whether the other side may be any group at hand."""
    is_outside: bool
    """Tell whether an unknown other side is none of the group's own stack."""

    def may_admit_all(self, group: Resource) -> bool:
        """Tell whether the rule lets all traffic pass between members of a group, or may do so."""
        member = self.group is group or self.is_unknown
        return member and self.protocol in {ALL, None}


def rules_of(group: Resource, direction: Direction, templates: TemplateSet) -> list[Rule] | None:
    """Return every rule of a group in one direction; None when some cannot be known."""
    key = f"SecurityGroup{direction}"
    value = group.properties.get(key)
    # CloudFormation takes a single mapping for a list of one.
    inline = [value] if isinstance(value, dict) and not is_intrinsic(value) else items(value)
    if inline is None:
        return None
    found: list[Rule] = []
    for index, entry in enumerate(inline):
        body = mapping(entry)
        if body is None:
            return None
        found.append(_rule(group, (key, index), body, direction, templates, file=group.file))
    separate = list(templates.resources(f"{GROUP}{direction}"))
    owners = [resource.properties.get("GroupId") for resource in separate]
    if any(
        templates.may_be_any(owner, rule.file)
        and not (rule.file == group.file and _is_given(owner, rule.file, templates))
        for owner, rule in zip(owners, separate, strict=True)
    ):
        return None
    found += [
        _rule(resource, (), resource.properties, direction, templates, file=group.file)
        for resource in separate
        if templates.target(resource.properties.get("GroupId"), resource.file) is group
    ]
    return found


def _rule(
    resource: Resource,
    path: Path,
    body: Mapping[str, Json],
    direction: Direction,
    templates: TemplateSet,
    *,
    file: str,
) -> Rule:
    peer = body.get(_PEERS[direction])
    foreign = _is_given(peer, resource.file, templates)
    unknown = templates.may_be_any(peer, resource.file)
    target = templates.target(peer, resource.file)
    others = [body.get(key) for key in ("CidrIp", "CidrIpv6")]
    return Rule(
        resource,
        path,
        protocol_of(body.get("IpProtocol")),
        number(body.get("FromPort")),
        number(body.get("ToPort")),
        target if target is not None and target.type == GROUP else None,
        _name(target, [peer, *others]),
        is_absent(peer),
        unknown,
        unknown and foreign and resource.file == file,
    )


def _is_given(value: Json, file: str, templates: TemplateSet) -> bool:
    """Tell a parameter or an import: a stack takes neither from itself."""
    name = text(value.get("Ref")) if isinstance(value, dict) else None
    foreign = isinstance(value, dict) and "Fn::ImportValue" in value
    return foreign or name in (templates.part(file, "Parameters") or {})


def protocol_of(value: Json) -> str | None:
    """Return a protocol by its usual name; EC2 takes names and numbers."""
    written = str(value) if isinstance(value, int) and not isinstance(value, bool) else text(value)
    return _NUMBERS.get(written, written.lower()) if written is not None else None


def protocol_names(templates: TemplateSet) -> Iterator[Finding]:
    """Require protocols by EC2's names: the API knows -1, but not the console's "all".

    EC2 API, IpPermission.IpProtocol.
    """
    for direction in _PEERS:
        entries: list[tuple[Resource, Path, Mapping[str, Json]]] = [
            (resource, (), resource.properties)
            for resource in templates.resources(f"{GROUP}{direction}")
        ]
        for group in templates.resources(GROUP):
            key = f"SecurityGroup{direction}"
            inline = enumerate(items(group.properties.get(key)) or [])
            entries += [(group, (key, index), mapping(body) or {}) for index, body in inline]
        for resource, path, body in entries:
            protocol = protocol_of(body.get("IpProtocol"))
            if protocol is not None and not _PROTOCOL.fullmatch(protocol):
                yield resource.find(
                    Code.PROTOCOL_NAME,
                    (*path, "IpProtocol"),
                    f"unknown protocol {shown(body['IpProtocol'])}",
                    'use tcp, udp, icmp, icmpv6, a number, or "-1" for all',
                )


def efa_self_rules(templates: TemplateSet) -> Iterator[Finding]:
    """Require a group that admits all traffic from and to itself on every EFA interface.

    EC2 User Guide, "Get started with EFA", step 1; a rule for 0.0.0.0/0 does not count
    (aws-ofi-nccl issue 663).
    """
    judged: set[Resource] = set()
    for template in launch_templates(templates):
        user = template.resource
        shared: set[str] = set()
        for interface in template.interfaces or []:
            groups = items(interface.body.get("Groups"))
            if not interface.is_efa or not groups:
                continue
            carried = templates.targets(groups, user.file)
            names = {_name(*pair) for pair in zip(carried, groups, strict=True)}
            if shared and not shared & names:
                yield user.find(
                    Code.EFA_SELF_RULES,
                    (*interface.path, "Groups"),
                    "no group in common with the EFA interfaces before it",
                    "give all EFA interfaces the group that admits traffic from and to itself",
                )
            shared = shared & names or shared or names
            yield from _self_rules(carried, user, templates, judged)
    for system in templates.resources("AWS::FSx::FileSystem"):
        lustre = mapping(system.properties.get("LustreConfiguration")) or {}
        if truth(lustre.get("EfaEnabled")):
            groups = items(system.properties.get("SecurityGroupIds")) or []
            yield from _self_rules(
                templates.targets(groups, system.file), system, templates, judged
            )


def efa_by_name(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a group that says it is for EFA what EFA needs, whoever carries it.

    EC2 User Guide, "Get started with EFA", step 1: EFA's packets are of no protocol that a rule
    could name, so those of TCP admit none.
    """
    carried = _carried(templates)
    for group in templates.resources(GROUP):
        rules = [rules_of(group, direction, templates) or [] for direction in _PEERS]
        own = [rule for listed in rules for rule in listed if rule.group is group]
        said = [text(group.properties.get(key)) for key in ("GroupDescription", "GroupName")]
        ways = _open_ways(group, templates)
        named = any(_EFA.search(each or "") for each in (group.id, *said))
        if not named or not own or ways is None or group in carried:
            continue
        for rule in own:
            if rule.protocol not in {ALL, None}:
                found = f"protocol {shown(rule.protocol)} from or to the group itself admits no EFA"
                path = (*rule.path, "IpProtocol")
                remedy = 'write "-1", and no ports'
                yield rule.resource.find(Code.EFA_SELF_RULES, path, found, remedy)
        if len(ways) < len(_PEERS) and not any(rule.protocol not in {ALL, None} for rule in own):
            missing = next(way for way in _PEERS if way not in ways)
            found = f'no {missing.lower()} rule with protocol "-1" and the group itself'
            remedy = "add rules from and to itself; in CDK as CfnSecurityGroupIngress and -Egress"
            yield group.find(Code.EFA_SELF_RULES, (), found, remedy)


def _carried(templates: TemplateSet) -> set[Resource | None]:
    """Return the groups of EFA interfaces, which are judged by who carries them."""
    return {
        target
        for template in launch_templates(templates)
        for interface in template.interfaces or []
        if interface.is_efa
        for target in templates.targets(
            items(interface.body.get("Groups")) or [], template.resource.file
        )
    }


def _name(target: Resource | None, value: Json) -> str:
    return f"{target.file}#{target.id}" if target else str(value)


def _self_rules(
    carried: list[Resource | None],
    user: Resource,
    templates: TemplateSet,
    judged: set[Resource],
) -> Iterator[Finding]:
    """Judge the groups of one interface: one with both rules is enough."""
    groups = [each for each in carried if each is not None and each.type == GROUP]
    open_ways = {group: _open_ways(group, templates) for group in groups}
    if any(ways is not None and len(ways) == len(_PEERS) for ways in open_ways.values()):
        return
    for group, ways in open_ways.items():
        # Half of the pair was meant for EFA. None of it proves a mistake only where no other group,
        # such as the cluster's own, can hold the pair.
        elsewhere = len(groups) < len(carried) or None in open_ways.values()
        if ways is None or group in judged or (not ways and elsewhere):
            continue
        judged.add(group)
        missing = " and ".join(f"no {way.lower()} rule" for way in _PEERS if way not in ways)
        yield group.find(
            Code.EFA_SELF_RULES,
            (),
            f'{missing} with protocol "-1" and the group itself, and {user.id} carries it for EFA',
            _remedy(group, ways, templates),
        )


def _open_ways(group: Resource, templates: TemplateSet) -> set[Direction] | None:
    """Return the directions in which a group admits everything to itself; None if unknown."""
    ways: set[Direction] = set()
    for direction in _PEERS:
        rules = rules_of(group, direction, templates)
        if rules is None:
            return None
        if any(rule.may_admit_all(group) for rule in rules):
            ways.add(direction)
    return ways


def _remedy(group: Resource, ways: set[Direction], templates: TemplateSet) -> str:
    """Say what to do; a rule of the group itself that is for one protocol has to be corrected."""
    for direction in _PEERS if ways else ():
        for rule in rules_of(group, direction, templates) or [] if direction not in ways else []:
            if rule.group is group and rule.protocol not in {ALL, None}:
                where = rule.resource.id if rule.resource is not group else f"its {direction} rule"
                return f'write IpProtocol: "-1" instead of {rule.protocol} in {where}, and no ports'
    return "add rules from and to itself; in CDK as CfnSecurityGroupIngress and -Egress"
