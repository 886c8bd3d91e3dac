"""Guards of EFA: the interfaces of each launch template, their groups, and the groups' rules."""

from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES
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


@template_guard
def efa_layout(templates: Templates) -> Iterator[Finding]:
    """Every card has the interface that EC2 recommends, or its bandwidth is paid for and idle.

    EC2 User Guide, "Maximize network bandwidth on instances with multiple network cards".
    """
    for data in [each["LaunchTemplateData"] for each in templates.of("EC2::LaunchTemplate")]:
        instance, interfaces = INSTANCES.get(data["InstanceType"].text), data["NetworkInterfaces"]
        why = "it outlives its node"
        for kept in [each["DeleteOnTermination"] for each in interfaces]:
            yield from kept.must_be(Code.EFA_INTERFACES, YES, why=why, level=Level.WARNING)
        if instance is None or not (instance.efa_interfaces or list(interfaces)):
            continue
        layout, given = network_interfaces(instance), [_slot(each) for each in interfaces]
        wanted = {f"card {nic.card} device {nic.device}": str(nic.type) for nic in layout}
        for empty in [slot for slot in wanted if slot not in given][:1]:
            found = f"{instance.name} has nothing at {empty}: NCCL loses the bandwidth"
            remedy = f"add {wanted[empty]!r} there; {len(wanted)} interfaces make the full layout"
            level = Level.ERROR if given or instance.gpu_direct_rdma else Level.WARNING
            yield interfaces.finding(Code.EFA_INTERFACES, found, remedy, level)
        for slot, each in zip(given, interfaces, strict=True):
            kind = each["InterfaceType"].raw or "interface"
            right = f"one {wanted[slot]}" if slot in wanted else "nothing"
            if kind != wanted.get(slot) or given.count(slot) > 1:
                found = (
                    f"{kind} at {slot}, where {instance.name} takes {right}: EFA or launch fails"
                )
                yield each.finding(Code.EFA_INTERFACES, found, f"leave {right} there")
                break


@template_guard
def groups_on_interfaces(templates: Templates) -> Iterator[Finding]:
    """Every interface carries the cluster's group and the nodes' group.

    Without the first a node never joins; without the second its card lets no EFA traffic in, and
    NCCL hangs on this card alone (EC2 API, LaunchTemplateInstanceNetworkInterfaceSpecification).
    """
    clusters = templates.of("EKS::Cluster")
    remedy = "name the cluster's group (ClusterSecurityGroupId) and the nodes' (Network stack)"
    for data in [each.data for each in node_groups(templates) if each.template]:
        beside = data["SecurityGroupIds"]
        carriers = [each["Groups"] for each in data["NetworkInterfaces"]]
        why = "EC2 takes no groups beside NetworkInterfaces, which have their own"
        yield from beside.must_be(Code.INTERFACES_AND_GROUPS, None, why=why) if carriers else ()
        every = [str(group.raw) for groups in carriers for group in groups]
        usual = {name for name in every if every.count(name) * 2 > len(carriers)}
        for groups in carriers or [beside]:
            names, targets = {str(each.raw) for each in groups}, templates.targets(groups)
            hidden = isinstance(groups.raw, dict | str) or len(targets) < len(list(groups))
            joins = groups.texts or any(each.type == "AWS::EKS::Cluster" for each in targets)
            nodes = hidden or any(each.name == _OF_NODES for each in targets)
            for wrong, code, found in (
                (not (names or hidden), Code.INTERFACES_AND_GROUPS, "no groups: no node joins"),
                (names and clusters and not joins, Code.CLUSTER_GROUP, _NO_CLUSTER),
                (names and (usual - names or not nodes), Code.EFA_SELF_RULES, _NO_NODES),
            ):
                yield from report(code, (wrong, groups, found, remedy))


@template_guard
def self_rules(templates: Templates) -> Iterator[Finding]:
    """EFA needs a group that admits all traffic from and to itself, by its own id.

    EFA is no IP traffic, so ranges and ports do not admit it: NCCL waits, or ends with "unhandled
    system error" (EC2 User Guide, "Get started with EFA", step 1).
    """
    for group in [each for each in templates.of("EC2::SecurityGroup") if each.name == _OF_NODES]:
        for kind, side in (("Ingress", "Source"), ("Egress", "Destination")):
            rules = templates.of(f"EC2::SecurityGroup{kind}")
            near = [rule for rule in rules if templates.target(rule["GroupId"]) == group]
            far = f"{side}SecurityGroupId"
            own = [rule["IpProtocol"] for rule in near if templates.target(rule[far]) == group]
            why = "EFA traffic between nodes is dropped, and NCCL hangs"
            if not own:
                remedy = f"add AWS::EC2::SecurityGroup{kind}: IpProtocol -1, this group as {far}"
                place, found = Value(None, group.body.place), f"no {kind} rule for itself: {why}"
                yield place.finding(Code.EFA_SELF_RULES, found, remedy)
            elif "-1" not in [protocol.raw for protocol in own]:
                yield from own[0].must_be(Code.EFA_SELF_RULES, "-1", why=why)


def _slot(interface: Value) -> str:
    card, device = interface["NetworkCardIndex"], interface["DeviceIndex"]
    return f"card {written(card.raw) if card else 0} device {written(device.raw)}"
