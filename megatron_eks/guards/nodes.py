"""Guards of node groups: launch template, AMI, sizes, subnet, taint, label, user data, disk."""

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

TAINT = "nvidia.com/gpu"
LABEL = "megatron-eks/pool"

# Every P and G family of EC2 has GPUs; a g at the end of other families means ARM processors.
_WITH_GPUS = re.compile(r"(p[2-9]|gr?[3-9])")
_ARM = re.compile(r"g5g\.|p6e-gb|[a-z]+[0-9]+g[a-z]*\.|a1\.")
_TAKEN = "pods could take the node's credentials"
_METADATA: tuple[Row, ...] = (
    ("LaunchTemplateData MetadataOptions HttpTokens", ("required",), _TAKEN),
    ("LaunchTemplateData MetadataOptions HttpPutResponseHopLimit", (1,), _TAKEN),
    ("LaunchTemplateData MetadataOptions HttpEndpoint", ("enabled", None), "no node joins"),
)
_BARE = "no launch template: nodes start without EFA, with a disk of 20 GiB"
_BOOTED = ("AmiType", "Version", "ReleaseVersion")
_REFUSED = ("DiskSize", "RemoteAccess", "InstanceTypes")
# EKS's default quota of nodes in a group is 450: `meks scale` moves the wanted size below it.
_SIZES = (("MinSize", 0), ("DesiredSize", 0), ("MaxSize", 450))
_RESIZED = "CloudFormation sends it at a later change, and resizes a pool that trains"
_REPAIR: tuple[Row, ...] = (
    ("NodeRepairConfig Enabled", (YES,), "broken nodes stay, and jobs hang on them"),
    ("UpdateConfig MaxUnavailable", (1,), "EKS replaces that many nodes at once"),
)
_REPAIR_POOL: tuple[Row, ...] = (
    ("UpdateConfig UpdateStrategy", ("MINIMAL",), "EKS waits for a spare node to replace one"),
    ("NodeRepairConfig MaxParallelNodesRepairedCount", (1,), "a bad driver has all replaced"),
    ("NodeRepairConfig MaxUnhealthyNodeThresholdCount", (2,), "a bad network has all replaced"),
)
_NODE_CONFIG = "application/node.eks.aws"
_PARTS = {_NODE_CONFIG, "text/x-shellscript", "text/cloud-config"}
_HEADS: tuple[Row, ...] = (
    ("apiVersion", ("node.eks.aws/v1alpha1",), "nodeadm reads none of it, and no node joins"),
    ("kind", ("NodeConfig",), "nodeadm reads none of it, and no node joins"),
)
_DISKS: Row = (
    "spec instance localStorage strategy",
    ("RAID0", "RAID10", "Mount"),
    "the NVMe disks stay idle, and images fill the root volume",
)
_ROOT = "/dev/xvda"
# Images of CUDA and Megatron take more than what the AMI has by itself (20 GiB).
_SMALL_GIB = 50
_ENCRYPTED: Row = ("Encrypted", (YES,), "who takes the disk reads its tokens")
_VOLUME: tuple[Row, ...] = (
    ("DeleteOnTermination", (YES,), "it outlives its node, and is paid for"),
    ("VolumeType", ("gp3", "gp2", "io2", "io1"), "EC2 boots from others slowly, or never"),
)


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
        has_gpus = bool(_WITH_GPUS.match(name) if name else group["Labels"][LABEL])
        yield NodeGroup(group, template, data, name, INSTANCES.get(name), has_gpus)


@template_guard
def metadata_service(templates: Templates) -> Iterator[Finding]:
    """Pods must not get the node's credentials (EKS best practices, "Restrict access to IMDS")."""
    yield from constants(templates.of("EC2::LaunchTemplate"), Code.NODE_METADATA, _METADATA)


