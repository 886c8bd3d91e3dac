"""Rules over EKS managed node groups and what they may find in a launch template."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import (
    DATA,
    LaunchTemplate,
    has_gpus,
    instance_type_of,
    launch_template_of,
    launch_templates,
)
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_given,
    is_placeholder,
    items,
    mapping,
    number,
    shown,
    text,
)

_NODE_GROUP = "AWS::EKS::Nodegroup"
_LAST_OF_AL2 = 32
_SIZES = ("MinSize", "DesiredSize", "MaxSize")

# Families whose processors are ARM (EC2 User Guide, "Accelerated computing instances").
# EC2 User Guide, "Instance type naming conventions": general purpose, compute and memory.
_WITHOUT_GPUS = re.compile(r"[cmrt][3-9][a-z-]*\.")
_ARM = re.compile(r"g5g\.|p6e-gb|[a-z]+[0-9]+g[a-z]*\.|a1\.")
_OF_NEURON = re.compile(r"(trn|inf)[0-9]")
_KEY = re.compile(r"([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
# How EC2 names instance types: family, a dot, a size.
TYPE_NAME = re.compile(
    r"[a-z][a-z0-9-]*\.(nano|micro|small|medium|large|([0-9]+)?xlarge|metal(-[0-9]+xl)?)"
)


def managed_nodes(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse in a node group what its launch template decides, and the other way round.

    EKS API, LaunchTemplateSpecification and CreateNodegroup: the deployment fails.
    """
    for template in launch_templates(templates):
        if template.node_groups:
            yield from _forbidden_in_template(template)
    for group in templates.resources(_NODE_GROUP):
        if not is_given(group.properties.get("LaunchTemplate")):
            continue
        for key in ("DiskSize", "RemoteAccess"):
            if is_given(group.properties.get(key)):
                found = f"{key} beside a launch template: EKS refuses the node group"
                yield group.find(
                    Code.MANAGED_NODES, (key,), found, "move it to the launch template"
                )
        resource = launch_template_of(group, templates)
        data = mapping(resource.properties.get(DATA)) if resource else None
        used = mapping(group.properties.get("LaunchTemplate")) or {}
        if used and is_absent(used.get("Id")) and is_absent(used.get("Name")):
            found = "a launch template without Id and Name"
            yield group.find(Code.MANAGED_NODES, ("LaunchTemplate",), found, "name it")
        given = is_given(group.properties.get("InstanceTypes"))
        if data and given and is_given(data.get("InstanceType")):
            found = "instance types here and in the launch template: EKS refuses the node group"
            yield group.find(
                Code.MANAGED_NODES, ("InstanceTypes",), found, "keep them in one place"
            )


def _forbidden_in_template(template: LaunchTemplate) -> Iterator[Finding]:
    for key in ("IamInstanceProfile", "HibernationOptions", "InstanceInitiatedShutdownBehavior"):
        if not is_absent(template.data.get(key)):
            found = f"{key} in the launch template of a node group: EKS refuses it"
            yield template.resource.find(Code.MANAGED_NODES, (DATA, key), found, "remove it")
    for interface in template.interfaces or []:
        if not is_absent(interface.body.get("SubnetId")):
            yield template.resource.find(
                Code.MANAGED_NODES,
                (*interface.path, "SubnetId"),
                "SubnetId in the launch template of a node group: EKS refuses it",
                "name the subnet in the node group",
            )


