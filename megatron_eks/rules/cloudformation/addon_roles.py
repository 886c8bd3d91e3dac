"""Rules over the roles of add-ons: how they are given, and what they must allow."""

import json
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.policies import HOLDERS, ROLE, statements, words
from megatron_eks.rules.role_needs import actions_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text

# EKS User Guide, "AWS add-ons", required IAM permissions of each.
_POLICIES = {
    "aws-ebs-csi-driver": ("AmazonEBSCSIDriverPolicy", "AmazonEBSCSIDriverPolicyV2"),
    "aws-efs-csi-driver": ("AmazonEFSCSIDriverPolicy",),
    "aws-fsx-csi-driver": ("AmazonFSxFullAccess",),
    "vpc-cni": ("AmazonEKS_CNI_Policy", "AmazonEKS_CNI_IPv6_Policy"),
}
# What each calls, where a role has policies of one's own.
_SERVICES = {
    "aws-ebs-csi-driver": "ec2",
    "aws-efs-csi-driver": "elasticfilesystem",
    "aws-fsx-csi-driver": "fsx",
    "vpc-cni": "ec2",
}
_OTHERS = ("AdministratorAccess", "PowerUserAccess")
# What does nothing at all without its rights; the others may serve volumes made by hand.
_USELESS = ("aws-ebs-csi-driver", "vpc-cni")
_IN_A_FOLDER = ("AmazonEBSCSIDriverPolicy", "AmazonEFSCSIDriverPolicy")
# AWS Managed Policy Reference: these are in no folder.
_IN_NO_FOLDER = (
    *("AmazonEKSClusterPolicy", "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy"),
    *("AmazonEC2ContainerRegistryReadOnly", "AmazonEC2ContainerRegistryPullOnly"),
    *("AmazonSSMManagedInstanceCore", "CloudWatchAgentServerPolicy", "AmazonFSxFullAccess"),
    *("AmazonEBSCSIDriverPolicyV2", "AmazonS3FullAccess", "AmazonS3ReadOnlyAccess"),
)
_NETWORK = "vpc-cni"
_PODS = "pods.eks.amazonaws.com"


def given(templates: TemplateSet) -> Iterator[Finding]:
    """Require an add-on's role in one way, that the role is for, and with rights it needs.

    EKS User Guide, "IAM roles for Amazon EKS add-ons" and "AWS add-ons": a role of IRSA trusts the
    cluster's identity provider, one of EKS Pod Identity trusts pods.eks.amazonaws.com.
    """
    for addon in templates.resources("AWS::EKS::Addon"):
        name = text(templates.default(addon.properties.get("AddonName"), addon.file)) or ""
        by_provider = addon.properties.get("ServiceAccountRoleArn")
        identities = items(addon.properties.get("PodIdentityAssociations"))
        role = templates.target(by_provider, addon.file)
        if role is not None and role.type == ROLE and _trusts_pods_alone(role):
            found = f"{role.id} trusts {_PODS}, and by this property add-ons take a role from "
            found += "the cluster's identity provider"
            remedy = "name it under PodIdentityAssociations, or trust the provider"
            yield addon.find(Code.ROLE_TRUST, ("ServiceAccountRoleArn",), found, remedy)
            # Made for pods of another kind: it needs no right of the add-on's.
            role = None
        for value in identities or []:
            own = templates.target((mapping(value) or {}).get("RoleArn"), addon.file)
            role = own if own is not None else role
        yield from _rights(addon, name, role, templates)
        if identities == [] and is_absent(by_provider):
            yield from _without(addon, name, templates)


def _rights(
    addon: Resource, name: str, role: Resource | None, templates: TemplateSet
) -> Iterator[Finding]:
    wanted = _POLICIES.get(name)
    if role is None or wanted is None or role.type != ROLE:
        return
    policies = _all(role, templates)
    actions = actions_of(role, templates) if policies is None else None
    services = ("*", f"{_SERVICES[name]}:")
    lacks = actions is not None and not any(each.startswith(services) for each in actions)
    if lacks or (policies is not None and not policies.intersection((*wanted, *_OTHERS))):
        if owner := _owner(addon, role, policies or set(), templates):
            found = f"{role.id} is the role of {owner.id}, and no policy of it is for {name}"
            remedy = f"name a role that has {wanted[0]}"
            yield addon.find(Code.NODE_ROLE, ("PodIdentityAssociations",), found, remedy)
            return
        found = f"{addon.id} ({name}) takes this role, and no policy of it is for that"
        path = ("ManagedPolicyArns",)
        yield role.find(Code.NODE_ROLE, path, found, f"add {wanted[0]}")


