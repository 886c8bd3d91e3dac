"""Guards of EFA: the interfaces of each launch template, their groups, and the groups' rules."""

from collections.abc import Iterator

from megatron_eks.catalog.interfaces import network_interfaces
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.nodes import node_groups
from megatron_eks.guards.templates import Templates, template_guard
from megatron_eks.guards.values import YES, Value, report, written

_OF_NODES = "NodeSecurityGroup"
"""How the Network stack calls the group of the nodes."""
_NO_CLUSTER = "without the cluster's group the node reaches no control plane, and never joins"
_NO_NODES = "without the nodes' group traffic of EFA and Lustre is dropped, and NCCL hangs"
_GROUPS = "name the cluster's group (ClusterSecurityGroupId) and the nodes' (Network stack)"
_BESIDE = "EC2 takes no groups beside NetworkInterfaces, which have their own"
_SIDES = (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId"))
_ITSELF = "for all traffic of the group with itself: EFA's is dropped, and NCCL hangs"


@template_guard
def efa_layout(templates: Templates) -> Iterator[Finding]:
    """Every card has the interface that EC2 recommends, or its bandwidth is paid for and idle.

    EC2 User Guide, "Maximize network bandwidth on instances with multiple network cards".
    """
    for each in [one for one in node_groups(templates) if one.instance]:
        nics, instance = each.data["NetworkInterfaces"], each.instance
        for nic in nics:
            why = "it outlives its node"
            yield from nic["DeleteOnTermination"].must_be(Code.EFA_INTERFACES, YES, why=why)
        if not instance or not (instance.efa_interfaces or list(nics)):
            continue
        wanted = {f"card {e.card} device {e.device}": e.type for e in network_interfaces(instance)}
        level = Level.ERROR if list(nics) or instance.gpu_direct_rdma else Level.WARNING
        for slot in dict.fromkeys([*wanted, *map(_slot, nics)]):
            here = [nic for nic in nics if _slot(nic) == slot]
            kinds = [str(nic["InterfaceType"].raw or "interface") for nic in here]
            if kinds != [wanted.get(slot)]:
                right = wanted.get(slot, "nothing")
                found = (
                    f"{', '.join(kinds) or 'nothing'} at {slot}: NCCL loses the card's bandwidth"
                )
                remedy = f"{instance.name} takes {right} there, and {len(wanted)} interfaces"
                yield (here or [nics])[-1].finding(Code.EFA_INTERFACES, found, remedy, level)


@template_guard
def groups_on_interfaces(templates: Templates) -> Iterator[Finding]:
    """Every interface carries the cluster's group and the nodes' group.

    Without the first a node never joins; without the second its card lets no EFA traffic in, and
    NCCL hangs on this card alone (EC2 API, LaunchTemplateInstanceNetworkInterfaceSpecification).
    """
    clusters = templates.of("EKS::Cluster")
    for data in [each.data for each in node_groups(templates) if each.template]:
        beside, carriers = (
            data["SecurityGroupIds"],
            [e["Groups"] for e in data["NetworkInterfaces"]],
        )
        yield from beside.must_be(Code.INTERFACES_AND_GROUPS, None, why=_BESIDE) if carriers else ()
        every = [str(group.raw) for groups in carriers for group in groups]
        usual = {name for name in every if every.count(name) * 2 > len(carriers)}
        for groups in carriers or [beside]:
            names, targets = {str(each.raw) for each in groups}, templates.targets(groups)
            hidden = len(targets) < len(names)
            joins = groups.texts or any(each.type == "AWS::EKS::Cluster" for each in targets)
            nodes = hidden or any(each.name == _OF_NODES for each in targets)
            for wrong, code, found in (
                (not names, Code.INTERFACES_AND_GROUPS, "no groups: no node joins"),
                (names and clusters and not joins, Code.CLUSTER_GROUP, _NO_CLUSTER),
                (names and (usual - names or not nodes), Code.EFA_SELF_RULES, _NO_NODES),
            ):
                yield from report(code, (wrong, groups, found, _GROUPS))


@template_guard
def self_rules(templates: Templates) -> Iterator[Finding]:
    """EFA needs a group that admits all traffic from and to itself, by its own id.

    EFA is no IP traffic, so ranges and ports do not admit it: NCCL waits, or ends with "unhandled
    system error" (EC2 User Guide, "Get started with EFA", step 1).
    """
    for group in [each for each in templates.of("EC2::SecurityGroup") if each.name == _OF_NODES]:
        for kind, far in _SIDES:
            rules = templates.of(f"EC2::SecurityGroup{kind}")
            near = [rule for rule in rules if templates.target(rule["GroupId"]) == group]
            own = [rule["IpProtocol"] for rule in near if templates.target(rule[far]) == group]
            none = "-1" not in [protocol.raw for protocol in own]
            place, found = Value(None, group.body.place), f"no {kind} rule {_ITSELF}"
            remedy = f"write AWS::EC2::SecurityGroup{kind}, IpProtocol '-1', {far} this group"
            yield from report(Code.EFA_SELF_RULES, (none, [*own, place][0], found, remedy))


def _slot(interface: Value) -> str:
    card, device = interface["NetworkCardIndex"], interface["DeviceIndex"]
    return f"card {written(card.raw) if card else 0} device {written(device.raw)}"
