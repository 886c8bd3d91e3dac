"""Rules over what a cluster's add-ons and nodes wait for, and where the add-ons' pods may run."""

import json
from collections.abc import Callable, Iterable, Iterator

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.properties import after
from megatron_eks.rules.launch_templates import has_gpus, type_launched_by
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, number, shown, text, truth

_NODES = "AWS::EKS::Nodegroup"
_ADDON = "AWS::EKS::Addon"
# Pods of every node, without which it is not Ready; and pods that need a node to run on.
_BEFORE_NODES = ("vpc-cni", "kube-proxy")
_ON_NODES = (
    *("aws-ebs-csi-driver", "aws-efs-csi-driver", "coredns", "metrics-server"),
    *("aws-fsx-csi-driver", "cert-manager", "external-dns", "snapshot-controller"),
)
_AGENT = "eks-pod-identity-agent"
_CRITICAL = "CriticalAddonsOnly"
_DNS = "coredns"
_MILD = "PREFER_NO_SCHEDULE"


def order(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a network that waits for nodes, and nodes that wait for pods which need a node.

    EKS User Guide, "Amazon EKS add-ons"; terraform-aws-eks issues 3160 and 3446: a node without a
    network plugin is never Ready, and an add-on without a node is DEGRADED until the stack fails.
    """
    for addon in templates.resources(_ADDON):
        name = text(templates.default(addon.properties.get("AddonName"), addon.file)) or ""
        cluster = templates.target(addon.properties.get("ClusterName"), addon.file)
        alone = truth((cluster.properties if cluster else {}).get("BootstrapSelfManagedAddons"))
        if name in _BEFORE_NODES and alone is False and cluster is not None:
            waits = _waits_for(addon, _NODES, templates)
            if waits is not None and _is_of(waits, cluster, templates):
                found = f"{name} waits for {waits.id}, whose nodes are never Ready without it"
                remedy = f"remove {waits.id} from its DependsOn, and let node groups wait for it"
                yield addon.find(Code.START_ORDER, ("DependsOn",), found, remedy)
    for group in templates.resources(_NODES):
        for addon in dependencies(group, templates):
            name = text(templates.default(addon.properties.get("AddonName"), addon.file)) or ""
            cluster = templates.target(group.properties.get("ClusterName"), group.file)
            if addon.type == _ADDON and name in _ON_NODES and _has_no_other(group, cluster, addon):
                others = [each for each in templates.resources(_NODES) if each is not group]
                free = [each for each in others if addon not in dependencies(each, templates)]
                if not any(_is_of(e, cluster, templates) and _may_run(e) for e in free):
                    found = f"waits for {addon.id} ({name}), whose pods need a node first"
                    remedy = f"let {addon.id} wait for the node group instead"
                    yield group.find(Code.START_ORDER, ("DependsOn",), found, remedy)
                    break


def _may_run(group: Resource) -> bool:
    """Tell whether a node group has a node from the start that takes any pod."""
    sizes = mapping(group.properties.get("ScalingConfig")) or {}
    wanted = number(sizes.get("DesiredSize"))
    return wanted != 0 and _keeps_off(group, []) is None


def _has_no_other(group: Resource, cluster: Resource | None, addon: Resource) -> bool:
    """Tell whether nothing but node groups can run an add-on's pods."""
    automatic = cluster is not None and not is_absent(cluster.properties.get("ComputeConfig"))
    return not automatic and group.file == addon.file


def _is_of(group: Resource, cluster: Resource | None, templates: TemplateSet) -> bool:
    return templates.target(group.properties.get("ClusterName"), group.file) in {cluster, None}


def _waits_for(resource: Resource, kind: str, templates: TemplateSet) -> Resource | None:
    return next((each for each in dependencies(resource, templates) if each.type == kind), None)


def dependencies(resource: Resource, templates: TemplateSet) -> list[Resource]:
    """Return all that a resource waits for by DependsOn, and what these wait for."""
    return made_before(resource, templates, after)


def made_before(
    resource: Resource,
    templates: TemplateSet,
    names_of: Callable[[Resource], Iterable[tuple[Path, str]]],
) -> list[Resource]:
    """Return what a resource waits for by the names that it gives, at any depth."""
    found: list[Resource] = []
    left = [resource]
    while left:
        each = left.pop()
        for _, name in names_of(each):
            target = templates.target({"Ref": name}, each.file)
            if target is not None and target not in found:
                found.append(target)
                left.append(target)
    return found


def places(templates: TemplateSet) -> Iterator[Finding]:
    """Require nodes on which CoreDNS may run.

    EKS User Guide, "Troubleshoot problems with Amazon EKS clusters and nodes": its pods tolerate
    CriticalAddonsOnly and no taint of one's own, stay Pending, and the add-on ends DEGRADED.
    """
    for cluster in templates.resources("AWS::EKS::Cluster"):
        groups = [
            each
            for each in templates.resources(_NODES)
            if templates.target(each.properties.get("ClusterName"), each.file) is cluster
        ]
        if not groups or _has_other_places(cluster, templates):
            continue
        dns = [each for each in templates.resources(_ADDON) if _is_dns(each, cluster, templates)]
        tolerated = _tolerations(dns[0]) if dns else None
        if tolerated is None:
            continue
        kept_off = [_keeps_off(each, tolerated) for each in groups]
        if None in kept_off:
            continue
        plain = [
            each for each in groups if not has_gpus(type_launched_by(each, templates) or "")
        ] or groups
        taint = next(t for g, t in zip(groups, kept_off, strict=True) if g is plain[0])
        found = f"every node group has a taint that CoreDNS does not tolerate, here {shown(taint)}:"
        found += " its pods stay Pending, and no name resolves"
        remedy = "remove the taint here, or add its toleration to ConfigurationValues of coredns"
        yield plain[0].find(Code.START_ORDER, ("Taints",), found, remedy)


def _has_other_places(cluster: Resource, templates: TemplateSet) -> bool:
    """Tell whether pods may run elsewhere: on Fargate, in Auto Mode, on nodes of one's own."""
    if not is_absent(cluster.properties.get("ComputeConfig")):
        return True
    return any(
        True
        for _ in templates.resources(
            "AWS::EKS::FargateProfile", "AWS::AutoScaling::AutoScalingGroup"
        )
    )


def _is_dns(addon: Resource, cluster: Resource, templates: TemplateSet) -> bool:
    own = templates.target(addon.properties.get("ClusterName"), addon.file)
    name = templates.default(addon.properties.get("AddonName"), addon.file)
    return own in {cluster, None} and name == _DNS


def _tolerations(addon: Resource) -> "list[dict[str, Json]] | None":
    """Return the tolerations in an add-on's settings; None where they cannot be known."""
    value = addon.properties.get("ConfigurationValues")
    written = text(value)
    if is_absent(value):
        return []
    try:
        settings = yaml.safe_load(written) if written is not None else None
    except yaml.YAMLError:
        settings = None
    listed = settings.get("tolerations", []) if isinstance(settings, dict) else None
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else None


def _keeps_off(group: Resource, tolerated: "list[dict[str, Json]]") -> str | None:
    """Return the key of a taint that keeps CoreDNS off, or None where it may run there."""
    taints = items(group.properties.get("Taints"))
    for value in taints or []:
        taint = mapping(value) or {}
        key, effect = text(taint.get("Key")), text(taint.get("Effect"))
        if key is None or effect is None or effect == _MILD or key == _CRITICAL:
            continue
        if not any(_tolerates(each, key, taint.get("Value")) for each in tolerated):
            return key
    return None


def _tolerates(toleration: "dict[str, Json]", key: str, value: Json) -> bool:
    named = text(toleration.get("key"))
    exists = toleration.get("operator") == "Exists"
    return named in {None, key} and (exists or toleration.get("value") == value)


def agent(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse an agent of pod identities that waits for nodes, where the network takes its role so.

    EKS User Guide, "Set up the Amazon EKS Pod Identity Agent" and "Configure Amazon VPC CNI plugin
    to use IRSA": without the agent on its node the plugin has no rights, and no node is Ready.
    """
    for addon in templates.resources(_ADDON):
        waits = _waits_for(addon, _NODES, templates)
        if addon.properties.get("AddonName") != _AGENT or waits is None:
            continue
        role = templates.target(waits.properties.get("NodeRole"), waits.file)
        if role is None or "AmazonEKS_CNI_Policy" in json.dumps(dict(role.properties)):
            continue
        by_identity = any(
            each.properties.get("AddonName") == _BEFORE_NODES[0]
            and items(each.properties.get("PodIdentityAssociations"))
            for each in templates.resources(_ADDON)
        )
        if by_identity and items(role.properties.get("Policies")) == []:
            found = f"waits for {waits.id}, whose network plugin has its role by this agent"
            remedy = f"remove {waits.id} from its DependsOn"
            yield addon.find(Code.START_ORDER, ("DependsOn",), found, remedy)
