"""Guards of node groups: type, AMI, launch template, sizes, subnet, taint, label and updates."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.catalog.pins import AMI_RELEASES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, choices
from megatron_eks.config.load import Json
from megatron_eks.guards.templates import Resource, Templates, template_guard
from megatron_eks.guards.values import Value

TAINT = "nvidia.com/gpu"
LABEL = "megatron-eks/pool"

# EKS's default quota of nodes in a group: `meks scale` moves the wanted size below it.
_CEILING = 450
_SYSTEM_NODES = 2
# Every P and G family of EC2 has GPUs; a g at the end of other families means ARM processors.
_WITH_GPUS = re.compile(r"(p[2-9]|gr?[3-9])")
_ARM = re.compile(r"g5g\.|p6e-gb|[a-z]+[0-9]+g[a-z]*\.|a1\.")
# EKS User Guide, "Customize managed nodes with launch templates".
_REFUSED = ("IamInstanceProfile", "HibernationOptions", "InstanceInitiatedShutdownBehavior")


@dataclass(frozen=True)
class NodeGroup:
    """A node group, and its launch template where that is at hand."""

    group: Resource
    template: Resource | None
    data: Value
    """What the launch template says."""

    @property
    def type_name(self) -> str:
        """The instance type, wherever it is named."""
        return self.data["InstanceType"].text or self.group["InstanceTypes"][0].text

    @property
    def instance(self) -> InstanceType | None:
        """What the catalogue knows of its instance type."""
        return INSTANCES.get(self.type_name)

    @property
    def has_gpus(self) -> bool:
        """Tell whether its nodes have GPUs, as far as type, label and AMI say."""
        if self.type_name:
            return _WITH_GPUS.match(self.type_name) is not None
        return "NVIDIA" in self.group["AmiType"].text or bool(self.group["Labels"][LABEL])


def node_groups(templates: Templates) -> Iterator[NodeGroup]:
    """Return the node groups with their launch templates."""
    for group in templates.of("EKS::Nodegroup"):
        target = templates.target(group["LaunchTemplate"]["Id"])
        if target and target.type == "AWS::EC2::LaunchTemplate":
            yield NodeGroup(group, target, target["LaunchTemplateData"])
        else:
            yield NodeGroup(group, None, Value(None, group.body.place))


@template_guard
def metadata_service(templates: Templates) -> Iterator[Finding]:
    """Pods must not get the node's credentials (EKS best practices, "Restrict access to IMDS")."""
    for template in templates.of("EC2::LaunchTemplate"):
        options = template["LaunchTemplateData"]["MetadataOptions"]
        why = "pods could take the credentials of the node"
        yield from options["HttpTokens"].must_be(Code.NODE_METADATA, "required", why=why)
        yield from options["HttpPutResponseHopLimit"].must_be(Code.NODE_METADATA, 1, why=why)
        why = "a node learns there which cluster to join"
        yield from options["HttpEndpoint"].must_be(Code.NODE_METADATA, "enabled", None, why=why)


@template_guard
def said_once(templates: Templates) -> Iterator[Finding]:
    """Each setting has one place: EKS refuses what group and launch template both say.

    EKS User Guide, "Customize managed nodes with launch templates".
    """
    for each in node_groups(templates):
        if not each.group["LaunchTemplate"] and (each.has_gpus or not each.type_name):
            found = "no launch template: EKS makes nodes with a disk of 20 GiB and without EFA"
            place = each.group["LaunchTemplate"]
            yield place.finding(Code.MANAGED_NODES, found, "name its launch template, by Id")
        twice = ["InstanceTypes"] if each.data["InstanceType"] else []
        for name in (*twice, "DiskSize", "RemoteAccess") if each.template else ():
            why = "EKS refuses it beside a launch template, which says it"
            yield from each.group[name].must_be(Code.MANAGED_NODES, None, why=why)
        for name in _REFUSED:
            why = "EKS refuses it in the launch template of a node group"
            yield from each.data[name].must_be(Code.MANAGED_NODES, None, why=why)


