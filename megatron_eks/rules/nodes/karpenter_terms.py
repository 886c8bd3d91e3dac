"""Rules over the parts of Karpenter's objects: selector terms, disks, requirements and limits."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_CLASS, _POOL = ("karpenter.k8s.aws", "EC2NodeClass"), ("karpenter.sh", "NodePool")
# aws/karpenter-provider-aws, pkg/apis/v1/ec2nodeclass.go: what a term has; first what selects, and
# then what only narrows it.
_TERMS = {
    "amiSelectorTerms": (("alias", "id", "name", "ssmParameter", "tags"), ("owner",)),
    "capacityReservationSelectorTerms": (("id", "instanceMatchCriteria", "tags"), ("ownerID",)),
    "securityGroupSelectorTerms": (("id", "name", "tags"), ()),
    "subnetSelectorTerms": (("id", "tags"), ()),
}
_ALONE = {
    "amiSelectorTerms": ("id",),
    "capacityReservationSelectorTerms": ("id",),
    "securityGroupSelectorTerms": ("id", "name"),
    "subnetSelectorTerms": ("id",),
}
_BEFORE = {
    "amiSelector": "amiSelectorTerms",
    "securityGroupSelector": "securityGroupSelectorTerms",
    "subnetSelector": "subnetSelectorTerms",
}
# The same file, BlockDevice.VolumeSize: Gi, G, Ti or T, and no other unit.
_SIZE = re.compile(r"[0-9]+(Gi?|Ti?)")
_CLOSE = 0.6
# The same file, on tags.
_TAGS = (
    *("eks:eks-cluster-name", "karpenter.k8s.aws/ec2nodeclass", "karpenter.sh/nodeclaim"),
    "karpenter.sh/nodepool",
)


def classes(manifest: Manifest) -> Iterator[Finding]:
    """Require of a class terms that select, and sizes with their unit.

    aws/karpenter-provider-aws, pkg/apis/v1/ec2nodeclass.go: the rules of each list of terms, and
    the pattern of volumeSize; the API server refuses the object otherwise.
    """
    if (manifest.group, manifest.kind) != _CLASS:
        return
    for key in _TERMS:
        for index, value in enumerate(items(manifest.spec.get(key)) or []):
            yield from _term(manifest, key, index, mapping(value))
    for old, new in _BEFORE.items():
        if not is_absent(manifest.spec.get(old)):
            yield _refused(manifest, ("spec", old), f"{old} of v1alpha5", f"write {new}, a list")
    yield from _disks(manifest)
    yield from _marks(manifest)


def pools(manifest: Manifest) -> Iterator[Finding]:
    """Require of a pool the group of its class, lists of values, and limits in one level.

    kubernetes-sigs/karpenter, pkg/apis/v1/nodeclaim.go and nodepool.go (pull request 1516 on the
    group); Karpenter, "v1beta1 Migration": limits.resources was that of a Provisioner.
    """
    if (manifest.group, manifest.kind) != _POOL:
        return
    template = mapping(manifest.spec.get("template")) or {}
    spec = mapping(template.get("spec")) or {}
    place: Path = ("spec", "template", "spec")
    group = text((mapping(spec.get("nodeClassRef")) or {}).get("group")) or ""
    if "/" in group and not is_placeholder(group):
        remedy = f"write {group.partition('/')[0]}"
        path = (*place, "nodeClassRef", "group")
        yield _refused(
            manifest, path, f"{shown(group)} has a version, and a group has none", remedy
        )
    for index, value in enumerate(items(spec.get("requirements")) or []):
        said = (mapping(value) or {}).get("values")
        if isinstance(said, str | int | float) and not is_placeholder(str(said)):
            path = (*place, "requirements", index, "values")
            remedy = f'write ["{said}"]'
            yield _refused(manifest, path, f"{shown(said)}, and values are a list", remedy)
    limits = mapping(manifest.spec.get("limits")) or {}
    if isinstance(limits.get("resources"), dict):
        path = ("spec", "limits", "resources")
        found = "limits.resources of a Provisioner"
        yield _refused(manifest, path, found, "write what is in it under spec.limits itself")


def _disks(manifest: Manifest) -> Iterator[Finding]:
    for index, value in enumerate(items(manifest.spec.get("blockDeviceMappings")) or []):
        disk = mapping((mapping(value) or {}).get("ebs")) or {}
        said = disk.get("volumeSize")
        plain = is_absent(said) or (isinstance(said, str) and is_placeholder(said))
        if not plain and not (isinstance(said, str) and _SIZE.fullmatch(said)):
            path = ("spec", "blockDeviceMappings", index, "ebs", "volumeSize")
            number = re.match(r"[0-9]+", str(said))
            remedy = f"write {number[0] if number else 200}Gi"
            yield _refused(manifest, path, f"{shown(said)}, and sizes are in Gi or Ti", remedy)


def _marks(manifest: Manifest) -> Iterator[Finding]:
    """Find tags that Karpenter writes itself, and metadata without a token."""
    for tag in mapping(manifest.spec.get("tags")) or {}:
        if tag in _TAGS or tag.startswith("kubernetes.io/cluster"):
            found = f"the tag {shown(tag)}, which Karpenter writes itself"
            yield _refused(manifest, ("spec", "tags", tag), found, "remove it")
    options = mapping(manifest.spec.get("metadataOptions")) or {}
    if options.get("httpTokens") == "optional":
        found = "session tokens are optional: whatever reaches the metadata gets the node's role"
        path = ("spec", "metadataOptions", "httpTokens")
        yield manifest.find(Code.KARPENTER, path, found, "write required", Level.WARNING)


def _refused(manifest: Manifest, path: Path, found: str, remedy: str) -> Finding:
    return manifest.find(Code.KARPENTER, path, f"{found}: Karpenter's API refuses it", remedy)


def _term(
    manifest: Manifest, key: str, index: int, term: "dict[str, Json] | None"
) -> Iterator[Finding]:
    selecting, narrowing = _TERMS[key]
    path: Path = ("spec", key, index)
    if term is None or any(is_placeholder(each) for each in term):
        return
    for each in term:
        if each not in (*selecting, *narrowing):
            close = get_close_matches(each, (*selecting, *narrowing), 1, _CLOSE)
            remedy = f"did you mean {close[0]}?" if close else f"write {' or '.join(selecting)}"
            yield _refused(manifest, (*path, each), f"a term has no {shown(each)}", remedy)
            return
    given = [each for each in term if not is_absent(term[each])]
    if not {*given} & {*selecting}:
        yield _refused(manifest, path, "a term that selects nothing", f"add {selecting[0]}")
    alone = next((each for each in _ALONE[key] if each in given and len(given) > 1), None)
    # Beside others the API server lets such a term of networks and reservations pass.
    strict = key == "amiSelectorTerms" or len(items(manifest.spec.get(key)) or []) == 1
    if alone is not None and strict:
        others = ", ".join(each for each in given if each != alone)
        found = f"{alone} beside {others}"
        yield _refused(manifest, path, found, "write terms of their own: each of them selects")
