"""Rule over keys by which pods are placed together or apart: labels that no node has."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.objects.node_labels import OPEN, meant_label
from megatron_eks.rules.values import items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_EXCLUSIVE = re.compile(
    r"(alpha\.jobset\.sigs\.k8s\.io|leaderworkerset\.sigs\.k8s\.io|kueue\.x-k8s\.io)"
    r"/((subgroup-)?exclusive-topology|podset-(required|preferred)-topology)"
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def labels(manifest: Manifest) -> Iterator[Finding]:
    """Require of a topology key a label that nodes have.

    Kubernetes, "Assigning Pods to Nodes" and "Pod Topology Spread Constraints": a node without the
    label takes no such pod; kubernetes-sigs/jobset and lws, exclusive-topology, are affinities too.
    """
    notes = mapping((mapping(manifest.body.get("metadata")) or {}).get("annotations")) or {}
    places: list[tuple[Path, str | None]] = [
        ((manifest.title, "metadata", "annotations", key), text(value))
        for key, value in notes.items()
    ]
    places += [
        ((*pod.path[:-1], "metadata", "annotations", key), text(value))
        for pod in manifest.pods
        for key, value in pod.annotations.items()
    ]
    places = [each for each in places if _EXCLUSIVE.fullmatch(str(each[0][-1]))]
    for path, key in [*places, *(each for pod in manifest.pods for each in _of(pod))]:
        meant = meant_label(key) if key is not None else None
        if meant is not None:
            found = f"no node has the label {shown(key)}"
            free = _PREFERRED in path or "preferred" in str(path[-1]) or str(key).startswith(OPEN)
            level = Level.WARNING if free else Level.ERROR
            yield Finding(Code.WRONG_VALUE, path, found, f"write {meant}", level)


def _of(pod: Pod) -> Iterator[tuple[Path, str | None]]:
    for index, value in enumerate(items(pod.spec.get("topologySpreadConstraints")) or []):
        spread = (*pod.path, "topologySpreadConstraints", index, "topologyKey")
        yield spread, text((mapping(value) or {}).get("topologyKey"))
    affinity = mapping(pod.spec.get("affinity")) or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        body = mapping(affinity.get(kind)) or {}
        for how, inner in ((_REQUIRED, ()), (_PREFERRED, ("podAffinityTerm",))):
            for index, value in enumerate(items(body.get(how)) or []):
                term = mapping(value) or {}
                for part in inner:
                    term = mapping(term.get(part)) or {}
                place = (*pod.path, "affinity", kind, how, index, *inner, "topologyKey")
                yield place, text(term.get("topologyKey"))
