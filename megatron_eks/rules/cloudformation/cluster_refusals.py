"""Rules over what EKS refuses of clusters and node groups, and over the cluster's log group."""

import ipaddress
import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, choices
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.addon_order import dependencies
from megatron_eks.rules.launch_templates import DATA, launch_templates
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_given,
    is_placeholder,
    items,
    mapping,
    shown,
    text,
    truth,
    written,
)

_AMI = re.compile(r"ami-([0-9a-f]{8}|[0-9a-f]{17})")
_POOLS = ("general-purpose", "system")
_PRIVATE = tuple(
    ipaddress.IPv4Network(each)
    for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8")
)
_CONTROL = re.compile(r"control|plane|cluster|master|^(api|audit|logs?)$", re.IGNORECASE)
_OWN_LOGS = re.compile(r"/aws/eks/(?P<name>.+)/cluster")


def own_amis(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse in a node group what its AMI decides already.

    EKS User Guide, "Customize managed nodes with launch templates", specifying an AMI: no other AMI
    type than CUSTOM, no version and no release; EC2 API, ImageId.
    """
    for template in launch_templates(templates):
        image = template.data.get("ImageId")
        said = text(image)
        plain = said is not None and said.startswith("ami-") and not is_placeholder(said)
        if plain and not _AMI.fullmatch(said or ""):
            found, remedy = f"{shown(said)} is no id of an AMI", "write ami- and 17 of 0-9a-f"
            yield template.resource.find(Code.AMI_TYPE, (DATA, "ImageId"), found, remedy)
        for group in template.node_groups if is_given(image) else ():
            ami = text(group.properties.get("AmiType"))
            if ami not in {None, "CUSTOM"}:
                found = f"{ami} beside the AMI of {template.resource.id}: EKS refuses the group"
                yield group.find(Code.AMI_TYPE, ("AmiType",), found, "remove it, or the ImageId")
            for key in ("Version", "ReleaseVersion"):
                if is_given(group.properties.get(key)):
                    found = f"{key} beside the AMI of {template.resource.id}: EKS refuses the group"
                    yield group.find(Code.MANAGED_NODES, (key,), found, "remove it")
        if template.has_efa and is_absent(template.data.get("InstanceType")):
            for group in template.node_groups:
                names = [text(each) for each in items(group.properties.get("InstanceTypes")) or []]
                if len(set(names)) > 1 and None not in names:
                    found = (
                        f"{', '.join(map(str, names))} with one layout of EFA interfaces, which "
                    )
                    found += "fits one type"
                    path = ("InstanceTypes",)
                    yield group.find(Code.EFA_INTERFACES, path, found, "name one instance type")


def missing_amis(templates: TemplateSet) -> Iterator[Finding]:
    """Require the AMI of one's own that a node group says it has.

    EKS API, CreateNodegroup.amiType: CUSTOM is for a launch template with an ImageId.
    """
    for template in launch_templates(templates):
        for group in template.node_groups if is_absent(template.data.get("ImageId")) else ():
            if group.properties.get("AmiType") == "CUSTOM":
                found = f"CUSTOM, and {template.resource.id} names no AMI: EKS refuses the group"
                remedy = f"add ImageId to {template.resource.id}, or name an AMI type of EKS"
                yield group.find(Code.AMI_TYPE, ("AmiType",), found, remedy)


def clusters(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse settings of a cluster that EKS does not take.

    EKS API, VpcConfigRequest.publicAccessCidrs ("The following CIDRs are invalid") and
    ComputeConfigRequest, whose parts of Auto Mode are switched on together.
    """
    for cluster in templates.resources("AWS::EKS::Cluster"):
        config = mapping(cluster.properties.get("ResourcesVpcConfig")) or {}
        for index, value in enumerate(items(config.get("PublicAccessCidrs")) or []):
            network = _network(value)
            if network is not None and any(network.subnet_of(each) for each in _PRIVATE):
                found = f"{network} is private, and reaches no public endpoint: EKS refuses it"
                path = ("ResourcesVpcConfig", "PublicAccessCidrs", index)
                remedy = "name the public addresses that people come from"
                yield cluster.find(Code.CLUSTER_CONTROL, path, found, remedy)
        yield from _automatic(cluster)


def _automatic(cluster: Resource) -> Iterator[Finding]:
    compute = mapping(cluster.properties.get("ComputeConfig"))
    storage = mapping(cluster.properties.get("StorageConfig"))
    network = mapping(cluster.properties.get("KubernetesNetworkConfig"))
    if compute is None or storage is None or network is None:
        return
    block = mapping(storage.get("BlockStorage")) or {}
    balancing = mapping(network.get("ElasticLoadBalancing")) or {}
    parts = {
        "ComputeConfig": compute.get("Enabled"),
        "StorageConfig.BlockStorage": block.get("Enabled"),
        "KubernetesNetworkConfig.ElasticLoadBalancing": balancing.get("Enabled"),
    }
    known = all(is_absent(each) or truth(each) is not None for each in parts.values())
    off = [name for name, value in parts.items() if truth(value) is not True]
    if known and off and len(off) < len(parts):
        found = f"Auto Mode without {' and '.join(off)}: EKS refuses the cluster"
        remedy = "set Enabled of all three, or of none"
        yield cluster.find(Code.CLUSTER_CONTROL, ("ComputeConfig",), found, remedy)
    pools = items(compute.get("NodePools")) or []
    for index, value in enumerate(pools):
        name = text(value)
        if name is not None and name not in _POOLS and not is_placeholder(name):
            path = ("ComputeConfig", "NodePools", index)
            found = f"EKS has no node pool {shown(name)} of its own"
            yield cluster.find(Code.UNKNOWN_VALUE, path, found, choices(name, _POOLS))
    if pools and is_absent(compute.get("NodeRoleArn")):
        found = "node pools without the role of their nodes: EKS refuses the cluster"
        yield cluster.find(Code.CLUSTER_CONTROL, ("ComputeConfig", "NodeRoleArn"), found, "add it")


def _network(value: Json) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text(value) or "", strict=False)
    except ValueError:
        return None