def taints(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse two taints of one key and effect, and keys that Kubernetes has not.

    Kubernetes API, NodeSpec.taints: a node has one of each, and the kubelet does not start; keys
    are qualified names ("Labels and Selectors", syntax), without a value or an effect in them.
    """
    for group in templates.resources(_NODE_GROUP):
        seen: set[tuple[str, str]] = set()
        for index, value in enumerate(items(group.properties.get("Taints")) or []):
            taint = mapping(value) or {}
            key = (str(taint.get("Key")), str(taint.get("Effect")))
            name = text(taint.get("Key"))
            if name is not None and not is_placeholder(name) and not _KEY.fullmatch(name):
                found = f"{shown(name)} is no key of a taint: EKS refuses the group"
                remedy = f"write {re.split('[:=]', name)[0]}, with Value and Effect beside it"
                yield group.find(Code.MANAGED_NODES, ("Taints", index, "Key"), found, remedy)
            if key in seen:
                found = f"a second taint {key[0]} with {key[1]}"
                path = ("Taints", index)
                yield group.find(Code.MANAGED_NODES, path, found, "keep one of the two")
            seen.add(key)


def sizes(templates: TemplateSet) -> Iterator[Finding]:
    """Require the sizes of a node group in order: minimum, wanted, maximum.

    EKS API, NodegroupScalingConfig: the maximum is at least 1.
    """
    for group in templates.resources(_NODE_GROUP):
        scaling = mapping(group.properties.get("ScalingConfig")) or {}
        known = [(name, size) for name in _SIZES if (size := number(scaling.get(name))) is not None]
        given = [(each, templates.default(scaling.get(each), group.file)) for each in _SIZES]
        stood = [(name, size) for name, each in given if (size := number(each)) is not None]
        for (name, size), (next_name, next_size) in pairwise(stood):
            if size > next_size:
                sure = {(name, size), (next_name, next_size)} <= {*known}
                words = [
                    "" if each in known else " by its default"
                    for each in ((name, size), (next_name, next_size))
                ]
                found = f"{name} {size}{words[0]} is above {next_name} {next_size}{words[1]}"
                remedy = "put the three in order: MinSize, DesiredSize, MaxSize"
                level = Level.ERROR if sure else Level.WARNING
                path = ("ScalingConfig", name)
                yield group.find(Code.NODE_GROUP_SIZE, path, found, remedy, level)
        for name, size in known:
            least = 1 if name == "MaxSize" else 0
            if size < least:
                found = f"{name} is {size}"
                remedy = f"use {least} or more"
                yield group.find(Code.NODE_GROUP_SIZE, ("ScalingConfig", name), found, remedy)


def instance_type_names(templates: TemplateSet) -> Iterator[Finding]:
    """Require names of instance types as EC2 writes them.

    EC2 User Guide, "Instance type naming conventions"; cfn-lint does not look at node groups.
    """
    for group in templates.resources(_NODE_GROUP):
        for index, value in enumerate(items(group.properties.get("InstanceTypes")) or []):
            yield from _type_name(group, ("InstanceTypes", index), text(value))
    for template in launch_templates(templates):
        name = text(template.data.get("InstanceType"))
        yield from _type_name(template.resource, (DATA, "InstanceType"), name)


def _type_name(resource: Resource, path: Path, name: str | None) -> Iterator[Finding]:
    if name is not None and not TYPE_NAME.fullmatch(name):
        found = f"{shown(name)} is no instance type"
        yield resource.find(Code.INSTANCE_TYPE_NAME, path, found, "write it like p4d.24xlarge")
    elif name is not None and name not in INSTANCES:
        sizes = [each for each in INSTANCES if each.partition(".")[0] == name.partition(".")[0]]
        if sizes:
            found = f"{shown(name)} is no instance type: its family has no such size"
            remedy = f"write {' or '.join(sizes)}"
            yield resource.find(Code.INSTANCE_TYPE_NAME, path, found, remedy)


def ami_types(templates: TemplateSet) -> Iterator[Finding]:
    """Require an AMI with NVIDIA's driver on GPU nodes, for their own processor.

    EKS API, CreateNodegroup.instanceTypes: a GPU type needs a GPU AMI type. CDK accepts any pair.
    """
    for group in templates.resources(_NODE_GROUP):
        data = _template_data(group, templates)
        name = text((data or {}).get("InstanceType")) or instance_type_of(group)
        if data is None or not is_absent(data.get("ImageId")):
            continue
        value = group.properties.get("AmiType")
        ami = text(value)
        if name is None:
            yield from _default_type(group, data, ami)
        elif ami is not None and ami != "CUSTOM" and ("ARM_64" in ami) != bool(_ARM.match(name)):
            found = f"{shown(ami)} is for another processor than {name}'s"
            yield group.find(Code.AMI_TYPE, ("AmiType",), found, f"use {_ami_for(name, ami)}")
        elif has_gpus(name):
            impossible = list(_no_such_ami(group, ami or "", templates))
            yield from impossible or _driver(group, name, ami, absent=is_absent(value))
        else:
            yield from _no_such_ami(group, ami or "", templates)
            if "NVIDIA" in (ami or "").upper() and _WITHOUT_GPUS.match(name):
                found = f"{shown(ami)} is for GPUs, and {name} has none"
                remedy = "name a GPU type, or an AMI type without NVIDIA's driver"
                yield group.find(Code.AMI_TYPE, ("AmiType",), found, remedy, Level.WARNING)


def is_arm(instance_type: str) -> bool:
    """Tell whether the processors of a type are ARM."""
    return _ARM.match(instance_type) is not None


def _driver(group: Resource, name: str, ami: str | None, *, absent: bool) -> Iterator[Finding]:
    remedy = f"use {_ami_for(name, ami)}"
    if absent:
        found = f"no AmiType for {name}: EKS takes an AMI without NVIDIA's driver"
        yield group.find(Code.AMI_TYPE, ("AmiType",), found, remedy)
    elif ami == "AL2_x86_64_GPU":
        found = "AWS published the last Amazon Linux 2 AMI in November 2025"
        yield group.find(Code.AMI_TYPE, ("AmiType",), found, remedy, Level.WARNING)
    elif ami is not None and ami != "CUSTOM" and "NVIDIA" not in ami.upper():
        found = f"{shown(ami)} has no NVIDIA driver, and {name} has GPUs"
        yield group.find(Code.AMI_TYPE, ("AmiType",), found, remedy)


def _ami_for(name: str, ami: str | None) -> str:
    """Return the AMI type of a type's processors and devices (EKS API, CreateNodegroup.amiType)."""
    processors = "ARM_64" if is_arm(name) else "x86_64"
    bottlerocket = (ami or "").startswith("BOTTLEROCKET")
    if has_gpus(name):
        return f"{'BOTTLEROCKET' if bottlerocket else 'AL2023'}_{processors}_NVIDIA"
    if bottlerocket:
        return f"BOTTLEROCKET_{processors}"
    return f"AL2023_{processors}_{'NEURON' if _OF_NEURON.match(name) else 'STANDARD'}"


def _no_such_ami(group: Resource, ami: str, templates: TemplateSet) -> Iterator[Finding]:
    """Refuse Amazon Linux 2 for a Kubernetes that it was never built for.

    EKS User Guide, "Amazon EKS AMI deprecation FAQs": 1.32 is the last version with such AMIs.
    """
    cluster = templates.target(group.properties.get("ClusterName"), group.file)
    version = templates.default(group.properties.get("Version"), group.file)
    if is_absent(version) and cluster is not None:
        version = templates.default(cluster.properties.get("Version"), cluster.file)
    match = re.fullmatch(r"1\.([0-9]{2})", str(version))
    if ami.startswith("AL2_") and match and int(match[1]) > _LAST_OF_AL2:
        found = f"EKS has no {ami} for Kubernetes {match[0]}: the node group cannot be made"
        remedy = ami.replace("AL2_x86_64_GPU", "AL2023_x86_64_NVIDIA").replace("AL2_", "AL2023_")
        remedy = remedy if remedy.endswith("NVIDIA") else f"{remedy}_STANDARD"
        yield group.find(Code.AMI_TYPE, ("AmiType",), found, f"use {remedy}")


def _default_type(group: Resource, data: Mapping[str, Json], ami: str | None) -> Iterator[Finding]:
    """Without any type EKS launches t3.medium (EKS API, CreateNodegroup.instanceTypes)."""
    silent = is_absent(group.properties.get("InstanceTypes")) and is_absent(
        data.get("InstanceType")
    )
    if silent and ami is not None and "NVIDIA" in ami.upper():
        found = "no instance type, here or in the launch template: EKS launches t3.medium"
        remedy = "name the GPU instance type in one place"
        yield group.find(Code.AMI_TYPE, ("InstanceTypes",), found, remedy)


def _template_data(group: Resource, templates: TemplateSet) -> Mapping[str, Json] | None:
    """Return the launch template's data; none without a template, None when it is not at hand."""
    if is_absent(group.properties.get("LaunchTemplate")):
        return {}
    resource = launch_template_of(group, templates)
    return mapping(resource.properties.get(DATA)) if resource else None


def one_subnet(templates: TemplateSet) -> Iterator[Finding]:
    """Require one availability zone for nodes with EFA interfaces.

    EC2 User Guide, "EFA limitations": EFA traffic does not cross zones. A node group spreads its
    nodes over all its subnets.
    """
    for template in launch_templates(templates):
        for group in template.node_groups if template.has_efa else ():
            subnets = items(group.properties.get("Subnets")) or []
            resources = templates.targets(subnets, group.file)
            zones = {
                text(resource.properties.get("AvailabilityZone")) if resource else None
                for resource in resources
            }
            if len(subnets) > 1 and (None in zones or len(zones) > 1):
                found = f"{len(subnets)} subnets, and EFA traffic does not cross availability zones"
                remedy = "name the one subnet of the zone that has the capacity"
                yield group.find(Code.NODE_GROUP_SUBNETS, ("Subnets",), found, remedy)