def _owner(
    addon: Resource, role: Resource, policies: set[str], templates: TemplateSet
) -> Resource | None:
    """Return another add-on that takes a role, and for which the role has its policy."""
    for other in templates.resources("AWS::EKS::Addon"):
        wanted = _POLICIES.get(text(other.properties.get("AddonName")) or "", ())
        for value in items(other.properties.get("PodIdentityAssociations")) or []:
            own = templates.target((mapping(value) or {}).get("RoleArn"), other.file)
            if other is not addon and own is role and policies.intersection(wanted):
                return other
    return None


def _without(addon: Resource, name: str, templates: TemplateSet) -> Iterator[Finding]:
    """Find an add-on that has no role, and whose nodes' roles do not do for it."""
    cluster = templates.target(addon.properties.get("ClusterName"), addon.file)
    roles = [
        templates.target(group.properties.get("NodeRole"), group.file)
        for group in templates.resources("AWS::EKS::Nodegroup")
        if templates.target(group.properties.get("ClusterName"), group.file) is cluster
    ]
    own = [_all(each, templates) if each is not None else None for each in roles]
    if name not in _USELESS or not roles or None in own or cluster is None:
        return
    # An association of its own may name the same account.
    if any(True for _ in templates.resources("AWS::EKS::PodIdentityAssociation")) and any(
        text(each.properties.get("Namespace")) in {None, "kube-system"}
        for each in templates.resources("AWS::EKS::PodIdentityAssociation")
    ):
        return
    wanted = _POLICIES[name]
    if not any(each and each.intersection((*wanted, *_OTHERS)) for each in own):
        found = f"{name} has no role, and the nodes' one has none of its rights: it does not work"
        remedy = f"add PodIdentityAssociations with a role that has {wanted[0]}"
        # Nodes are not Ready without addresses for pods, so that their group fails.
        level = Level.ERROR if name == _NETWORK else Level.WARNING
        yield addon.find(Code.NODE_ROLE, ("PodIdentityAssociations",), found, remedy, level)


def _trusts_pods_alone(role: Resource) -> bool:
    listed = statements(role.properties.get("AssumeRolePolicyDocument"))
    principals = [mapping(body.get("Principal")) for body in listed or []]
    return bool(principals) and all(
        each is not None and each.keys() == {"Service"} and _PODS in words(each["Service"])
        for each in principals
    )


def _all(role: Resource, templates: TemplateSet) -> set[str] | None:
    """Return the names of a role's policies of AWS; None where it may have others."""
    listed = items(role.properties.get("ManagedPolicyArns"))
    if role.type != ROLE or listed is None or items(role.properties.get("Policies")) != []:
        return None
    for holder in templates.resources(*HOLDERS):
        if holder is not role and f'"{role.id}"' in json.dumps(dict(holder.properties)):
            return None
    found = {json.dumps(each).rstrip('"]} ').rpartition("/")[2] for each in listed}
    known = all(each.replace("_", "").isalnum() for each in found)
    return found if known else None


def folders(templates: TemplateSet) -> Iterator[Finding]:
    """Require of AWS's policies the folder that they are in.

    AWS Managed Policy Reference, AmazonEBSCSIDriverPolicy and others: an ARN without service-role/
    is of no policy, and IAM refuses the role.
    """
    for role in templates.resources(ROLE):
        for index, value in enumerate(items(role.properties.get("ManagedPolicyArns")) or []):
            said = json.dumps(value).rstrip('"]} ')
            name = said.rpartition("/")[2]
            if ":aws:policy/" in said and name in _IN_A_FOLDER and "service-role/" not in said:
                found = f"AWS has {name} under service-role/: IAM refuses the role"
                path = ("ManagedPolicyArns", index)
                yield role.find(Code.NODE_ROLE, path, found, f"write policy/service-role/{name}")
            elif ":aws:policy/" in said and name in _IN_NO_FOLDER and "service-role/" in said:
                found = f"AWS has {name} in no folder: IAM refuses the role"
                path = ("ManagedPolicyArns", index)
                yield role.find(Code.NODE_ROLE, path, found, f"write policy/{name}")