@template_guard
def launch_template(templates: Templates) -> Iterator[Finding]:
    """Node groups follow their own launch templates, and repeat nothing that stands there.

    EKS User Guide, "Customize managed nodes with launch templates".
    """
    known = [one.name for one in templates.of("EC2::LaunchTemplate")]
    for each in node_groups(templates):
        link, version = each.group["LaunchTemplate"], each.group["LaunchTemplate"]["Version"]
        name, typed = each.template.name if each.template else "", each.data["InstanceType"]
        none = not link["Id"] and not link["Name"] and (each.has_gpus or not each.type_name)
        own = [one for one in known if _pool_of(one) == _pool_of(each.group.name)] or [name]
        lost = name and templates.text(version) != f"${{{name}.LatestVersionNumber}}"
        other = f"{name} is for another group: nodes start with the wrong type"
        follow = f"set it to Fn::GetAtt [{own[0]}, LatestVersionNumber]"
        yield from report(
            Code.MANAGED_NODES,
            (none, link["Id"], _BARE, "name the group's own, with Ref"),
            (name not in ("", *own), link["Id"], other, f"use Ref {own[0]}, in Version too"),
            (lost, version, f"later changes of {name} never reach a node", follow),
        )
        if name and not each.instance and (each.has_gpus or not (each.type_name or typed)):
            family = each.type_name.split(".")[0]
            known = [one for one in INSTANCES if one.split(".")[0] == family]
            level = Level.ERROR if known or not typed else Level.WARNING
            found = f"instance type {written(typed.raw)}: no GPU type known here"
            remedy = choices(each.type_name, known or INSTANCES)
            yield typed.finding(Code.INSTANCE_TYPE_NAME, found, remedy, level)
        for value in (each.group[key] for key in _REFUSED if typed):
            why = "EKS refuses it beside a launch template, which says it"
            yield from value.must_be(Code.MANAGED_NODES, None, why=why)


@template_guard
def what_nodes_boot(templates: Templates) -> Iterator[Finding]:
    """GPU nodes boot the AMI with NVIDIA's driver, for their processor, of a pinned release.

    Without a release two groups differ in driver and kernel (EKS API, CreateNodegroup, AMITypes).
    """
    for each in [one for one in node_groups(templates) if not one.data["ImageId"]]:
        ami, version, release = map(each.group.__getitem__, _BOOTED)
        right = f"AL2023_{'ARM_64' if _ARM.match(each.type_name) else 'x86_64'}_"
        right += "NVIDIA" if each.has_gpus else "STANDARD"
        level, why = (
            Level.ERROR if each.has_gpus else Level.WARNING,
            "it has no driver, or does not boot",
        )
        if each.type_name:
            yield from ami.must_be(Code.AMI_TYPE, right, why=why, level=level)
        cluster = templates.target(each.group["ClusterName"])
        wanted = cluster["Version"].text if cluster else version.text
        why = "EKS takes what is newest at the moment"
        if wanted and not version:
            yield from version.must_be(Code.VERSION_SKEW, wanted, why=why, level=Level.WARNING)
        if wanted and not re.fullmatch(r"\d\.\d+\.\d+-20\d{6}", release.text):
            level = Level.ERROR if release else Level.WARNING
            pinned = AMI_RELEASES.get(wanted, f"{wanted}.PATCH-DATE")
            yield from release.must_be(Code.AMI_TYPE, pinned, why=why, level=level)


@template_guard
def sizes_and_repairs(templates: Templates) -> Iterator[Finding]:
    """Sizes of pools are constant in a template, and one broken GPU node is replaced at a time.

    CloudFormation sends all three sizes when one changes, and a stale wanted size ends the nodes of
    a running job (eksctl issue 3532). MINIMAL ends a node before it asks for its successor (EKS
    User Guide, "Update a managed node group" and "Enable node auto repair").
    """
    for each in node_groups(templates):
        scaling, level = each.group["ScalingConfig"], Level.WARNING
        rows = _REPAIR + (_REPAIR_POOL if each.has_gpus else ())
        yield from constants([each.group], Code.MANAGED_NODES, rows, level)
        known = [scaling[key].number or 0 for key, _ in _SIZES]
        for key, right in _SIZES if each.has_gpus else ():
            yield from scaling[key].must_be(Code.NODE_GROUP_SIZE, right, why=_RESIZED, level=level)
        if not each.has_gpus and (len({*known}) > 1 or known[0] in {0, 1}):
            found = "add-ons need two nodes, and nothing here resizes the group"
            remedy = "give MinSize, DesiredSize and MaxSize one number, 2 or more"
            yield scaling.finding(Code.NODE_GROUP_SIZE, found, remedy, level)


@template_guard
def one_subnet(templates: Templates) -> Iterator[Finding]:
    """EFA traffic does not cross zones, so a pool has one (EC2 User Guide, "EFA limitations")."""
    for subnets in [each.group["Subnets"] for each in node_groups(templates) if each.has_gpus]:
        if isinstance(subnets.raw, list) and len(subnets.raw) != 1:
            found = f"{len(subnets.raw)} subnets: EFA does not cross zones, and a job's nodes do"
            remedy = "name the one subnet of the zone that has the capacity"
            yield subnets.finding(Code.NODE_GROUP_SUBNETS, found, remedy)


