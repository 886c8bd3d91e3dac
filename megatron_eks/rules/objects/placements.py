"""Rules over where pods are to run: demands that no node or zone meets together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.hardware import TYPE_LABELS, node_terms, takes_all_gpus
from megatron_eks.rules.objects.workload_set import chosen
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, text
from megatron_eks.rules.workloads import EFA, GPU, Manifest, Pod

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_ARCH, _HOST = "kubernetes.io/arch", "kubernetes.io/hostname"
_COMPUTE = "eks.amazonaws.com/compute-type"
# Labels by which nobody tells two pools of one type apart.
_OF_ANY_POOL = frozenset({_ZONE, _ARCH, "kubernetes.io/os", "nvidia.com/gpu.present", *TYPE_LABELS})
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class _Apart:
    """A demand that pods are in different places."""

    path: Path
    body: "Mapping[str, Json]"
    is_spread: bool

    @property
    def key(self) -> str | None:
        return text(self.body.get("topologyKey"))

    @property
    def selector(self) -> "Mapping[str, Json]":
        return mapping(self.body.get("labelSelector")) or {}


def contradictions(manifest: Manifest) -> Iterator[Finding]:
    """Refuse demands that no node meets at once: two types, a zone of another region.

    Kubernetes, "Assigning Pods to Nodes": a nodeSelector and the affinity must both be met; EKS
    User Guide, "AWS Fargate considerations": Fargate has no GPUs.
    """
    for pod in manifest.pods:
        terms = node_terms(pod)
        said = [_impossible(term) for term in terms]
        if terms and all(said):
            path = (*pod.path, "affinity" if "affinity" in pod.spec else "nodeSelector")
            found = f"no node is both: {said[0]}"
            yield Finding(Code.NODE_SELECTOR, path, found, "demand one of them")
        selector = mapping(pod.spec.get("nodeSelector")) or {}
        if selector.get(_COMPUTE) == "fargate" and (pod.names(GPU) or pod.names(EFA)):
            path = (*pod.path, "nodeSelector", _COMPUTE)
            found = "Fargate, which has neither GPUs nor EFA: the pod stays Pending"
            yield Finding(Code.NODE_SELECTOR, path, found, "run it on a node group")


def nodes_by_name(manifest: Manifest) -> Iterator[Finding]:
    """Warn of several pods with GPUs that are all put on one node, past the scheduler.

    Kubernetes, "Assign Pods to Nodes", nodeName: the kubelet refuses what it has no room for
    (OutOfnvidia.com/gpu), and nothing waits for it.
    """
    for pod in manifest.pods:
        name, count = text(pod.spec.get("nodeName")), pod.replicas or 1
        if name and count > 1 and pod.names(GPU) and not is_placeholder(name):
            found = f"{count} pods on this one node, past the scheduler: the kubelet refuses those "
            found += "for which it has no GPU"
            path = (*pod.path, "nodeName")
            remedy = "remove it, and choose nodes by nodeSelector"
            yield Finding(Code.NODE_SELECTOR, path, found, remedy, Level.WARNING)


def schedulers(manifest: Manifest) -> Iterator[Finding]:
    """Refuse the name of the program in the place of its profile.

    Kubernetes, "Configure Multiple Schedulers": the one of the cluster answers to
    default-scheduler, and a pod for another one that is not there stays Pending.
    """
    for pod in manifest.pods:
        if pod.spec.get("schedulerName") in {"default", "kube-scheduler"}:
            found = f"no scheduler answers to {pod.spec['schedulerName']!r}: the pod stays Pending"
            path = (*pod.path, "schedulerName")
            yield Finding(Code.NODE_SELECTOR, path, found, "write default-scheduler, or remove it")


def _impossible(term: "list[tuple[str, str, list[str]]]") -> str | None:
    """Say which two demands of one list exclude each other."""
    wanted: dict[str, set[str]] = {}
    for key, operator, values in term:
        if operator != "In" or any(is_placeholder(each) for each in values):
            continue
        name = TYPE_LABELS[0] if key in TYPE_LABELS else key
        if name in wanted and wanted[name].isdisjoint(values):
            one, other = (", ".join(sorted(each)) for each in (wanted[name], values))
            return f"{name} {one} and {other}"
        wanted[name] = wanted.get(name, set(values)) & set(values)
    zones, regions = wanted.get(_ZONE), wanted.get(_REGION)
    if zones and regions and not any(zone.startswith(each) for zone in zones for each in regions):
        return f"zone {min(zones)} and region {min(regions)}"
    types = wanted.get(TYPE_LABELS[0])
    if types and types <= INSTANCES.keys() and wanted.get(_ARCH) == {"arm64"}:
        return f"{min(types)} and {_ARCH} arm64"
    return None


def spread_ranks(manifest: Manifest) -> Iterator[Finding]:
    """Warn of ranks that must run in different zones, and refuse whole nodes that are to be one.

    EC2 User Guide, "Elastic Fabric Adapter", limitations: EFA's traffic stays in one zone;
    Kubernetes, "Assigning Pods to Nodes", inter-pod affinity, "Pod Topology Spread Constraints".
    """
    several = sum(1 if pod.replicas is None else pod.replicas for pod in manifest.pods)
    for pod in manifest.pods if manifest.is_job and several > 1 else ():
        if not pod.names(EFA) and not pod.names(GPU):
            continue
        for apart in _apart(pod):
            # Without a selector no pod is counted.
            counted = not is_absent(apart.body.get("labelSelector"))
            if counted and apart.key == _ZONE and chosen(apart.selector, manifest, pod):
                yield from _over_zones(manifest, pod, apart)
        zones = _one_of(pod) if pod.names(EFA) else set()
        if len(zones) > 1 and not _kept_together(pod):
            path = (*pod.path, "affinity" if "affinity" in pod.spec else "nodeSelector")
            found = f"any of zones {', '.join(sorted(zones))}, and EFA reaches no other zone: "
            found += "ranks in two of them cannot meet by it"
            remedy = "name one zone, or require podAffinity by zone"
            yield Finding(Code.NODE_SELECTOR, path, found, remedy, Level.WARNING)
        for path, term in _terms(pod, "podAffinity"):
            whole = takes_all_gpus(pod)
            mine = chosen(mapping(term.get("labelSelector")) or {}, manifest, pod)
            if term.get("topologyKey") == _HOST and mine and whole and term.get("labelSelector"):
                found = "beside another rank on one node, and each takes all of its GPUs"
                yield Finding(Code.NODE_SELECTOR, path, found, "use the zone as topologyKey")


def _over_zones(manifest: Manifest, pod: Pod, apart: "_Apart") -> Iterator[Finding]:
    """Report ranks that are kept in different zones, where they are one job."""
    path, zones = apart.path, _zones(pod)
    if apart.is_spread:
        # Kubernetes, nodeAffinityPolicy: only zones that the pod allows are counted.
        if pod.names(EFA) and (len(zones) != 1 or apart.body.get("nodeAffinityPolicy") == "Ignore"):
            found = "spread evenly by zone, and EFA reaches no other zone: ranks cannot meet by it"
            remedy = f"remove it, or demand one zone: nodeSelector {_ZONE}"
            yield Finding(Code.NODE_SELECTOR, path, found, remedy, Level.WARNING)
        return
    there = [each for each in manifest.pods if _zones(each) and _zones(each) <= zones]
    count = sum(
        1 if each.replicas is None else each.replicas
        for each in there
        if chosen(apart.selector, manifest, each)
    )
    remedy = f"write topologyKey: {_HOST}"
    if count > len(zones) and apart.body.keys() <= {"labelSelector", "topologyKey"}:
        found = f"never two by zone, and {count} pods may be in {', '.join(sorted(zones))} alone: "
        found += f"{count - len(zones)} of them stay Pending"
        yield Finding(Code.NODE_SELECTOR, path, found, remedy)
    elif pod.names(EFA):
        found = "never two by zone, and EFA reaches no other zone: ranks cannot meet by it"
        remedy += ", and keep all ranks in one zone"
        yield Finding(Code.NODE_SELECTOR, path, found, remedy, Level.WARNING)


def _one_of(pod: Pod) -> set[str]:
    """Return the zones that a pod allows; none where another demand may choose among them."""
    demands = [key for term in node_terms(pod) for key, *_ in term]
    return _zones(pod) if all(key in _OF_ANY_POOL for key in demands) else set()


def _zones(pod: Pod) -> set[str]:
    """Return the zones that a pod allows; none where it allows any."""
    found: set[str] = set()
    for term in node_terms(pod):
        given = [set(values) for key, operator, values in term if (key, operator) == (_ZONE, "In")]
        if not given:
            return set()
        found |= set.intersection(*given)
    return set() if any(is_placeholder(each) for each in found) else found


def _kept_together(pod: Pod) -> bool:
    """Tell whether ranks are to be near each other, or a queue sees to that."""
    by_queue = any("topology" in key for key in pod.annotations)
    return by_queue or next(_terms(pod, "podAffinity"), None) is not None


def _apart(pod: Pod) -> "Iterator[_Apart]":
    for path, term in _terms(pod, "podAntiAffinity"):
        yield _Apart(path, term, is_spread=False)
    for index, value in enumerate(items(pod.spec.get("topologySpreadConstraints")) or []):
        body = mapping(value) or {}
        if body.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            path = (*pod.path, "topologySpreadConstraints", index)
            yield _Apart(path, body, is_spread=True)


def _terms(pod: Pod, kind: str) -> "Iterator[tuple[Path, dict[str, Json]]]":
    affinity = mapping((mapping(pod.spec.get("affinity")) or {}).get(kind)) or {}
    for index, value in enumerate(items(affinity.get(_REQUIRED)) or []):
        yield (*pod.path, "affinity", kind, _REQUIRED, index), dict(mapping(value) or {})