@template_guard
def own_launch_template(templates: Templates) -> Iterator[Finding]:
    """Node groups follow their own launch templates, or start with another pool's interfaces.

    Without a version that follows, later changes never reach a node (EKS API,
    LaunchTemplateSpecification).
    """
    groups = list(node_groups(templates))
    used = [each.template.name for each in groups if each.template]
    known = [each.name for each in templates.of("EC2::LaunchTemplate")]
    for each in groups:
        link = each.group["LaunchTemplate"]
        if link and not link["Id"] and not link["Name"]:
            found = "neither Id nor Name: EKS refuses the group"
            yield link.finding(Code.MANAGED_NODES, found, "name the pool's launch template by Id")
        if each.template is None:
            continue
        name, version = each.template.name, templates.text(link["Version"])
        own = [t for t in known if t != name and _pool_of(t) == _pool_of(each.group.name)]
        if used.count(name) > 1:
            own += [template for template in known if template not in used]
        if own:
            found = f"{name} belongs to another node group: nodes start with the wrong type"
            remedy = f"use Ref {own[0]}, in Version too"
            yield link["Id"].finding(Code.MANAGED_NODES, found, remedy)
        elif version != f"${{{name}.LatestVersionNumber}}":
            level = Level.ERROR if version.startswith("${") else Level.WARNING
            found = f"no version that follows {name}: its changes never reach a node"
            remedy = f"use Fn::GetAtt [{name}, LatestVersionNumber]"
            yield link["Version"].finding(Code.MANAGED_NODES, found, remedy, level)


@template_guard
def instance_type(templates: Templates) -> Iterator[Finding]:
    """Instance types are those that EC2 has; without any, EKS launches t3.medium (EKS API)."""
    for each in node_groups(templates):
        name, place = each.type_name, each.data["InstanceType"]
        known = [one for one in INSTANCES if one.split(".")[0] == name.split(".")[0]]
        if not name and each.template and not place:
            found = "no instance type: EKS launches t3.medium, which has neither GPUs nor EFA"
            yield place.finding(Code.INSTANCE_TYPE_NAME, found, "add it, such as p4d.24xlarge")
        elif each.has_gpus and name and each.instance is None:
            level = Level.ERROR if known else Level.WARNING
            found = f"{name} is no GPU instance type that this project knows"
            remedy = choices(name, known or INSTANCES)
            yield place.finding(Code.INSTANCE_TYPE_NAME, found, remedy, level)


@template_guard
def ami_type(templates: Templates) -> Iterator[Finding]:
    """GPU nodes boot the AMI with NVIDIA's driver, for their processor (EKS API, AMITypes)."""
    for each in node_groups(templates):
        given, own = each.group["AmiType"], each.data["ImageId"]
        processor = "ARM_64" if _ARM.match(each.type_name) else "x86_64"
        right = f"AL2023_{processor}_{'NVIDIA' if each.has_gpus else 'STANDARD'}"
        other = f"BOTTLEROCKET_{processor}"
        if own or given.text == "CUSTOM":
            if each.template and bool(own) != (given.text == "CUSTOM"):
                found = "AmiType CUSTOM and the launch template's ImageId belong together"
                yield given.finding(Code.AMI_TYPE, found, f"give both, or use {right} alone")
        elif each.type_name and (each.has_gpus or given.text != other or each.data["UserData"]):
            why = f"{each.type_name} starts without driver, or not at all"
            level = Level.ERROR if each.has_gpus or given else Level.WARNING
            yield from given.must_be(Code.AMI_TYPE, right, why=why, level=level)


