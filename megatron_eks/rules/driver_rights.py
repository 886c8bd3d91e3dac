"""Rules over the roles of what makes volumes, file systems and nodes for the cluster."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import HOLDERS, ROLE, statements, words
from megatron_eks.rules.role_needs import has_action, own_actions
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, text
from megatron_eks.rules.workloads import Manifest

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
        said = _untagged(account, actions)
        if said is not None:
            yield role.find(
                Code.POLICY, (), f"{account} takes this role, which may {said[0]}", said[1]
            )


def tagging_by_eksctl(manifest: Manifest) -> Iterator[Finding]:
    """Require the same of a policy that eksctl's file gives a driver's account.

    eksctl, "IAM roles for service accounts", attachPolicy, and "EKS Pod Identity associations",
    permissionPolicy (eksctl issue 3671).
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    iam = mapping(manifest.body.get("iam")) or {}
    for key, inner in (
        ("serviceAccounts", "attachPolicy"),
        ("podIdentityAssociations", "permissionPolicy"),
    ):
        for index, value in enumerate(items(iam.get(key)) or []):
            body = mapping(value) or {}
            metadata = mapping(body.get("metadata")) or {}
            account = text(metadata.get("name")) or text(body.get("serviceAccountName")) or ""
            more = ("wellKnownPolicies", "attachPolicyARNs", "permissionPolicyARNs")
            if account not in _MADE or not all(is_absent(body.get(each)) for each in more):
                continue
            said = _untagged(account, _actions(body.get(inner)))
            if said is not None:
                path: Path = ("iam", key, index, inner)
                found = f"{account} may {said[0]}"
                yield manifest.find(Code.EKSCTL, path, found, said[1])


def _untagged(account: str, actions: set[str]) -> tuple[str, str] | None:
    """Say what an account may make and not tag, and what to allow."""
    make, tag, ending = _MADE[account]
    if not has_action(actions, make) or has_action(actions, tag):
        return None
    found = f"{make} and not {tag}, and it tags what it makes: AccessDenied, and {ending}"
    return found, f"allow {tag} beside {make}"


def _actions(document: Json) -> set[str]:
    """Return what a policy allows; with a NotAction everything may be among it."""
    listed = [each for each in statements(document) or [] if each.get("Effect") == "Allow"]
    if any(not is_absent(each.get("NotAction")) for each in listed):
        return {"*"}
    return {action.lower() for each in listed for action in words(each.get("Action"))}


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
