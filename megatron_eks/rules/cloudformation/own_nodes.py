"""Rules over nodes that EKS does not manage: Auto Scaling groups, and those of Karpenter."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.launch_templates import DATA
from megatron_eks.rules.policies import HOLDERS, ROLE, policy_name, statements
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import items, mapping, text, written

_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_WORKER = "AmazonEKSWorkerNodePolicy"
_LINUX = "EC2_LINUX"
_TAG = "kubernetes.io/cluster/"


@dataclass(frozen=True)
class Scaled:
    """An Auto Scaling group whose launch template is at hand."""

    group: Resource
    template: Resource


def scaled(templates: TemplateSet) -> Iterator[Scaled]:
    """Return every Auto Scaling group with its launch template, also of a mixed one."""
    for group in templates.resources(_GROUP):
        mixed = mapping(group.properties.get("MixedInstancesPolicy")) or {}
        of_mixed = mapping(mixed.get("LaunchTemplate")) or {}
        for value in (
            group.properties.get("LaunchTemplate"),
            of_mixed.get("LaunchTemplateSpecification"),
        ):
            used = mapping(value) or {}
            for key in ("LaunchTemplateId", "LaunchTemplateName"):
                target = templates.target(used.get(key), group.file)
                if target is not None and target.type == "AWS::EC2::LaunchTemplate":
                    yield Scaled(group, target)


def entries(templates: TemplateSet) -> Iterator[Finding]:
    """Require an access entry of nodes of one's own, where the cluster takes rights from no other.

    EKS User Guide, "Create access entries", and EKS API, CreateAccessEntry.type: EKS makes one for
    the role of managed nodes and of Fargate alone; in mode API nobody reads aws-auth.
    """
    clusters = list(templates.resources("AWS::EKS::Cluster"))
    if len(clusters) > 1:
        return
    mode: Json = None
    for cluster in clusters:
        access = mapping(cluster.properties.get("AccessConfig")) or {}
        mode = templates.default(access.get("AuthenticationMode"), cluster.file)
    listed = list(templates.resources("AWS::EKS::AccessEntry"))
    # One for people, of a type that is written or left out, is none of nodes.
    of_nodes = [each for each in listed if each.properties.get("Type", "STANDARD") != "STANDARD"]
    roles = [_role_of(each.properties.get("PrincipalArn"), each, templates) for each in listed]
    managed = {
        templates.target(each.properties.get("NodeRole"), each.file)
        for each in templates.resources("AWS::EKS::Nodegroup")
    }
    managed |= {templates.target(each.properties.get("RoleArn"), each.file) for each in clusters}
    launched = {_role_of_nodes(each, templates): each.group for each in scaled(templates)}
    for role in templates.resources(ROLE):
        group = launched.get(role)
        joins = names_a_cluster(group) if group is not None else _is_launched(role, templates)
        if role in managed or not joins:
            continue
        own = [each for each, taken in zip(listed, roles, strict=True) if taken is role]
        kind = text(own[0].properties.get("Type")) if own else None
        if own and (kind in {None, "STANDARD"}):
            found = (
                f"the role of nodes with type {kind or 'STANDARD'}: they may do nothing, and do "
            )
            found += "not join"
            remedy = f"write Type: {_LINUX}, and no groups or policies"
            yield own[0].find(Code.ACCESS_ENTRY, ("Type",), found, remedy)
        unknown = any(
            templates.may_be_any(each.properties.get("PrincipalArn"), each.file)
            for each in of_nodes
        )
        if own or mode != "API" or unknown:
            continue
        found = f"{clusters[0].id} takes rights from access entries alone, and {role.id} has none: "
        found += "its nodes are Unauthorized and never join"
        remedy = f"add an AWS::EKS::AccessEntry with Type {_LINUX} and PrincipalArn of {role.id}"
        level = Level.ERROR if group is not None else Level.WARNING
        yield role.find(Code.ACCESS_ENTRY, (), found, remedy, level)


def _role_of(value: Json, user: Resource, templates: TemplateSet) -> Resource | None:
    target = templates.target(value, user.file)
    if target is not None or not isinstance(value, dict):
        return target
    # A role's ARN may be put together from its name.
    inner = value.get("Fn::Sub")
    said = text(inner[0] if isinstance(inner, list) and inner else inner) or ""
    name = said.rpartition("/")[2].removeprefix("${").removesuffix("}").removesuffix(".Arn")
    return templates.target({"Ref": name}, user.file)


def _role_of_nodes(nodes: Scaled, templates: TemplateSet) -> Resource | None:
    data = mapping(nodes.template.properties.get(DATA)) or {}
    profile = mapping(data.get("IamInstanceProfile")) or {}
    for key in ("Arn", "Name"):
        target = templates.target(profile.get(key), nodes.template.file)
        for each in items(target.properties.get("Roles")) or [] if target is not None else ():
            if target is not None:
                return templates.target(each, target.file)
    return None


def _is_launched(role: Resource, templates: TemplateSet) -> bool:
    """Tell the role of nodes that somebody else launches, such as Karpenter, which passes it."""
    given = [
        json.dumps(dict(each.properties))
        for each in templates.resources("AWS::IAM::InstanceProfile", *HOLDERS)
        if each is not role and each.file == role.file
    ]
    marks = (f'"{role.id}"', f"${{{role.id}.Arn}}", f"${{{role.id}}}")
    return _is_of_nodes(role) and any(mark in each for each in given for mark in marks)


def _is_of_nodes(role: Resource) -> bool:
    """Tell a role that EC2 takes and that has the policy of nodes."""
    policies = items(role.properties.get("ManagedPolicyArns")) or []
    trusted = {
        name
        for body in statements(role.properties.get("AssumeRolePolicyDocument")) or []
        for name in _services(body)
    }
    ec2 = any(name.startswith("ec2.amazonaws.com") for name in trusted)
    return ec2 and _WORKER in {policy_name(each) for each in policies}


def _services(body: "dict[str, Json]") -> list[str]:
    value = (mapping(body.get("Principal")) or {}).get("Service")
    names = [written(each) or "" for each in (value if isinstance(value, list) else [value])]
    return [name.replace("${AWS::URLSuffix}", "amazonaws.com") for name in names]


def names_a_cluster(group: Resource) -> bool:
    """Tell a group whose tags say that its instances are a cluster's nodes."""
    return _TAG in repr(group.properties.get("Tags"))
