"""Rules over the fields of Karpenter's classes and pools: their names, kinds and places."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_CLASS, _POOL = ("karpenter.k8s.aws", "EC2NodeClass"), ("karpenter.sh", "NodePool")
# aws/karpenter-provider-aws, pkg/apis/v1/ec2nodeclass.go; kubernetes-sigs/karpenter,
# pkg/apis/v1/nodepool.go and nodeclaim.go.
_OF_CLASSES = (
    *("amiFamily", "amiSelectorTerms", "associatePublicIPAddress", "blockDeviceMappings"),
    *("capacityReservationSelectorTerms", "context", "detailedMonitoring", "instanceProfile"),
    *("instanceStorePolicy", "kubelet", "metadataOptions", "networkInterfaces", "role"),
    *("placementGroupSelector", "securityGroupSelectorTerms", "subnetSelectorTerms", "tags"),
    "userData",
)
_OF_POOLS = ("disruption", "limits", "replicas", "template", "weight")
_OF_NODES = (
    *("expireAfter", "nodeClassRef", "requirements", "startupTaints", "taints"),
    "terminationGracePeriod",
)
# Fields that other objects have at that place, and where a NodePool has them.
_ELSEWHERE: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("template", "spec"), ("labels", "annotations"), "spec.template.metadata"),
    (("template", "spec"), _OF_POOLS, "spec"),
    (("template",), ("labels", "annotations"), "spec.template.metadata"),
    (("template",), _OF_NODES, "spec.template.spec"),
    ((), ("labels", "annotations"), "spec.template.metadata"),
    ((), _OF_NODES, "spec.template.spec"),
)
_NUMBERS = frozenset(
    {
        *("evictionMaxPodGracePeriod", "imageGCHighThresholdPercent"),
        *("imageGCLowThresholdPercent", "maxPods", "podsPerCore"),
    }
)
# KubeletConfiguration has them, and spec.kubelet does not.
_BY_USER_DATA = frozenset(
    {
        *("allowedUnsafeSysctls", "containerLogMaxFiles", "containerLogMaxSize"),
        *("cpuManagerPolicy", "featureGates", "maxParallelImagePulls", "memoryManagerPolicy"),
        *("registryBurst", "registryPullQPS", "serializeImagePulls", "shutdownGracePeriod"),
        *("shutdownGracePeriodCriticalPods", "topologyManagerPolicy", "topologyManagerScope"),
    }
)
_CLOSE = 0.85
_PRIMARY = (0, 0)


def fields(manifest: Manifest) -> Iterator[Finding]:
    """Refuse slips in the names of fields, and fields that the kubelet has and a class has not.

    kubectl, "--validate": strict by default, so an unknown field ends the command; without it the
    field is dropped unread. Karpenter, "NodeClasses", spec.kubelet: a part of the kubelet's own.
    """
    kind = (manifest.group, manifest.kind)
    if kind == _CLASS:
        yield from _slips(manifest, ("spec",), dict(manifest.spec), _OF_CLASSES)
        yield from _kubelet(manifest)
        yield from _interfaces(manifest)
    elif kind == _POOL:
        template = mapping(manifest.spec.get("template")) or {}
        spec = mapping(template.get("spec")) or {}
        yield from _slips(manifest, ("spec",), dict(manifest.spec), _OF_POOLS)
        yield from _slips(manifest, ("spec", "template", "spec"), spec, _OF_NODES)
        yield from _misplaced(manifest)


def _slips(
    manifest: Manifest, path: Path, given: "dict[str, Json]", known: tuple[str, ...]
) -> Iterator[Finding]:
    for key in given:
        close = get_close_matches(key, known, 1, _CLOSE) if key not in known else []
        if close and not is_placeholder(key):
            found = f"Karpenter has no field {shown(key)}: it is refused, or nobody reads it"
            remedy = f"did you mean {close[0]}?"
            yield manifest.find(Code.KARPENTER, (*path, key), found, remedy)


def _misplaced(manifest: Manifest) -> Iterator[Finding]:
    if text(manifest.body.get("apiVersion")) != "karpenter.sh/v1":
        return
    for inside, names, place in _ELSEWHERE:
        body = dict(manifest.spec)
        for key in inside:
            body = mapping(body.get(key)) or {}
        for name in names:
            if name in body:
                found = f"{'.'.join(('spec', *inside))} has no {name}: Karpenter's API refuses it, "
                found += "or drops it unread"
                path: Path = ("spec", *inside, name)
                yield manifest.find(Code.KARPENTER, path, found, f"write it under {place}")


def _kubelet(manifest: Manifest) -> Iterator[Finding]:
    for key, value in (mapping(manifest.spec.get("kubelet")) or {}).items():
        path: Path = ("spec", "kubelet", key)
        written = text(value)
        if key in _BY_USER_DATA:
            found = f"spec.kubelet has no {key}: Karpenter's API refuses it"
            remedy = f"write it in spec.userData, as spec.kubelet.config.{key} of a NodeConfig"
            yield manifest.find(Code.KARPENTER, path, found, remedy)
        elif key in _NUMBERS and isinstance(value, str) and not is_placeholder(written or ""):
            found = f"{shown(value)} is a text, and {key} a number: Karpenter's API refuses it"
            yield manifest.find(Code.KARPENTER, path, found, "write it without quotes")


def _interfaces(manifest: Manifest) -> Iterator[Finding]:
    """Require of the interfaces what EC2 does: one for IP first, and a place for each.

    EC2 User Guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network
    cards"; Karpenter, "NodeClasses", spec.networkInterfaces.
    """
    listed = [mapping(each) or {} for each in items(manifest.spec.get("networkInterfaces")) or []]
    taken: dict[tuple[int, int], int] = {}
    for index, body in enumerate(listed):
        place = (_index(body, "networkCardIndex"), _index(body, "deviceIndex"))
        path: Path = ("spec", "networkInterfaces", index)
        if place[0] is None or place[1] is None:
            return
        slot = (place[0], place[1])
        if slot in taken:
            found = f"card {slot[0]} device {slot[1]} is taken by interface {taken[slot]}: EC2 "
            found += "refuses every launch"
            yield manifest.find(Code.KARPENTER, path, found, "write the card that has none")
        taken.setdefault(slot, index)
        if slot == _PRIMARY and body.get("interfaceType") == "efa-only":
            found = "the first interface is efa-only, which takes no IP address: EC2 refuses every "
            found += "launch"
            remedy = "write interface there, and efa-only at deviceIndex: 1"
            yield manifest.find(Code.KARPENTER, (*path, "interfaceType"), found, remedy)
    if listed and _PRIMARY not in taken:
        found = "no interface on card 0 device 0, which every instance has: EC2 refuses it"
        remedy = "add networkCardIndex: 0, deviceIndex: 0, interfaceType: interface"
        yield manifest.find(Code.KARPENTER, ("spec", "networkInterfaces"), found, remedy)


def _index(body: "dict[str, Json]", key: str) -> int | None:
    return 0 if is_absent(body.get(key)) else number(body.get(key))
