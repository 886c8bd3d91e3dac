"""Rules over the ports through which Lustre's clients and servers meet."""

from collections.abc import Iterator
from difflib import SequenceMatcher

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.properties import named
from megatron_eks.rules.cloudformation.security_groups import (
    ALL,
    GROUP,
    TCP,
    Direction,
    Rule,
    rules_of,
)
from megatron_eks.rules.launch_templates import launch_template_of, launch_templates
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping

# FSx for Lustre User Guide, "File system access control with Amazon VPC".
PORTS = frozenset((988, *range(1018, 1024)))
_FIRST, _NEAR = 988, 0.6
_NO_CLIENTS = ("AWS::EC2::VPCEndpoint", "AWS::EKS::", "AWS::FSx::", "AWS::RDS::")
_RANGES = "988 and 1018-1023"
_REMEDY = f"open TCP {_RANGES} to the clients and between the servers, in both directions"


def lustre_ports(templates: TemplateSet) -> Iterator[Finding]:
    """Require TCP 988 and 1018-1023, and nothing else, on a Lustre file system's groups.

    FSx for Lustre User Guide, "File system access control with Amazon VPC"; without 988 the
    creation fails ("do not permit Lustre LNET network traffic").
    """
    judged: set[Resource] = set()
    for system in templates.resources("AWS::FSx::FileSystem"):
        if is_absent(system.properties.get("LustreConfiguration")):
            continue
        carried = templates.targets(
            items(system.properties.get("SecurityGroupIds")) or [], system.file
        )
        groups = [
            each
            for each in carried
            if each is not None and each.type == GROUP and each not in judged
        ]
        judged.update(groups)
        for group in groups:
            yield from _too_wide(group, templates)
        # One group may complete the other, so what is missing shows only when all are at hand.
        if groups and len(groups) == len(carried):
            yield from _too_narrow(groups, templates)


def _too_wide(group: Resource, templates: TemplateSet) -> Iterator[Finding]:
    shared = _on_nodes(group, templates)
    rules = rules_of(group, "Ingress", templates) or []
    slips = _slips(rules)
    for rule in rules:
        if rule.protocol != TCP or rule.first is None or rule.last is None:
            continue
        opened = set(range(max(rule.first, 0), min(rule.last, 65535) + 1))
        if opened <= PORTS:
            continue
        if rule in slips:
            found = f"TCP {rule.first} is open where Lustre's {_FIRST} is missing"
            yield rule.resource.find(Code.LUSTRE_PORTS, rule.path, found, f"did you mean {_FIRST}?")
            continue
        # What else a group of the nodes opens is not the file system's affair.
        harmless = shared and not opened & PORTS
        # The whole range, which the CDK's own construct opens: it works.
        harmless = harmless or min(PORTS) <= rule.first <= rule.last <= max(PORTS)
        ports = f"{rule.first}-{rule.last}" if rule.first != rule.last else str(rule.first)
        yield rule.resource.find(
            Code.LUSTRE_PORTS,
            rule.path,
            f"TCP {ports} is open, and Lustre uses {_RANGES}",
            "open these in two rules",
            Level.WARNING if harmless else Level.ERROR,
        )


def _slips(rules: list[Rule]) -> list[Rule]:
    """Return rules for a port that is nearly Lustre's first, for peers that lack it alone."""
    near = [
        rule
        for rule in rules
        if rule.protocol == TCP
        and rule.first is not None
        and rule.first == rule.last
        and rule.first != _FIRST
        and SequenceMatcher(None, str(rule.first), str(_FIRST)).ratio() > _NEAR
    ]
    return [
        rule
        for rule in near
        if set().union(*(opened_by(each) or set() for each in rules if each.peer == rule.peer))
        == PORTS - {_FIRST}
    ]


def _on_nodes(group: Resource, templates: TemplateSet) -> bool:
    for template in launch_templates(templates):
        carried = [*(items(template.data.get("SecurityGroupIds")) or [])]
        for interface in template.interfaces or []:
            carried += items(interface.body.get("Groups")) or []
        if group in templates.targets(carried, template.resource.file):
            return True
    return False


