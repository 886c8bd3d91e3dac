"""Guards of nodes: launch template, AMI, sizes, user data, disk, capacity and EFA."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_string
from functools import partial

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.catalog.interfaces import max_pods, network_interfaces
from megatron_eks.config.errors import choices
from megatron_eks.config.load import Json, read_documents
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.network import NODES
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import NO, YES, Found, Row, Value, report, same, written

_LABEL = "megatron-eks/pool"
# Every P and G family of EC2 has GPUs.
_WITH_GPUS = re.compile(r"(p[2-9]|gr?[3-9])")
_TAKEN, _OPTIONS = "pods could take the node's credentials", "LaunchTemplateData MetadataOptions "
_METADATA: tuple[Row, ...] = (
    *same(_OPTIONS, _TAKEN, {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}),
    (f"{_OPTIONS}HttpEndpoint", ("enabled", None), "no node joins"),
)
_ROOT: Row = ("DeviceName", ("/dev/xvda",), "AL2023 boots from it; images fill its 20 GiB")
_DISK = "BlockDeviceMappings * Ebs "
_VOLUME: tuple[Row, ...] = (
    (f"{_DISK}Encrypted", (YES,), "whoever gets the disk reads the tokens on it"),
    (f"{_DISK}DeleteOnTermination", (YES,), "it outlives its node and goes on costing money"),
    (f"{_DISK}VolumeType", ("gp3", "gp2", "io2", "io1"), "other types boot slowly, or not at all"),
)
_ROOM = 50  # GiB for images of CUDA and Megatron; the AMI has 20
_UNUSABLE = "its policy leaves out AWSServiceRoleForAutoScaling: no node starts"
_GRANT = "allow that role kms:CreateGrant, Decrypt and GenerateDataKey*"
_NO_DRIVER = "it lacks the GPU driver, or does not boot"
_BARE = "no launch template: nodes start without EFA and with a 20 GiB disk"
_OTHER = "it is another group's template: nodes start with the wrong type"
_STALE = "changes to the launch template never reach a node"
_SAID = "EKS refuses it beside a launch template, which already says it"
_REFUSED = [(key, (None,), _SAID) for key in ("DiskSize", "RemoteAccess", "InstanceTypes")]
_OF_THE_GROUP = "EKS refuses it in a launch template: the group says it"
_NOT_THERE = ("IamInstanceProfile", "HibernationOptions", "NetworkInterfaces * SubnetId")
_WITHOUT = same("", "EKS refuses it beside an image of one's own", {"ReleaseVersion": None})
_WITHOUT += [("AmiType", ("CUSTOM", None), _WITHOUT[0][2])]
_REPAIR: list[Row] = [
    ("NodeRepairConfig Enabled", (YES,), "broken nodes stay, and jobs hang on them"),
    ("UpdateConfig MaxUnavailable", (1,), "EKS replaces that many nodes at once"),
]
_PAID = "these nodes are paid day and night, and CloudFormation resizes a pool in use"
_RESIZED = "CloudFormation sends it with a later change, and resizes a pool in use"
# EKS's default quota of nodes in a group is 450: `meks scale` moves the wanted size below it.
_LIMITS = ("MinSize", 0), ("DesiredSize", 0), ("MaxSize", 450)
_TWO = 2  # CoreDNS and the operator stay when one node is replaced
_SIZES = [(key, (right,), _RESIZED if right else _PAID) for key, right in _LIMITS]
_SETTLE = "pods without GPUs land on the pool's nodes, or its own pods stay Pending"
_TAINT = same("", _SETTLE, {"Key": "nvidia.com/gpu", "Value": "true", "Effect": "NO_SCHEDULE"})
_UNSELECTED = "NodegroupName differs: jobs that select the pool stay Pending"
_NODE_CONFIG, _UNREAD = "application/node.eks.aws", "nodeadm ignores it, and no node joins"
_MIME = f"put multipart/mixed into Fn::Base64, with a part {_NODE_CONFIG}"
_PARTS = {_NODE_CONFIG, "text/x-shellscript", "text/cloud-config"}
_HEAD = same("", _UNREAD, {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig"})
_ROOM_FOR = ("pods wait for addresses", "the node runs fewer pods than it could")
_IDLE = "the NVMe disks stay idle, and images fill the root volume"
_DISKS: Row = ("spec instance localStorage strategy", ("RAID0", "RAID10", "Mount"), _IDLE)
_LONELY = "add-ons need two nodes, and nothing here resizes the group"
_ZONES = "not exactly one subnet: EFA does not cross zones, and the nodes would"
_SURGE = "an update starts a node first, and what is reserved has none to spare"
_RESERVED = re.compile(r"cr-[0-9a-f]{8,17}")  # a Capacity Block's too
_NAMELESS = "it needs either a reservation or a group of them: no node starts"
_CLUSTER: Row = ("Strategy", ("cluster", None), "the EFA nodes of a job are placed far apart")
_FAR = "neither a reservation nor a placement group: nodes are placed far apart"
_APART = "a reservation made outside this group has no capacity in it"
_NO_CLUSTER = "without the cluster's group the node cannot reach the control plane or join"
_NO_NODES = "without the nodes' group, EFA and Lustre traffic is dropped and NCCL hangs"
_GROUPS = "name both the cluster's group (ClusterSecurityGroupId) and the nodes' (Network stack)"
_BESIDE: Row = ("SecurityGroupIds", (None,), "EC2 refuses it: NetworkInterfaces name their own")
_MANY = "EC2 gives none to an instance with several interfaces, and starts no node"
# One interface for IP and EFA is the older form of two: both are right, on the first card.
_FIRST, _SECOND = "card 0 device 0", "card 0 device 1"
_ADDRESS: Row = ("NetworkInterfaces * AssociatePublicIpAddress", (NO, None), _MANY)
_DELETED: Row = ("NetworkInterfaces * DeleteOnTermination", (YES,), "it outlives its node")


@dataclass(frozen=True)
class NodeGroup:
    """A node group, and what its launch template says, where that is at hand."""

    group: Resource
    template: Resource | None
    data: Value
    instance: InstanceType | None
    has_gpus: bool


def node_groups(templates: Templates) -> Iterator[NodeGroup]:
    """Return the node groups with their launch templates."""
    known = templates.of("EC2::LaunchTemplate")
    for group in templates.of("EKS::Nodegroup"):
        # That of another group is a slip of its own, and says nothing about this one.
        own = (each for each in known if _pool_of(each.name) == _pool_of(group.name))
        template = next(own, templates.target(group["LaunchTemplate"]["Id"]))
        data = template["LaunchTemplateData"] if template else Value(None, group.body.place)
        name = data["InstanceType"].text or group["InstanceTypes"][0].text
        has_gpus = bool(_WITH_GPUS.match(name) or group["Labels"][_LABEL])
        yield NodeGroup(group, template, data, INSTANCES.get(name), has_gpus)


def pool_types(templates: Templates) -> dict[str, str]:
    """Return the pools of GPU nodes, with the instance type of each."""
    named = [(e.group["Labels"][_LABEL], e.data["InstanceType"]) for e in node_groups(templates)]
    return {pool.text: kind.text for pool, kind in named if pool.text}


@template_guard
def machines(templates: Templates) -> Found:
    """Credentials and disks stay in the machine (EKS best practices, "Restrict access to IMDS")."""
    yield from constants(templates.of("EC2::LaunchTemplate"), Rule.NODE_METADATA, *_METADATA)
    for data in [each.data for each in node_groups(templates) if each.template]:
        volumes = data["BlockDeviceMappings"]
        root = [*(one for one in volumes if one["DeviceName"].raw in _ROOT[1]), volumes[0]][0]
        size = root["Ebs"]["VolumeSize"]
        found, small = f"{written(size.raw)} GiB: images fill the disk", (size.number or 0) < _ROOM
        yield from root.must_hold(Rule.ROOT_VOLUME, _ROOT)
        yield from data.must_hold(Rule.ROOT_VOLUME, *_VOLUME)
        yield from report(Rule.ROOT_VOLUME, small, size, found, f"set it to {2 * _ROOM} or more")
        for key in [each["Ebs"]["KmsKeyId"] for each in volumes]:
            own = templates.target(key)
            shut = own and "AWSServiceRoleForAutoScaling" not in str(own["KeyPolicy"].raw)
            yield from report(Rule.KEY_POLICY, shut, key, _UNUSABLE, _GRANT)


@template_guard
def launch_template(templates: Templates) -> Found:
    """Node groups follow their own template (EKS, "Customize managed nodes with ...")."""
    code = Rule.MANAGED_NODES
    for each in node_groups(templates):
        link, typed = each.group["LaunchTemplate"], each.data["InstanceType"]
        own, version = each.template.name if each.template else "the group's own", link["Version"]
        name = target.name if (target := templates.target(link["Id"])) else ""
        lost = name and templates.text(version) != f"${{{name}.LatestVersionNumber}}"
        latest, other = f"set it to Fn::GetAtt [{own}, LatestVersionNumber]", name not in ("", own)
        bare = not link["Id"] and not link["Name"]
        yield from report(code, bare, link["Id"], _BARE, f"use Ref {own}")
        yield from report(code, other, link["Id"], _OTHER, f"use Ref {own}, in Version too")
        yield from report(code, lost, version, _STALE, latest)
        yield from each.group.properties.must_hold(code, *(_REFUSED if typed else ()))
        yield from each.data.must_hold(code, *((e, (None,), _OF_THE_GROUP) for e in _NOT_THERE))
        minor, release = each.group["Version"].text, each.group["ReleaseVersion"]
        apart = minor and release and not release.text.startswith(f"{minor}.")
        found = f"{release.raw!r} is no release of Kubernetes {minor}: EKS refuses the group"
        remedy = f"write one of {minor}, or none, unless Version is wrong"
        yield from report(code, apart, release, found, remedy)
        unknown = name and each.has_gpus and not each.instance
        found = f"{written(typed.raw)} is no known type with GPUs: no job finds its node"
        row = (unknown, typed, found, choices(typed.text, INSTANCES))
        yield from report(Rule.INSTANCE_TYPE_NAME, *row)
        right = f"AL2023_x86_64_{'NVIDIA' if each.has_gpus else 'STANDARD'}"
        image = _WITHOUT if each.data["ImageId"] else [("AmiType", (right,), _NO_DRIVER)]
        yield from each.group.properties.must_hold(Rule.AMI_TYPE, *image)


@template_guard
def pools(templates: Templates) -> Found:
    """Pools keep size, zone, taint and label, and nodes are replaced (eksctl issue 3532)."""
    for group, is_pool in [(one.group, one.has_gpus) for one in node_groups(templates)]:
        sizes, taints, subnets = (group[key] for key in ("ScalingConfig", "Taints", "Subnets"))
        yield from constants([group], Rule.MANAGED_NODES, *_REPAIR, warns=True)
        if not is_pool:
            few, wanted, most = (sizes[key].number or 0 for key, _ in _LIMITS)
            lone, remedy = not _TWO <= few <= wanted <= most, "set all three to one number above 1"
            yield from report(Rule.NODE_GROUP_SIZE, lone, sizes, _LONELY, remedy)
            yield from taints.must_be(Rule.START_ORDER, None, why="add-ons stay Pending")
            continue
        yield from sizes.must_hold(Rule.NODE_GROUP_SIZE, *_SIZES, warns=True)
        yield from taints.must_be(Rule.SHARED_GPU_NODES, why=_SETTLE) if not list(taints) else ()
        for taint in taints:
            yield from taint.must_hold(Rule.SHARED_GPU_NODES, *_TAINT)
        many = isinstance(subnets.raw, list) and len(subnets.raw) != 1
        yield from report(Rule.NODE_GROUP_SUBNETS, many, subnets, _ZONES, "name the pool's own")
        label, name = group["Labels"][_LABEL], group["NodegroupName"]
        other, remedy = not name or name.raw != label.raw, "give both the pool's name"
        yield from report(Rule.MANAGED_NODES, other, label, _UNSELECTED, remedy)


@template_guard
def user_data(templates: Templates) -> Found:
    """User data is MIME with a NodeConfig that counts addresses (amazon-vpc-cni-k8s issue 3189)."""
    for each in [one for one in node_groups(templates) if one.template]:
        given, place = each.data["UserData"], each.data["UserData"]["Fn::Base64"]
        mime = message_from_string(templates.text(place))
        single = [part for part in mime.walk() if not part.is_multipart()]
        parts = {part.get_content_type(): str(part.get_payload()) for part in single}
        read = mime.is_multipart() and not mime.defects and {*parts} <= _PARTS
        refused, found = (place or given.text) and not read, "EKS refuses what is no MIME in parts"
        yield from report(Rule.USER_DATA, refused, place, found, _MIME)
        said = [one.value for one in read_documents(parts.get(_NODE_CONFIG, ""), "")]
        config = Value([*said, None][0], place.place, place.path)
        if each.instance and not refused and (place or not given):
            pods, most = config.at("spec kubelet config maxPods"), max_pods(each.instance)
            fewer = 0 < (pods.number or 0) < most
            yield from pods.must_be(Rule.MAX_PODS, most, why=_ROOM_FOR[fewer], warns=fewer)
            disks = [_DISKS] if each.instance.instance_store_gb else []
            yield from config.must_hold(Rule.USER_DATA, *_HEAD, *disks)


@template_guard
def capacity(templates: Templates) -> Found:
    """Group and template buy alike, nodes stand close (EKS, "... with Capacity Blocks for ML")."""
    code, placing = Rule.CAPACITY_RESERVATION, partial(report, Rule.PLACEMENT, warns=True)
    yield from constants(templates.of("EC2::PlacementGroup"), Rule.PLACEMENT, _CLUSTER)
    for each in [one for one in node_groups(templates) if one.template]:
        kind, market = each.group["CapacityType"], each.data["InstanceMarketOptions"]["MarketType"]
        given, placed = each.data["CapacityReservationSpecification"], each.data["Placement"]
        target, mode = given["CapacityReservationTarget"], given["CapacityReservationPreference"]
        name, arn = target["CapacityReservationId"], target["CapacityReservationResourceGroupArn"]
        block = kind.text == "CAPACITY_BLOCK" or market.text == "capacity-block"
        for matters, value, right, why in (
            (block, kind, ("CAPACITY_BLOCK",), "the template asks for a Capacity Block"),
            (block, market, ("capacity-block",), "nodes of a block start in this market only"),
            (not block, market, (None,), "CapacityType alone says it"),
            (target and not block, kind, ("ON_DEMAND", None), "the reservation stays idle"),
            (target, mode, (None, "capacity-reservations-only"), "EC2 refuses it with a target"),
        ):
            yield from value.must_be(code, *right, why=why) if matters else ()
        idle = mode.text == "none" and not target
        found, remedy = "no node uses what is reserved, and paid", "name its reservation as target"
        yield from report(code, idle, mode, found, remedy, warns=True)
        nameless = ((given and not mode) or block) and bool(name) == bool(arn)
        yield from report(code, nameless, target, _NAMELESS, f"set {name.name} alone")
        update = [("UpdateConfig UpdateStrategy", ("MINIMAL",), _SURGE)] * bool(target or block)
        yield from each.group.properties.must_hold(code, *update, warns=True)
        other = name.text and not _RESERVED.fullmatch(name.text)
        yield from report(code, other, name, f"{name.raw!r} is no reservation", "write its cr-...")
        group, bought = placed["GroupName"] or placed["GroupId"], target or block
        efa = each.instance and each.instance.efa_interfaces and kind.text != "SPOT"
        far, remedy = efa and not (group or bought), "remove one, unless it was made in the group"
        yield from placing(far, placed, _FAR, "name a reservation or a group")
        yield from placing(group and bought, placed, _APART, remedy)


@template_guard
def interfaces(templates: Templates) -> Found:
    """Every card has its interface and groups (EC2, "Maximize network bandwidth on ...")."""
    code, clusters = Rule.EFA_INTERFACES, templates.of("EKS::Cluster")
    for data, instance in [(e.data, e.instance) for e in node_groups(templates) if e.template]:
        nics, layout = data["NetworkInterfaces"], network_interfaces(instance) if instance else ()
        wanted = {_written_slot(e.card, e.device): str(e.type) for e in layout}
        given = [*map(_slot, nics)]
        both = any(e["InterfaceType"].text == "efa" and _slot(e) == _FIRST for e in nics)
        if both and _SECOND in wanted:  # else the card has no EFA
            wanted = {_FIRST: "efa", **{e: wanted[e] for e in wanted if e not in (_FIRST, _SECOND)}}
        every = [str(group.raw) for nic in nics for group in nic["Groups"]]
        usual = {name for name in every if every.count(name) * 2 > len(given)}
        for groups in [nic["Groups"] for nic in nics] or [data["SecurityGroupIds"]]:
            names, targets = {str(each.raw) for each in groups}, templates.targets(groups)
            joins = groups.texts or any(each.type == "AWS::EKS::Cluster" for each in targets)
            nodes = len(targets) < len(names) or any(NODES.fullmatch(each.name) for each in targets)
            apart, lacks = clusters and not joins, names and (usual - names or not nodes)
            yield from report(Rule.CLUSTER_GROUP, apart, groups, _NO_CLUSTER, _GROUPS)
            yield from report(Rule.EFA_SELF_RULES, lacks, groups, _NO_NODES, _GROUPS)
        yield from data.must_hold(Rule.INTERFACES_AND_GROUPS, *([_BESIDE] if given else []))
        yield from data.must_hold(code, _DELETED, warns=True)
        yield from data.must_hold(Rule.PUBLIC_ADDRESS, *([_ADDRESS] if given[1:] else []))
        spare = not given and not (instance and instance.gpu_direct_rdma)
        slots = [*wanted, *given] if wanted and (given or layout[1:]) else []
        here = {slot: [e["InterfaceType"] for e in nics if _slot(e) == slot] for slot in slots}
        kinds = {slot: ", ".join(e.text or "interface" for e in here[slot]) for slot in slots}
        for slot in [each for each in here if kinds[each] != wanted.get(each)][:2]:
            # EFA and IP in one interface serve as well, and take addresses.
            works = slot != _FIRST and kinds[slot] == "efa" and wanted.get(slot) == "efa-only"
            lost = "it takes addresses" if works else "NCCL loses bandwidth, or no node starts"
            remedy = f"put {wanted.get(slot, 'nothing')} there; the type has {len(wanted)} in all"
            if here[slot][1:]:
                remedy = f"remove all but one: {remedy}"
            found = f"{kinds[slot] or 'nothing'} at {slot}: {lost}"
            yield [nics, *here[slot]][-1].finding(code, found, remedy, warns=spare or works)


def _pool_of(logical_id: str) -> str:
    return re.sub(r"(LaunchTemplate|Nodegroup)[0-9A-F]{0,8}$", "", logical_id)


def _slot(nic: Value) -> str:
    return _written_slot(nic["NetworkCardIndex"].raw or 0, nic["DeviceIndex"].raw)


def _written_slot(card: Json, device: Json) -> str:
    """Write a card and a device; on other cards than the first EC2 takes device 0 and 1 alike."""
    either = card != 0 and device in (0, 1)
    return f"card {written(card)} device {'0 or 1' if either else written(device)}"
