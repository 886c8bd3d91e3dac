"""Guards of node groups and the bastion: launch template, AMI, sizes, taint, user data, disk."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_string

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.catalog.interfaces import max_pods
from megatron_eks.catalog.pins import AMI_RELEASES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, choices
from megatron_eks.config.load import read_documents
from megatron_eks.guards.templates import Resource, Templates, constants, template_guard
from megatron_eks.guards.values import YES, Row, Value, report, written

_LABEL = "megatron-eks/pool"
# Every P and G family of EC2 has GPUs; a g at the end of other families means ARM processors.
_WITH_GPUS = re.compile(r"(p[2-9]|gr?[3-9])")
_ARM = re.compile(r"g5g\.|p6e-gb|[a-z]+[0-9]+g[a-z]*\.|a1\.")
_TYPE = re.compile(r"[a-z]+[0-9][a-z0-9-]*\.(nano|micro|small|medium|([0-9]*x)?large|metal.*)")
_TAKEN, _OPTIONS = "pods could take the node's credentials", "LaunchTemplateData MetadataOptions"
_METADATA: tuple[Row, ...] = (
    (f"{_OPTIONS} HttpTokens", ("required",), _TAKEN),
    (f"{_OPTIONS} HttpPutResponseHopLimit", (1,), _TAKEN),
    (f"{_OPTIONS} HttpEndpoint", ("enabled", None), "no node joins"),
)
_BASTION: tuple[Row, ...] = (
    ("IamInstanceProfile", (), "Session Manager does not reach the bastion"),
    ("LaunchTemplate", (), "nothing requires tokens of its metadata service"),
    ("KeyName", (None,), "a key pair opens the bastion beside IAM"),
    ("InstanceType", (), "EC2 takes m1.small, on which this image does not boot"),
    ("SecurityGroupIds 0", (), "it gets the VPC's default group, whatever that admits"),
)
_PROFILE: Row = ("Roles 0", (), "Session Manager does not reach the bastion")
_ROOT = "/dev/xvda"
_ENCRYPTED: Row = ("Encrypted", (YES,), "who takes the disk reads its tokens")
_VOLUME: tuple[Row, ...] = (
    ("DeleteOnTermination", (YES,), "it outlives its node, and is paid for"),
    ("VolumeType", ("gp3", "gp2", "io2", "io1"), "EC2 boots from others slowly, or never"),
)
_BARE = "no launch template: nodes start without EFA, with a disk of 20 GiB"
_OTHER = "for another group: nodes start with the wrong type, or not at all"
_REFUSED = ("DiskSize", "RemoteAccess", "InstanceTypes")
_REPAIR: tuple[Row, ...] = (
    ("NodeRepairConfig Enabled", (YES,), "broken nodes stay, and jobs hang on them"),
    ("UpdateConfig MaxUnavailable", (1,), "EKS replaces that many nodes at once"),
)
_REPAIR_POOL: tuple[Row, ...] = (
    *_REPAIR,
    ("UpdateConfig UpdateStrategy", ("MINIMAL",), "EKS waits for a spare node to replace one"),
    ("NodeRepairConfig MaxParallelNodesRepairedCount", (1,), "a bad driver has all replaced"),
    ("NodeRepairConfig MaxUnhealthyNodeThresholdCount", (2,), "a bad network has all replaced"),
)
_RESIZED = "CloudFormation sends it at a later change, and resizes a pool that trains"
# EKS's default quota of nodes in a group is 450: `meks scale` moves the wanted size below it.
_SIZES: tuple[Row, ...] = (
    ("MinSize", (0,), _RESIZED),
    ("DesiredSize", (0,), _RESIZED),
    ("MaxSize", (450,), _RESIZED),
)
_SETTLE = "pods without GPUs settle on the pool's nodes, or its own stay Pending"
_TAINT: tuple[Row, ...] = (
    ("Key", ("nvidia.com/gpu",), _SETTLE),
    ("Value", ("true",), _SETTLE),
    ("Effect", ("NO_SCHEDULE", "NO_EXECUTE"), _SETTLE),
)
_NODE_CONFIG = "application/node.eks.aws"
_PARTS = {_NODE_CONFIG, "text/x-shellscript", "text/cloud-config"}
_HEADS: tuple[Row, ...] = (
    ("apiVersion", ("node.eks.aws/v1alpha1",), "nodeadm reads none of it, and no node joins"),
    ("kind", ("NodeConfig",), "nodeadm reads none of it, and no node joins"),
)
_IDLE = "the NVMe disks stay idle, and images fill the root volume"
_DISKS: Row = ("spec instance localStorage strategy", ("RAID0", "RAID10", "Mount"), _IDLE)


@dataclass(frozen=True)
class NodeGroup:
    """A node group, and its launch template where that is at hand."""

    group: Resource
    template: Resource | None
    data: Value
    """What the launch template says."""
    type_name: str
    instance: InstanceType | None
    has_gpus: bool


def node_groups(templates: Templates) -> Iterator[NodeGroup]:
    """Return the node groups with their launch templates."""
    for group in templates.of("EKS::Nodegroup"):
        template = templates.target(group["LaunchTemplate"]["Id"])
        data = template["LaunchTemplateData"] if template else Value(None, group.body.place)
        name = data["InstanceType"].text or group["InstanceTypes"][0].text
        has_gpus = bool(_WITH_GPUS.match(name) or group["Labels"][_LABEL])
        yield NodeGroup(group, template, data, name, INSTANCES.get(name), has_gpus)


@template_guard
def machines(templates: Templates) -> Iterator[Finding]:
    """Nodes and bastion keep credentials to themselves, and have disks that images fit on.

    EKS best practices, "Restrict access to IMDS"; AL2023 boots from /dev/xvda (EKS User Guide,
    "Customize managed nodes with launch templates").
    """
    yield from constants(templates.of("EC2::LaunchTemplate"), Code.NODE_METADATA, _METADATA)
    yield from constants(templates.of("EC2::Instance"), Code.CLUSTER_CONTROL, _BASTION)
    yield from constants(templates.of("IAM::InstanceProfile"), Code.CLUSTER_CONTROL, [_PROFILE])
    # Images of CUDA and Megatron take more than what the AMI has by itself (20 GiB).
    owners = [(each.data, 50) for each in node_groups(templates) if each.template]
    owners += [(each.properties, 8) for each in templates.of("EC2::Instance")]
    for volumes, least in [(data["BlockDeviceMappings"], least) for data, least in owners]:
        none = _ROOT not in [volume["DeviceName"].text for volume in volumes]
        found, remedy = f"no {_ROOT}: what is installed fills the AMI's disk", f"name it {_ROOT}"
        yield from report(Code.ROOT_VOLUME, (none, volumes, found, remedy))
        for name, disk in ((volume["DeviceName"].text, volume["Ebs"]) for volume in volumes):
            size, key = disk["VolumeSize"], templates.target(disk["KmsKeyId"])
            small = name == _ROOT and (size.number or 0) < least
            found = f"{written(size.raw)} GiB: images fill the disk, and the kubelet evicts pods"
            yield from report(Code.ROOT_VOLUME, (small, size, found, f"use {2 * least} or more"))
            yield from disk.must_hold(Code.ENCRYPTION, [_ENCRYPTED])
            yield from disk.must_hold(Code.ROOT_VOLUME, _VOLUME, Level.WARNING)
            shut = key and "AWSServiceRoleForAutoScaling" not in str(key["KeyPolicy"].raw)
            found = "its policy leaves out AWSServiceRoleForAutoScaling: no node starts"
            remedy = "allow that role kms:CreateGrant, Decrypt and GenerateDataKey*"
            yield from report(Code.KEY_POLICY, (shut, disk["KmsKeyId"], found, remedy))


@template_guard
def launch_template(templates: Templates) -> Iterator[Finding]:
    """Node groups follow their own launch templates, and repeat nothing that stands there.

    EKS User Guide, "Customize managed nodes with launch templates".
    """
    known = [one.name for one in templates.of("EC2::LaunchTemplate")]
    for each in node_groups(templates):
        link, typed = each.group["LaunchTemplate"], each.data["InstanceType"]
        name, version = each.template.name if each.template else "", link["Version"]
        own = [one for one in known if _pool_of(one) == _pool_of(each.group.name)] or [name]
        lost = name and templates.text(version) != f"${{{name}.LatestVersionNumber}}"
        stale = "changes of the launch template never reach a node"
        follow = f"set it to Fn::GetAtt [{own[0]}, LatestVersionNumber]"
        yield from report(
            Code.MANAGED_NODES,
            (not (link["Id"] or link["Name"]), link["Id"], _BARE, f"use Ref {own[0]}"),
            (name not in ("", *own), link["Id"], _OTHER, f"use Ref {own[0]}, in Version too"),
            (lost, version, stale, follow),
        )
        for value in (each.group[key] for key in _REFUSED if typed):
            why = "EKS refuses it beside a launch template, which says it"
            yield from value.must_be(Code.MANAGED_NODES, None, why=why)
        if name and not (each.instance if each.has_gpus else _TYPE.fullmatch(each.type_name)):
            kin = [one for one in INSTANCES if one.split(".")[0] == each.type_name.split(".")[0]]
            level = Level.ERROR if kin or not each.has_gpus or not typed else Level.WARNING
            found = f"{written(typed.raw)} is no instance type known here: no node starts"
            remedy = choices(each.type_name, kin or INSTANCES) if each.has_gpus else "correct it"
            yield typed.finding(Code.INSTANCE_TYPE_NAME, found, remedy, level)


@template_guard
def what_nodes_boot(templates: Templates) -> Iterator[Finding]:
    """GPU nodes boot the AMI with NVIDIA's driver, for their processor, of a pinned release.

    Without a release two groups differ in driver and kernel (EKS API, CreateNodegroup, AMITypes).
    """
    for each in [one for one in node_groups(templates) if not one.data["ImageId"]]:
        group, level = each.group, Level.ERROR if each.has_gpus else Level.WARNING
        right = f"AL2023_{'ARM_64' if _ARM.match(each.type_name) else 'x86_64'}_"
        right += "NVIDIA" if each.has_gpus else "STANDARD"
        why = "it has no driver, or does not boot"
        yield from group["AmiType"].must_be(Code.AMI_TYPE, right, why=why, level=level)
        cluster = templates.target(group["ClusterName"])
        if wanted := cluster["Version"].text if cluster else "":
            why, release = "EKS refuses it, or takes what is newest", group["ReleaseVersion"]
            yield from group["Version"].must_be(Code.VERSION_SKEW, wanted, why=why)
            if not re.fullmatch(rf"{re.escape(wanted)}\.\d+-20\d{{6}}", release.text):
                pinned = AMI_RELEASES.get(wanted, f"{wanted}.PATCH-DATE")
                yield from release.must_be(Code.AMI_TYPE, pinned, why=why)


@template_guard
def pools(templates: Templates) -> Iterator[Finding]:
    """Pools keep their size, zone, taint and label; one broken GPU node is replaced at a time.

    CloudFormation sends all three sizes when one changes, and a stale wanted size ends the nodes of
    a running job (eksctl issue 3532). EFA does not cross zones (EC2 User Guide, "EFA limitations").
    MINIMAL ends a node before it asks for its successor (EKS User Guide, "Update a managed node
    group"). Pods tolerate one taint, and select one label, which `meks scale` reads too.
    """
    for group, is_pool in [(one.group, one.has_gpus) for one in node_groups(templates)]:
        sizes, taints, subnets = (group[key] for key in ("ScalingConfig", "Taints", "Subnets"))
        rows, known = _REPAIR_POOL if is_pool else _REPAIR, [size.raw for _, size in sizes.items()]
        yield from constants([group], Code.MANAGED_NODES, rows, Level.WARNING)
        if not is_pool:
            lone = len({str(size) for size in known}) != 1 or known[0] in {0, 1}
            found = "add-ons need two nodes, and nothing here resizes the group"
            remedy = "give MinSize, DesiredSize and MaxSize one number, 2 or more"
            yield from report(Code.NODE_GROUP_SIZE, (lone, sizes, found, remedy))
            yield from taints.must_be(Code.START_ORDER, None, why="add-ons stay Pending")
            continue
        yield from sizes.must_hold(Code.NODE_GROUP_SIZE, _SIZES, Level.WARNING)
        for taint in list(taints) or [taints[0]]:
            yield from taint.must_hold(Code.SHARED_GPU_NODES, _TAINT)
        many = isinstance(subnets.raw, list) and len(subnets.raw) != 1
        found = f"{len(list(subnets))} subnets: EFA does not cross zones, and a job's nodes do"
        remedy = "name the one subnet of the zone that has the capacity"
        yield from report(Code.NODE_GROUP_SUBNETS, (many, subnets, found, remedy))
        name, label = group["NodegroupName"], group["Labels"][_LABEL]
        found = "the group's name and its label differ: jobs that select it stay Pending"
        remedy = f"give NodegroupName and {_LABEL} the pool's name"
        other = not name or name.raw != label.raw
        yield from report(Code.MANAGED_NODES, (other, label, found, remedy))


@template_guard
def user_data(templates: Templates) -> Iterator[Finding]:
    """User data is MIME text with a NodeConfig: pods for the addresses, and the NVMe disks.

    EKS refuses other forms (EKS User Guide, "Customize managed nodes with launch templates").
    nodeadm also counts addresses of the EFA-only interface, which has none: pods beyond them stay
    in ContainerCreating (amazon-vpc-cni-k8s issue 3189).
    """
    for each in [one for one in node_groups(templates) if one.template]:
        given, place = each.data["UserData"], each.data["UserData"]["Fn::Base64"]
        mime = message_from_string(templates.text(place))
        single = [part for part in mime.walk() if not part.is_multipart()]
        parts = {part.get_content_type(): str(part.get_payload()) for part in single}
        found = f"no MIME parts in Fn::Base64 that EKS reads, but {', '.join(parts)}"
        remedy = f"put multipart/mixed into Fn::Base64, with a part {_NODE_CONFIG}"
        wrong = not mime.is_multipart() or mime.defects or not {*parts} <= _PARTS
        yield from report(Code.USER_DATA, ((place or given.text) and wrong, place, found, remedy))
        read = [one.value for one in read_documents(parts.get(_NODE_CONFIG, ""), "")]
        config = Value(read[0] if read else None, place.place, place.path)
        yield from config.must_hold(Code.USER_DATA, _HEADS if config else ())
        if each.instance and (place or not given):
            right, pods = max_pods(each.instance), config.at("spec kubelet config maxPods")
            why = f"the node has addresses for {right} pods"
            yield from pods.must_be(Code.MAX_PODS, right, why=why)
            disks = [_DISKS] if each.instance.instance_store_gb else []
            yield from config.must_hold(Code.USER_DATA, disks)


def _pool_of(logical_id: str) -> str:
    return re.sub(r"(LaunchTemplate|Nodegroup)[0-9A-F]{0,8}$", "", logical_id)
