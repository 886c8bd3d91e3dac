"""Rules over the add-ons of a cluster: those that nodes need, and the accounts that they use."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import ROLE, statements, words
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    shown,
    text,
    truth,
)

_EQUAL = ("StringEquals", "StringLike")
_NEEDED = ("vpc-cni", "kube-proxy", "coredns")
# EKS User Guide, "AWS add-ons": the service accounts that each takes a role for.
_ACCOUNTS = {
    "aws-ebs-csi-driver": ("ebs-csi-controller-sa", "ebs-csi-node-sa"),
    "aws-efs-csi-driver": ("efs-csi-controller-sa", "efs-csi-node-sa"),
    "aws-fsx-csi-driver": ("fsx-csi-controller-sa", "fsx-csi-node-sa"),
    "aws-mountpoint-s3-csi-driver": ("s3-csi-driver-sa", "s3-csi-driver-controller-sa"),
    "vpc-cni": ("aws-node",),
}


def subjects(templates: TemplateSet) -> Iterator[Finding]:
    """Require of an add-on's role of IRSA that it trusts the account that the add-on has.

    EKS User Guide, "Assign IAM roles to Kubernetes service accounts": for pods of another
    namespace or account STS answers AccessDenied, and the driver makes and mounts nothing.
    """
    for addon in templates.resources("AWS::EKS::Addon"):
        known = _ACCOUNTS.get(text(addon.properties.get("AddonName")) or "")
        role = templates.target(addon.properties.get("ServiceAccountRoleArn"), addon.file)
        settings = mapping(addon.properties.get("NamespaceConfig"))
        if known is None or role is None or role.type != ROLE or settings is None:
            continue
        namespace = "kube-system" if not settings else text(settings.get("Namespace"))
        listed = statements(role.properties.get("AssumeRolePolicyDocument")) or []
        trusted = [_trusted(each) for each in listed]
        own = [f"system:serviceaccount:{namespace}:{name}" for name in known]
        if namespace is None or not trusted or None in trusted:
            continue
        names = [name for each in trusted for name in each or []]
        if names and not any(fnmatchcase(one, each) for one in own for each in names):
            found = f"{role.id} trusts {shown(names[0])}, and the add-on's account is {own[0]}"
            remedy = f"write {own[0]} in the condition of {role.id}"
            yield addon.find(Code.ROLE_TRUST, ("ServiceAccountRoleArn",), found, remedy)


def _trusted(statement: "dict[str, Json]") -> list[str] | None:
    """Return the accounts that a statement is for; None where it may be for any."""
    condition = mapping(statement.get("Condition")) or {}
    found: list[str] = []
    for operator, value in condition.items():
        for key, given in (mapping(value) or {}).items():
            named = words(given)
            plain = bool(named) and not any(is_placeholder(each) for each in named)
            if key.endswith(":sub") and operator in _EQUAL and plain:
                found += named
    return found or None


def accounts(templates: TemplateSet) -> Iterator[Finding]:
    """Require of an add-on's pod identity an account that the add-on has.

    EKS User Guide, "AWS add-ons", IAM permissions of each: another account gives its pods nothing.
    """
    for addon in templates.resources("AWS::EKS::Addon"):
        known = _ACCOUNTS.get(text(addon.properties.get("AddonName")) or "")
        for index, value in enumerate(items(addon.properties.get("PodIdentityAssociations")) or []):
            name = text((mapping(value) or {}).get("ServiceAccount"))
            if known and name is not None and name not in known:
                found = f"the add-on has no service account {shown(name)}"
                path = ("PodIdentityAssociations", index, "ServiceAccount")
                yield addon.find(Code.ADDON_SETTINGS, path, found, f"write {known[0]}")


def needed(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of a cluster that brings no network of its own, and has no add-on for it.

    EKS API, CreateCluster.bootstrapSelfManagedAddons: without them nodes stay NotReady, unless
    somebody installs the same in another way.
    """
    known = templates.resources("AWS::EKS::Addon")
    addons = [text(each.properties.get("AddonName")) for each in known]
    for cluster in templates.resources("AWS::EKS::Cluster"):
        alone = truth(cluster.properties.get("BootstrapSelfManagedAddons")) is False
        automatic = not is_absent(cluster.properties.get("ComputeConfig"))
        missing = [name for name in _NEEDED if name not in addons]
        if alone and addons and not automatic and missing and None not in addons:
            found = f"no add-on {', '.join(missing)}, and EKS installs none by itself here"
            remedy = "add the add-ons, or set BootstrapSelfManagedAddons to true"
            path = ("BootstrapSelfManagedAddons",)
            yield cluster.find(Code.ADDON_SETTINGS, path, found, remedy, Level.WARNING)
