"""Rules over the roles of what makes volumes, file systems and nodes for the cluster."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.policies import HOLDERS, ROLE
from megatron_eks.rules.role_needs import has_action, own_actions
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import items, mapping, text

# What each makes, and how it tags it: aws-fsx-csi-driver, docs/install.md (its issue 214);
# aws-efs-csi-driver and aws-ebs-csi-driver, docs, example policies (terraform-aws-eks-blueprints
# issue 1578); Karpenter, "CloudFormation", AllowScopedResourceCreationTagging.
_MADE = {
    "ebs-csi-controller-sa": ("ec2:CreateVolume", "ec2:CreateTags", "a claim stays Pending"),
    "efs-csi-controller-sa": (
        *("elasticfilesystem:CreateAccessPoint", "elasticfilesystem:TagResource"),
        "a claim stays Pending",
    ),
    "fsx-csi-controller-sa": ("fsx:CreateFileSystem", "fsx:TagResource", "a claim stays Pending"),
    "karpenter": ("ec2:CreateFleet", "ec2:CreateTags", "no node is started"),
}
_BY_ADDON = {
    f"aws-{each}-csi-driver": f"{each}-csi-controller-sa" for each in ("ebs", "efs", "fsx")
}
_ACCOUNT = re.compile(r"system:serviceaccount:[^:\"]+:(?P<name>[^\"\\]+)")


def tagging(templates: TemplateSet) -> Iterator[Finding]:
    """Require the right to tag of a driver's role that may make things.

    IAM User Guide, "Controlling access during AWS requests": a call that makes and tags at once
    needs both rights, and is refused as a whole.
    """
    for role in templates.resources(ROLE):
        # A role of every account of a namespace is of no driver.
        names = _accounts(role, templates) - {"*"}
        account = next((each for each in _MADE if any(fnmatchcase(each, n) for n in names)), None)
        actions = _all_actions(role, templates)
        if account is None or actions is None:
            continue
        make, tag, ending = _MADE[account]
        if has_action(actions, make) and not has_action(actions, tag):
            found = f"{account} takes this role, which may {make} and not {tag}, and it tags what "
            found += f"it makes: AccessDenied, and {ending}"
            yield role.find(Code.POLICY, (), found, f"allow {tag} beside {make}")


def _accounts(role: Resource, templates: TemplateSet) -> set[str]:
    """Return the names, or patterns of names, of the service accounts that take a role."""
    trust = json.dumps(role.properties.get("AssumeRolePolicyDocument"))
    found = {match["name"] for match in _ACCOUNT.finditer(trust)}
    for each in templates.resources("AWS::EKS::PodIdentityAssociation"):
        if templates.target(each.properties.get("RoleArn"), each.file) is role:
            found.add(text(each.properties.get("ServiceAccount")) or "")
    for addon in templates.resources("AWS::EKS::Addon"):
        given = [addon.properties.get("ServiceAccountRoleArn")]
        listed = items(addon.properties.get("PodIdentityAssociations")) or []
        given += [(mapping(each) or {}).get("RoleArn") for each in listed]
        if role in templates.targets(given, addon.file):
            found.add(_BY_ADDON.get(text(addon.properties.get("AddonName")) or "", ""))
    return found


def _all_actions(role: Resource, templates: TemplateSet) -> set[str] | None:
    """Return what a role allows with all policies attached; None where one is not at hand."""
    named = items(role.properties.get("ManagedPolicyArns"))
    held = templates.targets(named or [], role.file)
    if named is None or None in held:
        return None
    for each in templates.resources(*HOLDERS):
        roles = [*(items(each.properties.get("Roles")) or []), each.properties.get("RoleName")]
        if each is not role and role in templates.targets(roles, each.file):
            held.append(each)
    found: set[str] = set()
    for holder in [role, *held]:
        actions = own_actions(holder) if holder is not None else None
        if actions is None:
            return None
        found |= actions
    return found