@template_guard
def taint_and_label(templates: Templates) -> Iterator[Finding]:
    """GPU pools have the taint that their pods tolerate, and the label that they select.

    Without the taint add-ons settle on GPU nodes and take memory from jobs; with another one no pod
    is placed (Kubernetes, "Taints and Tolerations"). `meks scale` reads name and label.
    """
    for each in node_groups(templates):
        taints, name, labels = (each.group[key] for key in ("Taints", "NodegroupName", "Labels"))
        if not each.has_gpus:
            why = "CoreDNS and add-ons stay Pending"
            yield from taints.must_be(Code.START_ORDER, None, why=why, level=Level.WARNING)
            continue
        ours = [one for one in taints if one["Key"].text == TAINT]
        found = f"no taint {TAINT}: pods without GPUs settle on the pool's nodes"
        remedy = f"add it: Key {TAINT}, Value 'true', Effect NO_SCHEDULE"
        none = not ours and not isinstance(taints.raw, dict)
        yield from report(Code.SHARED_GPU_NODES, (none, taints, found, remedy))
        for one in ours:
            why = "other pods come, or the pool's own pods do not tolerate it"
            effects = "NO_SCHEDULE", "NO_EXECUTE"
            yield from one["Effect"].must_be(Code.SHARED_GPU_NODES, *effects, why=why)
            yield from one["Value"].must_be(Code.SHARED_GPU_NODES, "true", why=why)
        for one in [one for one in taints if one not in ours]:
            found = f"jobs tolerate {TAINT}, not {one['Key'].text}: they stay Pending"
            yield one.finding(Code.SHARED_GPU_NODES, found, "remove it", Level.WARNING)
        if not name or name.raw != labels[LABEL].raw:
            found = "the group's name and its label differ: jobs that select it stay Pending"
            remedy = f"give NodegroupName and {LABEL} the pool's name"
            yield labels[LABEL].finding(Code.MANAGED_NODES, found, remedy)


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
            level = Level.WARNING if (pods.number or right) < right else Level.ERROR
            why = f"the node has addresses for {right} pods"
            yield from pods.must_be(Code.MAX_PODS, right, why=why, level=level)
            if each.instance.instance_store_gb:
                yield from config.must_hold(Code.USER_DATA, [_DISKS])


@template_guard
def root_volume(templates: Templates) -> Iterator[Finding]:
    """Root volumes are large enough for images, encrypted, and gone with their nodes.

    AL2023 boots from /dev/xvda (EKS User Guide, "Customize managed nodes with launch templates").
    """
    for each in [one for one in node_groups(templates) if one.template]:
        volumes = each.data["BlockDeviceMappings"]
        none = _ROOT not in [volume["DeviceName"].text for volume in volumes]
        found, remedy = f"no {_ROOT}: images fill the 20 GiB of the AMI", f"name it {_ROOT}"
        yield from report(Code.ROOT_VOLUME, (none, volumes, found, remedy))
        for name, disk in ((volume["DeviceName"].text, volume["Ebs"]) for volume in volumes):
            size, key = disk["VolumeSize"], templates.target(disk["KmsKeyId"])
            small = name == _ROOT and (size.number or 0) < _SMALL_GIB
            found = f"{written(size.raw)} GiB: images fill the disk, and the kubelet evicts pods"
            yield from report(Code.ROOT_VOLUME, (small, size, found, "use 100 GiB or more"))
            yield from disk.must_hold(Code.ENCRYPTION, [_ENCRYPTED])
            yield from disk.must_hold(Code.ROOT_VOLUME, _VOLUME, Level.WARNING)
            shut = key and "AWSServiceRoleForAutoScaling" not in str(key["KeyPolicy"].raw)
            found = "its policy leaves out AWSServiceRoleForAutoScaling: no node starts"
            remedy = "allow that role kms:CreateGrant, Decrypt and GenerateDataKey*"
            yield from report(Code.KEY_POLICY, (shut, disk["KmsKeyId"], found, remedy))


def _pool_of(logical_id: str) -> str:
    return re.sub(r"(LaunchTemplate|Nodegroup)[0-9A-F]{0,8}$", "", logical_id)
