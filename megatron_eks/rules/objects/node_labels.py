"""Rules over what pods demand of nodes by well-known labels: values that no node ever has."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.hardware import TYPE_LABELS
from megatron_eks.rules.node_groups import TYPE_NAME
from megatron_eks.rules.objects import karpenter_values
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_FAMILIES = {name.partition(".")[0] for name in INSTANCES}
_REGION = r"[a-z]{2}(-[a-z]+)+-[0-9]"
# Availability, Local and Wavelength Zones; a zone's id has no place here.
_ZONE = re.compile(rf"{_REGION}([a-z]|-[a-z0-9]+-[0-9][a-z])")
_WORDS = {
    "kubernetes.io/arch": ("amd64", "arm64"),
    "kubernetes.io/os": ("linux", "windows"),
    "karpenter.sh/capacity-type": ("on-demand", "reserved", "spot"),
    "eks.amazonaws.com/capacityType": ("CAPACITY_BLOCK", "ON_DEMAND", "SPOT"),
    "nvidia.com/gpu.present": ("true",),
}
_FORMS = {
    "topology.kubernetes.io/zone": (_ZONE, "zone", "us-west-2a"),
    "topology.kubernetes.io/region": (re.compile(_REGION), "region", "us-west-2"),
    "topology.k8s.aws/zone-id": (
        re.compile(r"[a-z]{2,}[0-9]?-[a-z0-9-]*az[0-9]"),
        "id of a zone",
        "usw2-az1",
    ),
}
# What nodes have, by the last part of the key; people write it below another domain.
_LAST = {
    "instance-type": TYPE_LABELS[0],
    "zone": "topology.kubernetes.io/zone",
    "availability-zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
    "arch": "kubernetes.io/arch",
    "host": "kubernetes.io/hostname",
    "hostname": "kubernetes.io/hostname",
    "nodegroup": "eks.amazonaws.com/nodegroup",
    "capacity-type": "karpenter.sh/capacity-type",
    "capacityType": "eks.amazonaws.com/capacityType",
}
_BARE = ("instance-type", "instanceType")
# Karpenter, "v1beta1 Migration": labels of v1alpha5, which no release after 0.32 gives to nodes.
_OF_OLD_KARPENTER = {"karpenter.sh/provisioner-name": "karpenter.sh/nodepool"}
_OLD = ("beta.kubernetes.io/", "failure-domain.beta.kubernetes.io/", "alpha.eksctl.io/")
# Nobody but Kubernetes sets labels of nodes in these.
_RESERVED = re.compile(
    r"(node\.|topology\.)?(kubernetes|k8s)\.io/[^/]+|(node|topology)\.k8s\.aws/.+"
)

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Wanted = tuple[Path, str, list[str]]

OPEN = "node.kubernetes.io/"
"""The one reserved domain in which the kubelet and Karpenter let people make their own."""


def node_labels(manifest: Manifest) -> Iterator[Finding]:
    """Require values of well-known labels that nodes on EC2 can have, and keys that exist.

    Kubernetes, "Well-Known Labels, Annotations and Taints"; EC2 User Guide, "Instance type naming
    conventions": no node has the label, and the pods wait.
    """
    for pod in _choosers(manifest):
        for path, key, values in pod:
            wrong = [(each, said) for each in values if (said := _wrong(key, each))]
            # Of several one may be there, and a preference keeps nothing from running.
            free = len(wrong) < len(values) or _PREFERRED in path
            for value, (what, remedy) in wrong[:1]:
                found, level = f"{shown(value)} is {what}", Level.WARNING if free else Level.ERROR
                yield Finding(Code.WRONG_VALUE, path, found, remedy, level)
            # Who keeps away from such nodes has no value for it.
            if key in _OF_OLD_KARPENTER and values:
                found = f"no node of Karpenter since 0.33 has the label {shown(key)}, of v1alpha5"
                remedy = f"write {_OF_OLD_KARPENTER[key]}, with the name of a NodePool"
                yield Finding(Code.WRONG_VALUE, path, found, remedy, Level.WARNING)
            meant = meant_label(key)
            if meant is None and key in _BARE and all(each in INSTANCES for each in values):
                found = f"no node has the label {shown(key)}, unless its group gives it one"
                remedy = f"write {TYPE_LABELS[0]}"
                yield Finding(Code.WRONG_VALUE, path, found, remedy, Level.WARNING)
            if meant is not None:
                free = key.startswith(OPEN)
                found = f"no node has the label {shown(key)}"
                found += ", unless a pool gives it one" if free else ""
                level = Level.WARNING if free else Level.ERROR
                yield Finding(Code.WRONG_VALUE, path, found, f"write {meant}", level)


def meant_label(key: str) -> str | None:
    """Return the label that nodes have, for one that Kubernetes alone may give and never does."""
    meant = _LAST.get(key.rpartition("/")[2])
    known = key in {*_WORDS, *_FORMS, *_LAST.values()} or key.startswith(_OLD)
    return meant if not known and _RESERVED.fullmatch(key) else None


def _choosers(manifest: Manifest) -> "Iterator[Iterator[Wanted]]":
    """Return what each pod demands of nodes, and what Karpenter is to start."""
    yield from (wanted(pod) for pod in manifest.pods)
    if (manifest.group, manifest.kind) == ("karpenter.sh", "NodePool"):
        template = mapping(manifest.spec.get("template")) or {}
        spec: Path = (manifest.title, "spec", "template", "spec")
        yield _expressions(spec, mapping(template.get("spec")) or {}, "requirements")


def wanted(pod: Pod) -> Iterator[Wanted]:
    """Return every label that a pod demands or prefers of nodes, with its place and values."""
    selector = mapping(pod.spec.get("nodeSelector")) or {}
    for key, value in selector.items():
        name = text(value)
        yield (*pod.path, "nodeSelector", key), key, [] if name is None else [name]
    affinity = mapping((mapping(pod.spec.get("affinity")) or {}).get("nodeAffinity")) or {}
    outer: Path = (*pod.path, "affinity", "nodeAffinity")
    required = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution")) or {}
    for index, value in enumerate(items(required.get("nodeSelectorTerms")) or []):
        place = (*outer, "requiredDuringSchedulingIgnoredDuringExecution")
        yield from _expressions((*place, "nodeSelectorTerms", index), mapping(value) or {})
    for index, value in enumerate(items(affinity.get(_PREFERRED)) or []):
        body = mapping((mapping(value) or {}).get("preference")) or {}
        yield from _expressions((*outer, _PREFERRED, index, "preference"), body)


def _expressions(
    path: Path, term: "dict[str, Json]", part: str = "matchExpressions"
) -> Iterator[Wanted]:
    for index, value in enumerate(items(term.get(part)) or []):
        body = mapping(value) or {}
        key, operator = text(body.get("key")), text(body.get("operator"))
        values = [name for each in items(body.get("values")) or [] if (name := text(each))]
        if key is not None:
            listed = values if operator in {"In", "NotIn"} else []
            yield (*path, part, index, "values"), key, listed


def _wrong(key: str, value: str) -> tuple[str, str] | None:
    """Say what a value is not, and how it is written."""
    if is_placeholder(value):
        return None
    if key in TYPE_LABELS:
        return _no_type(value.removeprefix("ml."))
    if key in _WORDS and value not in _WORDS[key]:
        there = ", ".join(_WORDS[key])
        return f"no value that {key} ever has", f"write {there}"
    if key in _FORMS:
        form, what, example = _FORMS[key]
        return None if form.fullmatch(value) else (f"no {what}", f"write it like {example}")
    return karpenter_values.wrong(key, value)


def _no_type(name: str) -> tuple[str, str] | None:
    if not TYPE_NAME.fullmatch(name):
        plain = {each.replace(".", ""): each for each in INSTANCES}
        bare = re.sub(r"[^a-z0-9-]", "", name.lower())
        meant = plain.get(bare) or plain.get(re.sub(r"xl(g|arg|rge)?$", "xlarge", bare))
        return "no instance type", f"write {meant}" if meant else "write it like p4d.24xlarge"
    family = name.partition(".")[0]
    if family in _FAMILIES and name not in INSTANCES:
        sizes = [each for each in INSTANCES if each.partition(".")[0] == family]
        return f"no instance type: {family} has no such size", f"write {' or '.join(sizes)}"
    return None