@template_guard
def versions(templates: Templates) -> Iterator[Finding]:
    """Nodes have their cluster's Kubernetes version, and an AMI release of that version.

    EKS refuses a newer group than its cluster; without a release it takes the newest AMI at that
    moment, so that two groups differ in driver and kernel (EKS API, CreateNodegroup).
    """
    for group in templates.of("EKS::Nodegroup"):
        version, release = group["Version"], group["ReleaseVersion"]
        cluster = templates.target(group["ClusterName"])
        wanted = (cluster["Version"].text if cluster else "") or version.text
        pinned = AMI_RELEASES.get(wanted)
        if wanted and (version or release):
            why = f"the cluster has {wanted}, and EKS refuses newer nodes"
            level = Level.ERROR if version else Level.WARNING
            yield from version.must_be(Code.VERSION_SKEW, wanted, why=why, level=level)
        if release and wanted and not re.fullmatch(rf"{wanted}\.\d+-20\d{{6}}", release.text):
            found = f"{release.raw!r} is no AMI release for Kubernetes {wanted}"
            remedy = f"use {pinned or f'{wanted}.PATCH-DATE'}"
            yield release.finding(Code.AMI_TYPE, found, remedy)
        elif not release and pinned:
            why = "EKS takes the AMI that is newest when the group is made"
            yield from release.must_be(Code.AMI_TYPE, pinned, why=why, level=Level.WARNING)


@template_guard
def sizes(templates: Templates) -> Iterator[Finding]:
    """Sizes of pools are constant in a template: `meks scale` moves the real ones.

    CloudFormation sends all three when one changes, and a stale wanted size ends the nodes of a
    running job (eksctl issue 3532). Nothing else resizes the system nodes: one number, at least 2.
    """
    for each in node_groups(templates):
        scaling = each.group["ScalingConfig"]
        given = [scaling[name] for name in ("MinSize", "DesiredSize", "MaxSize")]
        known = [size.number for size in given if size.number is not None]
        if known != sorted(known) or min(known, default=0) < 0 or max(known, default=1) < 1:
            found = f"sizes {known}: EKS takes MinSize <= DesiredSize <= MaxSize, and 1 at the top"
            yield scaling.finding(Code.NODE_GROUP_SIZE, found, "put the three in order")
        elif each.has_gpus:
            why = "CloudFormation sends it at a later change, and resizes a pool that trains"
            for size, right in zip(given, (0, 0, _CEILING), strict=True):
                yield from size.must_be(Code.NODE_GROUP_SIZE, right, why=why, level=Level.WARNING)
        elif len(known) < len(given) or len({*known}) > 1 or known[0] < _SYSTEM_NODES:
            found = f"sizes {known}: add-ons need two nodes, and nothing here resizes the group"
            remedy = "give MinSize, DesiredSize and MaxSize one number, 2 or more"
            yield scaling.finding(Code.NODE_GROUP_SIZE, found, remedy, Level.WARNING)


@template_guard
def one_subnet(templates: Templates) -> Iterator[Finding]:
    """EFA traffic does not cross zones, so a pool has one (EC2 User Guide, "EFA limitations")."""
    for each in node_groups(templates):
        subnets = each.group["Subnets"]
        if each.has_gpus and isinstance(subnets.raw, list) and len(subnets.raw) != 1:
            found = f"{len(subnets.raw)} subnets: EFA traffic does not cross zones, and a job's "
            remedy = "name the one subnet of the zone that has the capacity"
            found += "nodes start in several"
            yield subnets.finding(Code.NODE_GROUP_SUBNETS, found, remedy)


@template_guard
def taint(templates: Templates) -> Iterator[Finding]:
    """GPU pools have the taint that their pods tolerate, and system nodes none.

    Without it add-ons settle on GPU nodes and take memory from jobs; with another one no pod is
    placed (Kubernetes, "Taints and Tolerations").
    """
    for each in node_groups(templates):
        taints = each.group["Taints"]
        keys = [(t["Key"].text, t["Effect"].text) for t in taints]
        ours = [t for t in taints if t["Key"].text == TAINT]
        if each.has_gpus and not ours and not isinstance(taints.raw, dict):
            found = f"no taint {TAINT}: pods without GPUs settle on the pool's nodes"
            remedy = f"add it: Key {TAINT}, Value 'true', Effect NO_SCHEDULE"
            yield taints.finding(Code.SHARED_GPU_NODES, found, remedy)
        for value, allowed, why in (
            *((t["Effect"], ("NO_SCHEDULE", "NO_EXECUTE"), "pods without GPUs come") for t in ours),
            *((t["Value"], ("true",), "tolerations may compare it") for t in ours),
        ):
            level = Level.WARNING if len(allowed) == 1 else Level.ERROR
            yield from value.must_be(Code.SHARED_GPU_NODES, *allowed, why=why, level=level)
        for index, other in enumerate(taints):
            name, effect = keys[index]
            if keys[index] in keys[:index]:
                found = f"a second taint {name}: EKS refuses it"
                yield other.finding(Code.MANAGED_NODES, found, "remove one of the two")
            elif name != TAINT and each.has_gpus:
                found = f"jobs tolerate {TAINT}, not {name}: they stay Pending"
                remedy = f"remove it, or let every job tolerate {name}"
                yield other.finding(Code.SHARED_GPU_NODES, found, remedy, Level.WARNING)
            elif not each.has_gpus and effect != "PREFER_NO_SCHEDULE":
                found = f"taint {name} on nodes without GPUs: CoreDNS and add-ons stay Pending"
                remedy = "remove it, unless another group has no taint"
                yield other.finding(Code.START_ORDER, found, remedy, Level.WARNING)