def _of_control_plane(group: Resource, templates: TemplateSet) -> bool:
    """Tell a group of the API servers' interfaces, which mount nothing."""
    for cluster in templates.resources("AWS::EKS::Cluster"):
        config = mapping(cluster.properties.get("ResourcesVpcConfig")) or {}
        listed = items(config.get("SecurityGroupIds")) or []
        if group in templates.targets(listed, cluster.file):
            return True
    return False


def _too_narrow(groups: list[Resource], templates: TemplateSet) -> Iterator[Finding]:
    incoming = _all_rules(groups, "Ingress", templates)
    outgoing = _all_rules(groups, "Egress", templates)
    names = {f"{group.file}#{group.id}" for group in groups}
    if incoming is not None:
        yield from _incomplete(groups[0], "Ingress", incoming, names)
        from_groups = incoming and all(
            rule.protocol and (rule.group or (len(groups) == 1 and _is_another(rule)))
            for rule in incoming
        )
        if from_groups and not any(rule.peer in names for rule in incoming):
            found = "no rule admits the file servers themselves, and they talk to each other"
            yield groups[0].find(Code.LUSTRE_PORTS, ("SecurityGroupIngress",), found, _REMEDY)
        alone = from_groups and all(rule.peer in names for rule in incoming)
        nodes = [each for each in launch_templates(templates) if each.node_groups]
        if alone and nodes and not any(_on_nodes(group, templates) for group in groups):
            found = "only the file servers themselves are admitted, and no node carries the group"
            path = ("SecurityGroupIngress",)
            yield groups[0].find(Code.LUSTRE_PORTS, path, found, _REMEDY, Level.WARNING)
        if not alone and nodes:
            yield from _strangers(groups, incoming, templates)
        for client in {
            rule.group: None for rule in incoming if rule.group and rule.group not in groups
        }:
            yield from _client(client, names, templates)
    # Without a single outgoing rule EC2 lets everything out.
    if outgoing:
        yield from _incomplete(groups[0], "Egress", outgoing, names)


def _strangers(
    groups: list[Resource], incoming: list[Rule], templates: TemplateSet
) -> Iterator[Finding]:
    """Find servers that admit groups which none of the nodes at hand carries."""
    admitted = [rule.group for rule in incoming if opened_by(rule) != set()]
    peers = [each for each in admitted if each is not None]
    others = [each for each in peers if each not in groups and not _has_users(each, templates)]
    if len(peers) < len(admitted) or not others or _nodes_unknown(templates):
        return
    if not any(_on_nodes(each, templates) for each in {*peers, *groups}):
        names = ", ".join(sorted({each.id for each in peers if each not in groups}))
        found = f"{names} is admitted, and no node carries it: mounting waits until it times out"
        path = ("SecurityGroupIngress",)
        yield groups[0].find(Code.LUSTRE_PORTS, path, found, _REMEDY, Level.WARNING)


def _has_users(group: Resource, templates: TemplateSet) -> bool:
    """Tell whether something else than nodes carries a group, such as an instance or a function."""
    for resource in templates.everything():
        if not resource.type.startswith((GROUP, *_NO_CLIENTS)) and any(
            templates.target({"Ref": name}, resource.file) is group
            for _, name in named(dict(resource.properties), ())
        ):
            return True
    return False


def _nodes_unknown(templates: TemplateSet) -> bool:
    """Tell whether nodes may carry a group that nobody can name, such as a parameter's."""
    for group in templates.resources("AWS::EKS::Nodegroup"):
        used = group.properties.get("LaunchTemplate")
        if not is_absent(used) and launch_template_of(group, templates) is None:
            return True
    for template in launch_templates(templates):
        carried: list[Json] = [template.data.get("SecurityGroupIds")]
        carried += [each.body.get("Groups") for each in template.interfaces or []]
        for listed in carried:
            values = items(listed)
            if values is None or template.interfaces is None:
                return True
            if any(templates.may_be_any(each, template.resource.file) for each in values):
                return True
    return False


def _is_another(rule: Rule) -> bool:
    """Tell that the other side is a group, and not the one that the rule belongs to."""
    return not rule.is_range and (rule.is_outside or not rule.is_unknown)


