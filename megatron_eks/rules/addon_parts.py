"""Rules over the add-ons of a cluster: those that nodes need, and the accounts that they use."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, shown, text, truth

_NEEDED = ("vpc-cni", "kube-proxy", "coredns")
# EKS User Guide, "AWS add-ons": the service accounts that each takes a role for.
_ACCOUNTS = {
    "aws-ebs-csi-driver": ("ebs-csi-controller-sa", "ebs-csi-node-sa"),
    "aws-efs-csi-driver": ("efs-csi-controller-sa", "efs-csi-node-sa"),
    "aws-fsx-csi-driver": ("fsx-csi-controller-sa", "fsx-csi-node-sa"),
    "aws-mountpoint-s3-csi-driver": ("s3-csi-driver-sa", "s3-csi-driver-controller-sa"),
    "vpc-cni": ("aws-node",),
}


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