def log_groups(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a log group of a cluster that the cluster does not use, or does not wait for.

    EKS User Guide, "Send control plane logs to CloudWatch Logs": the group is
    /aws/eks/NAME/cluster, and EKS makes it, for ever and without a key, where it is not there.
    """
    listed = list(templates.resources("AWS::EKS::Cluster"))
    if len(listed) == 1:
        yield from _elsewhere(listed[0], templates)
    for group in templates.resources("AWS::Logs::LogGroup"):
        match = _OWN_LOGS.fullmatch(written(group.properties.get("LogGroupName")) or "")
        cluster = listed[0] if len(listed) == 1 and listed[0].file == group.file else None
        if match is None or cluster is None:
            continue
        own = written(cluster.properties.get("Name"))
        called = text(templates.default(cluster.properties.get("Name"), cluster.file))
        plain = called is not None and "$" not in called and "$" not in match["name"]
        if plain and called != match["name"]:
            found = f"logs of a cluster {match['name']}, and {cluster.id} is {called}"
            yield _warn(group, ("LogGroupName",), found, f"write /aws/eks/{called}/cluster")
        enabled = not is_absent(cluster.properties.get("Logging"))
        waits = group in dependencies(cluster, templates)
        if enabled and own == match["name"] and not waits:
            found = f"does not wait for {group.id}: EKS makes the group first, without its settings"
            yield _warn(cluster, ("DependsOn",), found, f"write DependsOn: {group.id}")
        elif match["name"] == f"${{{cluster.id}}}":
            found = f"is made after {cluster.id}, which makes the group first: it exists already"
            remedy = f"write the name out in both, and DependsOn: {group.id} in {cluster.id}"
            yield _warn(group, ("LogGroupName",), found, remedy)


def _elsewhere(cluster: Resource, templates: TemplateSet) -> Iterator[Finding]:
    """Find a group that is meant for the control plane, and that EKS writes nothing to."""
    own = written(cluster.properties.get("Name"))
    called = text(templates.default(cluster.properties.get("Name"), cluster.file))
    listed = templates.resources("AWS::Logs::LogGroup")
    groups = [each for each in listed if each.file == cluster.file]
    names = [written(each.properties.get("LogGroupName")) or "" for each in groups]
    if is_absent(cluster.properties.get("Logging")) or any(map(_OWN_LOGS.fullmatch, names)):
        return
    for group, name in zip(groups, names, strict=True):
        parts = name.split("/")
        of_cluster = "eks" in parts and not {own, called, f"${{{cluster.id}}}"}.isdisjoint(parts)
        waits = group in dependencies(cluster, templates) and "eks" in name
        if waits or (of_cluster and (_CONTROL.search(parts[-1]) or parts[-1] in {own, called})):
            meant = called if called and "$" not in called else own or "NAME"
            found = f"{shown(name)}, and EKS writes to /aws/eks/{meant}/cluster, which it makes by "
            found += "itself: kept for ever, without a key"
            yield _warn(group, ("LogGroupName",), found, f"write /aws/eks/{own or 'NAME'}/cluster")


def _warn(resource: Resource, path: tuple[str, ...], found: str, remedy: str) -> Finding:
    return resource.find(Code.START_ORDER, path, found, remedy, Level.WARNING)