def _client(
    client: Resource | None, servers: set[str], templates: TemplateSet
) -> Iterator[Finding]:
    """Check that the servers may call a client back."""
    rules = rules_of(client, "Ingress", templates) if client else None
    if client is None or rules is None or not all(rule.group for rule in rules):
        return
    if _of_control_plane(client, templates) and not _on_nodes(client, templates):
        return
    opened: set[int] = set()
    for rule in rules:
        ports = opened_by(rule)
        if ports is None:
            return
        opened |= ports if rule.peer in servers else set()
    if not opened >= PORTS:
        found = "Lustre's clients carry this group, and it does not admit the file servers"
        yield client.find(Code.LUSTRE_PORTS, ("SecurityGroupIngress",), found, _REMEDY)


def _all_rules(
    groups: list[Resource], direction: Direction, templates: TemplateSet
) -> list[Rule] | None:
    found: list[Rule] = []
    for group in groups:
        rules = rules_of(group, direction, templates)
        if rules is None:
            return None
        found += rules
    return found


def _incomplete(
    group: Resource, direction: Direction, rules: list[Rule], names: set[str]
) -> Iterator[Finding]:
    """Report each peer that gets some of the ports, or the group when nobody gets any."""
    opened: dict[str, set[int]] = {}
    slips = _slips(rules) if direction == "Ingress" else []
    for rule in rules:
        # A slip is told of at its own place.
        ports = {_FIRST} if rule in slips else opened_by(rule)
        if ports is None or (rule.is_unknown and not (rule.is_outside and len(names) == 1)):
            return
        opened.setdefault(rule.peer, set()).update(ports)
    if any(rule.is_range and opened[rule.peer] == PORTS for rule in rules):
        # A range of addresses with all of the ports may hold every other peer.
        return
    ranges = {rule.peer for rule in rules if rule.is_range and opened[rule.peer]}
    # A range that only CloudFormation knows may be the same as another one.
    if len(ranges) > 1 and any("{" in peer for peer in ranges):
        return
    if not any(opened.values()):
        found = f"no {direction.lower()} rule opens Lustre's ports, TCP {_RANGES}"
        yield group.find(Code.LUSTRE_PORTS, (f"SecurityGroup{direction}",), found, _REMEDY)
    others = opened.keys() - names
    # What comes from outside may be the same as another one.
    if len(others) > 1 and any(rule.is_outside for rule in rules):
        opened = {peer: ports for peer, ports in opened.items() if peer in names}
    yield from _in_part(direction, rules, opened)


def _in_part(
    direction: Direction, rules: list[Rule], opened: dict[str, set[int]]
) -> Iterator[Finding]:
    """Report once those peers that lack the same ports."""
    narrow: dict[frozenset[int], list[Rule]] = {}
    for rule in rules:
        ports = opened.pop(rule.peer, set())
        if ports and ports != PORTS:
            narrow.setdefault(PORTS - ports, []).append(_cut_short(rule, rules, PORTS - ports))
    for ports_missing, where in narrow.items():
        missing = ", ".join(str(port) for port in sorted(ports_missing))
        found = f"Lustre also needs TCP {missing} where this {direction.lower()} rule opens a part"
        if where[1:]:
            others_too = dict.fromkeys(_place(rule) for rule in where[1:])
            found += f", and the same at {', '.join(others_too)}"
        yield where[0].resource.find(Code.LUSTRE_PORTS, where[0].path, found, _REMEDY)


def _cut_short(first: Rule, rules: list[Rule], missing: frozenset[int]) -> Rule:
    """Return the rule of a peer that opens a part of the range of which the rest is missing."""
    upper = PORTS - {min(PORTS)}
    parts = [
        rule
        for rule in rules
        if rule.peer == first.peer and missing < upper and (opened_by(rule) or set()) & upper
    ]
    return parts[0] if parts else first


def _place(rule: Rule) -> str:
    """Write where a rule stands."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in rule.path)
    return f"{rule.resource.id}{''.join(parts)}"


def opened_by(rule: Rule) -> set[int] | None:
    """Return Lustre's ports that a rule opens; None when nobody can know."""
    if rule.protocol == ALL:
        return set(PORTS)
    if rule.protocol is None or (
        rule.protocol == TCP and (rule.first is None or rule.last is None)
    ):
        return None
    if rule.protocol != TCP or rule.first is None or rule.last is None:
        return set()
    return {port for port in PORTS if rule.first <= port <= rule.last}
