"""Guards of EFA: the interfaces of each launch template, their groups, and the groups' rules."""

from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.catalog.interfaces import network_interfaces
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.nodes import node_groups
from megatron_eks.guards.templates import Templates, template_guard
from megatron_eks.guards.values import Value, written

_OF_NODES = "NodeSecurityGroup"
"""How the Network stack calls the group of the nodes, also where no node is at hand."""


@template_guard
def efa_layout(templates: Templates) -> Iterator[Finding]:
    """Every card has the interface that EC2 recommends, or its bandwidth is paid for and idle.

    EC2 User Guide, "Maximize network bandwidth on instances with multiple network cards".
    """
    for template in templates.of("EC2::LaunchTemplate"):
        data = template["LaunchTemplateData"]
        instance, interfaces = INSTANCES.get(data["InstanceType"].text), data["NetworkInterfaces"]
        if instance and list(interfaces):
            yield from _against(interfaces, instance)
        elif instance and instance.efa_interfaces:
            found = f"none of the {instance.efa_interfaces} EFA interfaces of {instance.name} is "
            found += "attached: NCCL falls back to TCP"
            remedy = "list an efa-only interface for every card, after the ordinary one"
            level = Level.ERROR if instance.gpu_direct_rdma else Level.WARNING
            yield interfaces.finding(Code.EFA_INTERFACES, found, remedy, level)


@template_guard
def interface_settings(templates: Templates) -> Iterator[Finding]:
    """Interfaces live as long as their node, in its subnet (EC2 and EKS API references)."""
    for template in templates.of("EC2::LaunchTemplate"):
        for each in template["LaunchTemplateData"]["NetworkInterfaces"]:
            for name, value, code, why in (
                ("DeleteOnTermination", True, Code.EFA_INTERFACES, "it outlives its node"),
                ("AssociatePublicIpAddress", None, Code.PUBLIC_ADDRESS, "EC2 refuses it here"),
                ("SubnetId", None, Code.MANAGED_NODES, "the node group names the subnet"),
            ):
                level = Level.WARNING if value else Level.ERROR
                yield from each[name].must_be(code, value, why=why, level=level)


@template_guard
def groups_on_interfaces(templates: Templates) -> Iterator[Finding]:
    """Every interface carries the cluster's group and the nodes' group.

    Without the first a node never joins; without the second its card lets no EFA traffic in, and
    NCCL hangs on this card alone (EC2 API, LaunchTemplateInstanceNetworkInterfaceSpecification).
    """
    for data in [each.data for each in node_groups(templates) if each.template]:
        carriers = [each["Groups"] for each in data["NetworkInterfaces"]]
        if carriers:
            why = "EC2 takes no groups beside NetworkInterfaces, which have their own"
            yield from data["SecurityGroupIds"].must_be(Code.INTERFACES_AND_GROUPS, None, why=why)
        usual = max((_names(each) for each in carriers), key=lambda e: len({*e}), default=[])
        for groups in carriers or [data["SecurityGroupIds"]]:
            yield from _groups(groups, templates)
            if (lacking := {*usual} - {*_names(groups)}) and groups:
                found = f"without {', '.join(sorted(lacking))}, which other interfaces have: "
                found += "traffic of this card is dropped, and NCCL hangs"
                yield groups.finding(Code.EFA_SELF_RULES, found, "add it, as on the others")


@template_guard
def self_rules(templates: Templates) -> Iterator[Finding]:
    """EFA needs a group that admits all traffic from and to itself, by its own id.

    EFA is no IP traffic, so ranges and ports do not admit it: NCCL waits, or ends with "unhandled
    system error" (EC2 User Guide, "Get started with EFA", step 1).
    """
    carried = [each for each in templates.of("EC2::SecurityGroup") if each.name == _OF_NODES]
    for template in templates.of("EC2::LaunchTemplate"):
        for interface in template["LaunchTemplateData"]["NetworkInterfaces"]:
            found = templates.targets(interface["Groups"])
            own = [each for each in found if each.type == "AWS::EC2::SecurityGroup"]
            # Of several groups one is enough, and one that is not at hand may be it.
            if len(found) == len(list(interface["Groups"])) and len(own) == 1:
                carried += own
    for group in {(each.file, each.name): each for each in carried}.values():
        for kind, side, way in (
            ("EC2::SecurityGroupIngress", "SourceSecurityGroupId", "from"),
            ("EC2::SecurityGroupEgress", "DestinationSecurityGroupId", "to"),
        ):
            rules = [r for r in templates.of(kind) if templates.target(r["GroupId"]) == group]
            own = [rule for rule in rules if templates.target(rule[side]) == group]
            if not own:
                found_ = (
                    f"no rule for all traffic {way} the group itself: EFA is dropped, and NCCL "
                )
                found_ += "hangs"
                remedy = f"add AWS::{kind}: IpProtocol -1, this group as GroupId and as {side}"
                place = Value(None, group.body.place)
                yield place.finding(Code.EFA_SELF_RULES, found_, remedy)
            elif all(rule["IpProtocol"].text != "-1" for rule in own):
                why = f"EFA traffic {way} the nodes is none of it, and NCCL hangs"
                yield from own[0]["IpProtocol"].must_be(Code.EFA_SELF_RULES, "-1", why=why)


