"""Rules over Karpenter's older kinds, and the taints and labels that its pools may give nodes."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_GONE = {
    ("karpenter.sh", "Provisioner"): "a NodePool of karpenter.sh/v1",
    ("karpenter.sh", "Machine"): "a NodeClaim of karpenter.sh/v1",
    ("karpenter.k8s.aws", "AWSNodeTemplate"): "an EC2NodeClass of karpenter.k8s.aws/v1",
}
# Served by no release since v1.1, of November 2024.
_OLD = {
    ("karpenter.sh/v1beta1", "NodePool"): "karpenter.sh/v1",
    ("karpenter.sh/v1beta1", "NodeClaim"): "karpenter.sh/v1",
    ("karpenter.k8s.aws/v1beta1", "EC2NodeClass"): "karpenter.k8s.aws/v1",
}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# kubernetes-sigs/karpenter, pkg/apis/v1/labels.go: what Karpenter itself gives each node.
_RESTRICTED = ("karpenter.sh/nodepool", "kubernetes.io/hostname")
# karpenter-provider-aws, pkg/apis/v1/labels.go: of these domains it takes what it knows alone.
_DOMAINS = frozenset({"karpenter.k8s.aws", "karpenter.sh", "node.kubernetes.io"})
_INSTANCE = (
    *("accelerator-count", "accelerator-manufacturer", "accelerator-name", "capability-flex"),
    *("category", "cpu", "cpu-manufacturer", "cpu-sustained-clock-speed-mhz", "ebs-bandwidth"),
    *("encryption-in-transit-supported", "family", "generation", "gpu-count", "gpu-manufacturer"),
    *("gpu-memory", "gpu-name", "hypervisor", "local-nvme", "memory", "network-bandwidth", "size"),
    "tenancy",
)
_WELL_KNOWN = (
    *(f"karpenter.k8s.aws/instance-{name}" for name in _INSTANCE),
    *("karpenter.k8s.aws/capacity-reservation-id", "karpenter.k8s.aws/capacity-reservation-type"),
    *("karpenter.k8s.aws/capacity-reservation-interruptible", "karpenter.k8s.aws/ec2nodeclass"),
    *("karpenter.sh/capacity-type", "karpenter.sh/nodepool", "node.kubernetes.io/instance-type"),
    *("node.kubernetes.io/windows-build", "topology.kubernetes.io/zone", "kubernetes.io/arch"),
    *("kubernetes.io/os", "topology.k8s.aws/zone-id"),
)
_CLOSE = 0.9
# kubernetes-sigs/karpenter, pkg/apis/v1/labels.go, LabelDomainExceptions.
_FREE = "node.kubernetes.io/"
_OWN, _ALLOWED = "karpenter.sh/", ("karpenter.sh/capacity-type",)
# kubernetes-sigs/karpenter, hack/validation/labels.sh, until pull request 2586, after v1.8.
_KUBERNETES = ("kubernetes.io", "k8s.io")
_EXCEPTED = ("node.kubernetes.io", "node-restriction.kubernetes.io", "kops.k8s.io")
_BETA = re.compile(r"(failure-domain\.)?beta\.kubernetes\.io/(instance-type|region|zone|os|arch)")
_REGION = "topology.kubernetes.io/region"


def gone(manifest: Manifest) -> Iterator[Finding]:
    """Refuse kinds that no Karpenter reads any more.

    Karpenter, "Upgrade Guide", "v1beta1 Migration" and "v1 Migration": v0.33 dropped the alpha API,
    and v1.1 dropped v1beta1.
    """
    version = text(manifest.body.get("apiVersion")) or ""
    newer = _OLD.get((version, manifest.kind or ""))
    if newer is not None:
        found = f"{version}, which Karpenter serves no more since v1.1: the object is refused"
        yield manifest.find(Code.KARPENTER, ("apiVersion",), found, f"write {newer}", Level.WARNING)
    instead = _GONE.get((manifest.group, manifest.kind))
    if instead is not None:
        found = f"Karpenter has no {manifest.kind} since v0.33: no node is started"
        yield manifest.find(Code.KARPENTER, ("kind",), found, f"write {instead}")


def node_marks(manifest: Manifest) -> Iterator[Finding]:
    """Require of a NodePool effects that Kubernetes has, and labels that are free.

    kubernetes-sigs/karpenter, pkg/apis/v1/nodepool.go: the API server refuses the pool otherwise.
    """
    if (manifest.group, manifest.kind) != ("karpenter.sh", "NodePool"):
        return
    template = mapping(manifest.spec.get("template")) or {}
    spec = mapping(template.get("spec")) or {}
    path: Path = ("spec", "template", "spec")
    for part in ("taints", "startupTaints"):
        for index, value in enumerate(items(spec.get(part)) or []):
            effect = text((mapping(value) or {}).get("effect"))
            if effect is not None and effect not in _EFFECTS and not is_placeholder(effect):
                found = f"no effect {shown(effect)}: Karpenter's API refuses it"
                place = (*path, part, index, "effect")
                yield manifest.find(Code.KARPENTER, place, found, f"use {', '.join(_EFFECTS)}")
    yield from _labels(manifest, template, spec)


def _labels(
    manifest: Manifest, template: "dict[str, Json]", spec: "dict[str, Json]"
) -> Iterator[Finding]:
    own = (mapping((mapping(template.get("metadata")) or {}).get("labels")) or {}).keys()
    for place, key in _keys(template, spec):
        meant = _misplaced(key)
        if meant is not None and key.startswith(_FREE):
            # Its API takes any label of this domain, which is then one of the pool's own.
            if key not in own:
                found = f"no instance type has a label {shown(key)}: the pool starts no node"
                yield manifest.find(Code.KARPENTER, place, found, f"write {meant}")
        elif meant is not None:
            found = f"Karpenter has no label {shown(key)}: its API refuses it"
            yield manifest.find(Code.KARPENTER, place, found, f"write {meant}")
        if key in _RESTRICTED or (key.startswith(_OWN) and key not in _ALLOWED):
            found = f"{key} is Karpenter's own: its API refuses it"
            yield manifest.find(Code.KARPENTER, place, found, "use a label of your own")
        elif meant is None:
            yield from _restricted(manifest, place, key)


def _restricted(manifest: Manifest, place: Path, key: str) -> Iterator[Finding]:
    """Find a label of Kubernetes' domains, which older releases of Karpenter do not take."""
    known = key in _WELL_KNOWN or key == _REGION or _BETA.fullmatch(key) or is_placeholder(key)
    domain = next((each for each in _KUBERNETES if key.partition("/")[0].endswith(each)), None)
    if not known and domain is not None and not key.partition("/")[0].endswith(_EXCEPTED):
        found = f"{key}, and Karpenter up to v1.8 restricts the domain {domain}: its API refuses "
        remedy = f"use a label of your own, or one of {_FREE}"
        yield manifest.find(Code.KARPENTER, place, f"{found}the pool", remedy, Level.WARNING)


def _misplaced(key: str) -> str | None:
    """Return the label that one of a domain of Karpenter's or AWS's was surely meant for."""
    domain, _, name = key.partition("/")
    if key in _WELL_KNOWN or domain not in _DOMAINS or is_placeholder(key):
        return None
    same = [each for each in _WELL_KNOWN if each.partition("/")[2] == name]
    close = same or get_close_matches(key, _WELL_KNOWN, 1, _CLOSE)
    return close[0] if close else None


def _keys(template: "dict[str, Json]", spec: "dict[str, Json]") -> Iterator[tuple[Path, str]]:
    labels = mapping((mapping(template.get("metadata")) or {}).get("labels")) or {}
    for key in labels:
        yield ("spec", "template", "metadata", "labels", key), key
    for index, value in enumerate(items(spec.get("requirements")) or []):
        named = text((mapping(value) or {}).get("key"))
        if named is not None:
            yield ("spec", "template", "spec", "requirements", index, "key"), named
