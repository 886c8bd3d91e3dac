"""Rules over the AMIs that an EC2NodeClass selects by name: their version, and their driver."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.nodes.karpenter_ends import is_for_training
from megatron_eks.rules.nodes.karpenter_fits import FAMILIES, alias_of, with_classes
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.named_pools import pools_of
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_CLASS = ("karpenter.k8s.aws", "EC2NodeClass")
# awslabs/amazon-eks-ami, releases, and Bottlerocket, "Variants": what AWS calls its AMIs of EKS.
_OF_EKS = re.compile(r"(?P<start>amazon-eks-|bottlerocket-aws-k8s-)")
_VERSION = re.compile(r"(?<![0-9.])1\.[1-9][0-9](?![0-9])")
# A wildcard may stand where the variant is, so only these two are sure to be without a driver.
_PLAIN = re.compile(r"amazon-eks-node-al2023-[a-z0-9_*]+-standard-|amazon-eks-node-1\.")
_NVIDIA = "amazon-eks-node-al2023-x86_64-nvidia-1.33-v*"


def names(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a name that the AMIs of every version of Kubernetes match.

    Karpenter, "NodeClasses", spec.amiSelectorTerms: of several AMIs it takes the newest, and of an
    AMI selected by name it knows the architecture alone (karpenter-provider-aws issues 7731, 6050).
    """
    if (manifest.group, manifest.kind) != _CLASS:
        return
    for index, value in enumerate(items(manifest.spec.get("amiSelectorTerms")) or []):
        term = mapping(value) or {}
        name = text(term.get("name")) or ""
        wide = "*" in name and _OF_EKS.match(name) and not _VERSION.search(name)
        if wide and is_absent(term.get("tags")) and not is_placeholder(name):
            found = f"{shown(name)} fits AMIs of every version of Kubernetes, and Karpenter takes "
            found += "the newest of all: nodes of another version than the cluster's"
            remedy = "write alias: al2023@vYYYYMMDD alone, which finds the cluster's version and, "
            remedy += f"for GPUs, NVIDIA's AMI; or the version into the name: {_NVIDIA}"
            path: Path = ("spec", "amiSelectorTerms", index, "name")
            yield manifest.find(Code.KARPENTER, path, found, remedy, Level.WARNING)


def families(manifest: Manifest) -> Iterator[Finding]:
    """Require of amiFamily what the alias of the AMIs says.

    aws/karpenter-provider-aws, pkg/apis/v1/ec2nodeclass.go: an alias goes with its own family, or
    with Custom; issue 5940: nodes of another family get user data that they cannot read.
    """
    given = text(manifest.spec.get("amiFamily"))
    alias, index = alias_of(manifest)
    meant = FAMILIES.get(alias.partition("@")[0])
    if (manifest.group, manifest.kind) != _CLASS or given in {None, "Custom", meant}:
        return
    if meant is not None and given in FAMILIES.values():
        found = f"{shown(given)} with the alias {alias}: Karpenter's API refuses it"
        remedy = f"write {meant}, or the alias of {given}, in spec.amiSelectorTerms[{index}]"
        yield manifest.find(Code.KARPENTER, ("spec", "amiFamily"), found, remedy)


def drivers(together: ManifestSet) -> Iterator[Found]:
    """Refuse an AMI without NVIDIA's driver for a pool of nodes with GPUs.

    Karpenter, "NodeClasses", spec.amiSelectorTerms: by name it cannot tell an accelerated AMI
    (karpenter-provider-aws pull request 5904); EKS User Guide, "EKS-optimized accelerated AMIs".
    """
    warned: list[Manifest] = []
    for manifest, used in with_classes(together):
        pool = next(pools_of(manifest), None)
        if pool is None or any(each is used for each in warned) or _has_operator(together):
            continue
        known = [INSTANCES.get(name) for name in pool.types]
        gpus = bool(known) and all(each is not None and each.gpus for each in known)
        terms = [mapping(each) or {} for each in items(used.spec.get("amiSelectorTerms")) or []]
        plain = [_PLAIN.match(text(each.get("name")) or "") is not None for each in terms]
        if (gpus or is_for_training(pool)) and plain and all(plain):
            warned.append(used)
            name = text(terms[0].get("name"))
            found = f"{shown(name)} has no driver of NVIDIA, and {pool.title} has GPUs: its nodes "
            found += "offer no nvidia.com/gpu"
            remedy = f"write alias: al2023@vYYYYMMDD, or the name {_NVIDIA}"
            path: Path = ("spec", "amiSelectorTerms", 0, "name")
            yield used, used.find(Code.KARPENTER, path, found, remedy)


def _has_operator(together: ManifestSet) -> bool:
    """Tell whether NVIDIA's operator, which may bring a driver, is among these objects."""
    return any(each.kind in {"ClusterPolicy", "NVIDIADriver"} for each in together.objects)
