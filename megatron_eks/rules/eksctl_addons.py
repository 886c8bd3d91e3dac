"""Rules over the add-ons in eksctl's cluster files."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.addon_values import faults
from megatron_eks.rules.clusters import unknown_addon
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import Manifest


def addons(manifest: Manifest) -> Iterator[Finding]:
    """Require add-ons that EKS has, with settings that their schemas take.

    EKS User Guide, "Available Amazon EKS add-ons from AWS"; eksctl, "Addons", configurationValues:
    eksctl hands both on, and EKS refuses them only when the cluster is made.
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    for index, value in enumerate(items(manifest.body.get("addons")) or []):
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