def _against(interfaces: Value, instance: InstanceType) -> Iterator[Finding]:
    layout = network_interfaces(instance)
    wanted: dict[tuple[float, float], str] = {(nic.card, nic.device): nic.type for nic in layout}
    # What AWS documented first, and some prefer: EFA with an address on every card.
    former = {(card, min(card, 1)): "efa" for card, _ in wanted}
    listed = [(_slot(each), each) for each in interfaces]
    if sorted((slot, _type(each)) for slot, each in listed) == sorted(former.items()):
        return
    given = [slot for slot, _ in listed]
    empty = [slot for slot in wanted if slot not in given]
    wrong: dict[tuple[str, Level], list[tuple[Value, str]]] = {}
    for index, (slot, each) in enumerate(listed):
        remedy, level = f"put it at {_at(empty[0])}" if empty else "remove it", Level.ERROR
        if slot in given[:index]:
            found = f"{_at(slot)} has interface {given.index(slot)}: EC2 refuses the launch"
        elif slot not in wanted:
            found = f"no interface belongs at {_at(slot)} of {instance.name}"
            if slot[0] in range(instance.network_cards) and _type(each) == "interface":
                level = Level.WARNING  # One more for IP traffic is a choice.
        elif _type(each) != wanted[slot]:
            found = f"{_type(each)!r} at {_at(slot)} of {instance.name}: that card loses its EFA"
            remedy = f"set InterfaceType to {wanted[slot]}"
        else:
            continue
        wrong.setdefault((remedy, level), []).append((each, found))
    for (remedy, level), ((first, found), *more) in wrong.items():
        alike = f" (and {len(more)} more like it)" if more else ""
        yield first.finding(Code.EFA_INTERFACES, found + alike, remedy, level)
    if empty:
        more_ = f" and {len(empty) - 1} more places" if empty[1:] else ""
        found = f"{instance.name} has nothing at {_at(empty[0])}{more_}: NCCL loses the bandwidth"
        remedy = f"add an interface of type {wanted[empty[0]]} there"
        yield interfaces.finding(Code.EFA_INTERFACES, found, remedy)


def _slot(interface: Value) -> tuple[float, float]:
    """Return card and device; -1 for what is none."""
    card, device = interface["NetworkCardIndex"].number, interface["DeviceIndex"].number
    if card is None:
        card = -1 if interface["NetworkCardIndex"] else 0
    return card, -1 if device is None else device


def _type(interface: Value) -> str:
    given = interface["InterfaceType"]
    return given.text or written(given.raw) if given else "interface"


def _at(slot: tuple[float, float]) -> str:
    return f"card {slot[0]} device {slot[1]}" if min(slot) >= 0 else "no card or device"


def _names(groups: Value) -> list[str]:
    """Name groups as the template does: by export, logical id or id."""
    names = []
    for each in groups:
        inner = each.raw
        while isinstance(inner, dict | list) and inner:
            inner = inner[0] if isinstance(inner, list) else next(iter(inner.values()))
        names.append(str(inner))
    return names


def _groups(groups: Value, templates: Templates) -> Iterator[Finding]:
    """Check the groups of one interface, or of a node without a list of interfaces."""
    names, targets = _names(groups), templates.targets(groups)
    clusters = [each for each in targets if each.type == "AWS::EKS::Cluster"]
    if not names and not isinstance(groups.raw, dict | str):
        found = f"no {groups.name}: it gets the VPC's default group, and the node never joins"
        remedy = "name the cluster's group and the nodes' group"
        yield groups.finding(Code.INTERFACES_AND_GROUPS, found, remedy)
    elif len({*names}) < len(names):
        found = "a group is named twice"
        yield groups.finding(Code.TWICE, found, "remove one of the two", Level.WARNING)
    elif not clusters and templates.of("EKS::Cluster") and not groups.texts:
        found = "without the cluster's own group control plane and node do not reach each other"
        remedy = "add Fn::GetAtt [CLUSTER, ClusterSecurityGroupId]"
        yield groups.finding(Code.CLUSTER_GROUP, found, remedy)
    elif clusters and len(clusters) == len(names):
        found = "without the nodes' group neither EFA nor Lustre traffic is admitted"
        yield groups.finding(
            Code.EFA_SELF_RULES, found, "add the nodes' group of the Network stack"
        )