@template_guard
def pool_label(templates: Templates) -> Iterator[Finding]:
    """Jobs select their pool by a label, which is the group's name (`meks scale` reads both)."""
    names = [group["NodegroupName"].text for group in templates.of("EKS::Nodegroup")]
    for each in node_groups(templates):
        name, label = each.group["NodegroupName"], each.group["Labels"][LABEL]
        pool = name.text or label.text or "NAME"
        if each.has_gpus and (name or not label):
            why = "jobs select their nodes by it, and stay Pending"
            yield from label.must_be(Code.MANAGED_NODES, pool, why=why)
        if name.text and names.count(name.text) > 1:
            found = f"two node groups are called {name.text}: EKS makes one of them"
            yield name.finding(Code.TWICE, found, "name the other one, and its label, differently")
        if each.has_gpus and not name:
            why = "a change that replaces the group ends its nodes instead of being refused"
            yield from name.must_be(Code.MANAGED_NODES, pool, why=why, level=Level.WARNING)


@template_guard
def repairs_and_updates(templates: Templates) -> Iterator[Finding]:
    """One broken GPU node is replaced, and a broken driver does not empty the pool.

    MINIMAL ends a node before it asks for its successor: a reservation has no spare one (EKS User
    Guide, "Update a managed node group" and "Enable node auto repair").
    """
    of_pools: tuple[tuple[str, Json, str], ...] = (
        ("UpdateStrategy", "MINIMAL", "EKS asks for a spare node, which a reservation has not"),
        ("MaxParallelNodesRepairedCount", 1, "a bad driver would have all nodes replaced at once"),
        ("MaxUnhealthyNodeThresholdCount", 2, "a bad network would have all nodes replaced"),
    )
    of_all: tuple[tuple[str, Json, str], ...] = (
        ("Enabled", True, "broken nodes stay in the cluster, and jobs hang on them"),
        ("MaxUnavailable", 1, "EKS replaces that many nodes at once"),
    )
    for each in node_groups(templates):
        for name, right, why in (*of_all, *(of_pools if each.has_gpus else ())):
            update = name in {"UpdateStrategy", "MaxUnavailable"}
            block = each.group["UpdateConfig" if update else "NodeRepairConfig"]
            share = f"{name.removesuffix('Count')}Percentage"
            if not block[share]:
                value = block[name]
                yield from value.must_be(Code.MANAGED_NODES, right, why=why, level=Level.WARNING)


@template_guard
def node_role(templates: Templates) -> Iterator[Finding]:
    """Nodes join with a role that EC2 may take (EKS User Guide, "Amazon EKS node IAM role")."""
    for group in templates.of("EKS::Nodegroup"):
        role = templates.target(group["NodeRole"])
        if role and "ec2.amazonaws.com" not in str(role["AssumeRolePolicyDocument"].raw):
            found = f"EC2 may not take {role.name}: no node joins"
            yield group["NodeRole"].finding(Code.NODE_ROLE, found, "name the nodes' role, by Arn")


def _pool_of(logical_id: str) -> str:
    return re.sub(r"(LaunchTemplate|Nodegroup)[0-9A-F]{0,8}$", "", logical_id)
