"""Guards of EFA: the interfaces of each launch template, their groups, and the groups' rules."""

from collections.abc import Iterator

from megatron_eks.catalog.interfaces import network_interfaces
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.nodes import node_groups
from megatron_eks.guards.templates import Templates, template_guard
from megatron_eks.guards.values import YES, Row, Value, report, written

_OF_NODES = "NodeSecurityGroup"
"""How the Network stack calls the group of the nodes."""
_NO_CLUSTER = "without the cluster's group the node reaches no control plane, and never joins"
_NO_NODES = "without the nodes' group traffic of EFA and Lustre is dropped, and NCCL hangs"
_GROUPS = "name the cluster's group (ClusterSecurityGroupId) and the nodes' (Network stack)"
_BESIDE: Row = ("SecurityGroupIds", (None,), "EC2 takes none beside NetworkInterfaces' own")
_DELETED: Row = ("DeleteOnTermination", (YES,), "it outlives its node")
_SIDES = (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId"))
_ITSELF = "for all traffic of the group with itself: EFA's is dropped, and NCCL hangs"


@template_guard
def efa_layout(templates: Templates) -> Iterator[Finding]:
    """Every card has its interface (EC2, "Maximize network bandwidth ... multiple cards")."""
    for each in node_groups(templates):
        nics, instance = each.data["NetworkInterfaces"], each.instance
        for nic in nics:
            yield from nic.must_hold(Code.EFA_INTERFACES, [_DELETED], Level.WARNING)
        if not instance or not (instance.efa_interfaces or list(nics)):
            continue
        wanted = {f"card {e.card} device {e.device}": e.type for e in network_interfaces(instance)}
        level = Level.ERROR if list(nics) or instance.gpu_direct_rdma else Level.WARNING
        for slot in dict.fromkeys([*wanted, *map(_slot, nics)]):
            here = [nic for nic in nics if _slot(nic) == slot]
            kinds = [str(nic["InterfaceType"].raw or "interface") for nic in here]
            found = f"[{', '.join(kinds)}] at {slot}: NCCL loses the bandwidth, or no node starts"
            remedy = f"{instance.name} takes {wanted.get(slot, 'nothing')} there"
            row = (kinds != [wanted.get(slot)], [nics, *here][-1], found, remedy)
            yield from report(Code.EFA_INTERFACES, row, level=level)


@template_guard
def groups_on_interfaces(templates: Templates) -> Iterator[Finding]:
    """Every interface carries the cluster's group and the nodes' (EC2 API, NetworkInterface...)."""
    clusters = templates.of("EKS::Cluster")
    for data in [each.data for each in node_groups(templates) if each.template]:
        carriers = [each["Groups"] for each in data["NetworkInterfaces"]]
        yield from data.must_hold(Code.INTERFACES_AND_GROUPS, [_BESIDE] if carriers else [])
        every = [str(group.raw) for groups in carriers for group in groups]
        usual = {name for name in every if every.count(name) * 2 > len(carriers)}
        for groups in carriers or [data["SecurityGroupIds"]]:
            names, targets = {str(each.raw) for each in groups}, templates.targets(groups)
            joins = groups.texts or any(each.type == "AWS::EKS::Cluster" for each in targets)
            apart = clusters and not joins
            nodes = len(targets) < len(names) or any(each.name == _OF_NODES for each in targets)
            lacks = names and (usual - names or not nodes)
            yield from report(Code.CLUSTER_GROUP, (apart, groups, _NO_CLUSTER, _GROUPS))
            yield from report(Code.EFA_SELF_RULES, (lacks, groups, _NO_NODES, _GROUPS))


@template_guard
def self_rules(templates: Templates) -> Iterator[Finding]:
    """EFA is no IP traffic: its group must admit itself (EC2, "Get started with EFA", step 1)."""
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
