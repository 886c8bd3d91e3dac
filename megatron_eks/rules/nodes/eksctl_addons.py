"""Rules over the add-ons in eksctl's cluster files."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.addon_values import faults
from megatron_eks.rules.clusters import unknown_addon
from megatron_eks.rules.values import is_absent, items, mapping, text
from megatron_eks.rules.workloads import Manifest

_CNI = "vpc-cni"
_NEED_NETWORK = ("managedNodeGroups", "nodeGroups", "fargateProfiles", "karpenter", "gitops")


def addons(manifest: Manifest) -> Iterator[Finding]:
    """Require add-ons that EKS has, with settings that their schemas take.

    EKS User Guide, "Available Amazon EKS add-ons from AWS"; eksctl, "Addons", configurationValues:
    eksctl hands both on, and EKS refuses them only when the cluster is made.
    """
    for index, value in enumerate(
        items(manifest.body.get("addons")) or [] if _is_file(manifest) else []
    ):
        addon = mapping(value) or {}
        path: Path = ("addons", index)
        name = text(addon.get("name"))
        wrong = unknown_addon(name)
        if wrong is not None:
            yield manifest.find(Code.EKSCTL, (*path, "name"), *wrong)
        for fault in faults(name or "", text(addon.get("configurationValues"))):
            level = Level.WARNING if fault.works else Level.ERROR
            place = (*path, "configurationValues")
            yield manifest.find(Code.EKSCTL, place, fault.found, fault.remedy, level)


def without_network(manifest: Manifest) -> Iterator[Finding]:
    """Refuse nodes of a cluster without the add-on that gives their pods addresses.

    eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/bare_cluster_validation.go, and its issue 8164.
    """
    body = manifest.body
    config = mapping(body.get("addonsConfig")) or {}
    if not _is_file(manifest) or config.get("disableDefaultAddons") is not True:
        return
    listed = items(body.get("addons")) or []
    names = [text((mapping(each) or {}).get("name")) for each in listed]
    parts = [key for key in _NEED_NETWORK if not is_absent(body.get(key))]
    if parts and _CNI not in names and not any(each is None or "$" in each for each in names):
        found = f"{parts[0]} without the add-on {_CNI}, which disableDefaultAddons takes away: "
        found += "eksctl refuses the file"
        path: Path = ("addonsConfig", "disableDefaultAddons")
        remedy = f"remove it, or add name: {_CNI} to addons"
        yield manifest.find(Code.EKSCTL, path, found, remedy)


def _is_file(manifest: Manifest) -> bool:
    return (manifest.group, manifest.kind) == ("eksctl.io", "ClusterConfig")
