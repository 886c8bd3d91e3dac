"""Rules over labels by which ranks choose nodes and one another, and that cannot be met."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.hardware import TYPE_LABELS, node_terms
from megatron_eks.rules.objects.pod_selection import labels_of
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Manifest, Pod

# NVIDIA's GPU feature discovery, and Karpenter's well-known labels.
_PRODUCTS = frozenset({"nvidia.com/gpu.product", "karpenter.k8s.aws/instance-gpu-name"})
_MODEL = re.compile(r"(?<![a-z0-9])(a100|h100|h200|b200|b300|a10g|l40s|l4|t4)(?![0-9a-z])")
_ALIKE = 0.8
_HOW = (
    ("requiredDuringSchedulingIgnoredDuringExecution", False),
    ("preferredDuringSchedulingIgnoredDuringExecution", True),
)


def products(manifest: Manifest) -> Iterator[Finding]:
    """Refuse more devices than any node with the GPU that a pod demands has.

    NVIDIA, "GPU Feature Discovery", nvidia.com/gpu.product; Karpenter, well-known labels; EC2 User
    Guide, "Elastic Fabric Adapter", supported instance types.
    """
    for pod in manifest.pods:
        terms = node_terms(pod)
        by_type = any(key in TYPE_LABELS for term in terms for key, *_ in term)
        wanted = {
            match[1]
            for term in terms
            for key, operator, given in term
            for value in given
            if key in _PRODUCTS and operator == "In"
            if (match := _MODEL.search(value.lower().replace("-", " ")))
        }
        fitting = [each for each in INSTANCES.values() if _model(each.gpu.name) in wanted]
        if by_type or len(terms) != 1 or not fitting:
            continue
        for device, most in (
            (EFA, max(each.efa_interfaces for each in fitting)),
            (GPU, max(each.gpus for each in fitting)),
        ):
            asked = sum(int(one.amount(device) or 0) for one in pod.containers if not one.is_init)
            if asked > most:
                found = f"{asked} of {device}, and nodes with {', '.join(sorted(wanted)).upper()} "
                found += f"have at most {most}: the pod stays Pending"
                remedy = f"ask for {most}, or demand another GPU"
                path = (*pod.path, "containers")
                yield Finding(Code.NODE_ROOM, path, found, remedy)


def _model(name: str) -> str:
    match = _MODEL.search(name.lower().replace("-", " "))
    return match[1] if match else ""


def of_its_own(manifest: Manifest) -> Iterator[Finding]:
    """Warn of ranks that are to be apart from, or beside, pods that are called nearly as they are.

    Kubernetes, "Assigning Pods to Nodes", inter-pod affinity, and "Pod Topology Spread
    Constraints": a selector that takes none of them places nothing.
    """
    for pod in manifest.pods if manifest.is_job else ():
        labels = {**pod.labels, **labels_of(manifest, pod)}
        for path, selector in _selectors(pod):
            for key, value in (mapping(selector.get("matchLabels")) or {}).items():
                own, given = text(labels.get(key)), text(value)
                if not own or not given or own == given or is_placeholder(f"{own}{given}"):
                    continue
                if SequenceMatcher(None, own, given).ratio() >= _ALIKE and not _numbered(
                    own, given
                ):
                    found = f"{key} {shown(given)}, and its own pods have {shown(own)}: it places "
                    found += "none of them"
                    place = (*path, "labelSelector", "matchLabels", key)
                    code = Code.SELECTS_NOTHING
                    yield Finding(code, place, found, f"write {own}", Level.WARNING)


def _numbered(one: str, other: str) -> bool:
    """Tell whether two names differ by a number or a role alone, as those of two jobs do."""
    return re.sub(r"[0-9]+|master|worker", "", one) == re.sub(
        r"[0-9]+|master|worker", "", other
    ) and (one.replace("-", "") != other.replace("-", ""))


def _selectors(pod: Pod) -> "Iterator[tuple[Path, dict[str, Json]]]":
    for index, value in enumerate(items(pod.spec.get("topologySpreadConstraints")) or []):
        body = mapping(value) or {}
        place: Path = (*pod.path, "topologySpreadConstraints", index)
        yield place, dict(mapping(body.get("labelSelector")) or {})
    affinity = mapping(pod.spec.get("affinity")) or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        body = mapping(affinity.get(kind)) or {}
        for how, weighed in _HOW:
            for index, value in enumerate(items(body.get(how)) or []):
                term = mapping(value) or {}
                inner = ("podAffinityTerm",) if weighed else ()
                term = (mapping(term.get("podAffinityTerm")) or {}) if weighed else term
                place = (*pod.path, "affinity", kind, how, index, *inner)
                yield place, dict(mapping(term.get("labelSelector")) or {})
