"""Rules over the flavors of a workload's queue, and the nodes that its pods demand or keep from."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.hardware import node_terms
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.node_pools import Taint, tolerates
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_QUEUE = "kueue.x-k8s.io/queue-name"
_OF_OTHERS = {
    "labels": "nodeLabels",
    "nodeSelector": "nodeLabels",
    "taints": "nodeTaints",
    "topology": "topologyName",
}
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_HOSTNAME = "kubernetes.io/hostname"
_DEMANDS = tuple(f"kueue.x-k8s.io/podset-{each}-topology" for each in ("required", "preferred"))


def contradicted(together: ManifestSet) -> Iterator[Found]:
    """Refuse a workload that demands other nodes than each flavor of a resource has.

    Kueue, "Resource Flavor", nodeLabels: a flavor is taken only for pods whose nodeSelector and
    node affinity its labels meet; without one the job stays suspended.
    """
    for job, queue in _queued(together):
        for pod in job.pods:
            kept = (
                [_other(each, pod) for each in flavors]
                for flavors in _choices(queue, pod, together)
            )
            other = next((each[0] for each in kept if all(each)), None)
            if other is not None:
                found = f"{other}: the job stays suspended"
                path = (*pod.path[1:], "nodeSelector")
                remedy = "demand the flavor's nodes, or correct its nodeLabels"
                yield job, job.find(Code.QUEUE, path, found, remedy)
                break


def priorities(manifest: Manifest) -> Iterator[Finding]:
    """Require of a priority of Kueue's own a number.

    Kueue, API reference, WorkloadPriorityClass: value is an int32.
    """
    value = manifest.body.get("value")
    if manifest.kind != "WorkloadPriorityClass" or isinstance(value, int | float):
        return
    if isinstance(value, str) and not is_placeholder(value):
        found = f"{shown(value)} is no number: the API server refuses the class"
        yield manifest.find(Code.MANIFEST_VALUE, ("value",), found, "write it without quotes")


def fields(manifest: Manifest) -> Iterator[Finding]:
    """Refuse in a flavor the fields that say the same of a pod or of a node.

    Kueue, API reference, ResourceFlavorSpec: nodeLabels, nodeTaints, tolerations, topologyName; the
    API server refuses another field, or drops it, and the flavor takes any node.
    """
    if (manifest.group, manifest.kind) != ("kueue.x-k8s.io", "ResourceFlavor"):
        return
    for key, meant in _OF_OTHERS.items():
        if not is_absent(manifest.spec.get(key)):
            found = f"a ResourceFlavor has no field {key}: it is refused, or nobody reads it"
            yield manifest.find(Code.QUEUE, ("spec", key), found, f"write {meant}")


def levels(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a topology whose levels Kueue does not take.

    Kueue, apis/kueue/v1beta1/topology_types.go, XValidation: "must be unique", and "the
    kubernetes.io/hostname label can only be used at the lowest level of topology".
    """
    if (manifest.group, manifest.kind) != ("kueue.x-k8s.io", "Topology"):
        return
    labels = _levels(manifest)
    for index, label in enumerate(labels):
        path = ("spec", "levels", index, "nodeLabel")
        if label is not None and label in labels[:index]:
            found = f"{label} is a level already: the API server refuses the topology"
            yield manifest.find(Code.QUEUE, path, found, "name each level once")
        elif label == _HOSTNAME and index + 1 < len(labels):
            found = f"{label} is above other levels: the API server refuses the topology"
            yield manifest.find(Code.QUEUE, path, found, "write it as the last level")


def _levels(topology: Manifest) -> list[str | None]:
    listed = items(topology.spec.get("levels")) or []
    return [text((mapping(each) or {}).get("nodeLabel")) for each in listed]


def unknown_levels(together: ManifestSet) -> Iterator[Found]:
    """Warn of pods that ask for one place in a level that no topology of their queue has.

    Kueue, "Topology Aware Scheduling", podset-required-topology: the value is the label of a level
    of the flavor's Topology; with another one the job is not admitted.
    """
    known = {each.name: _levels(each) for each in together.of("Topology")}
    for job, queue in _queued(together):
        names = {
            text(flavor.spec.get("topologyName"))
            for pod in job.pods[:1]
            for flavors in _choices(queue, pod, together)
            for flavor in flavors
        }
        there = [label for name in names for label in known.get(name, [None])]
        for pod in job.pods if names and there and None not in there else ():
            for key in _DEMANDS:
                said = text(pod.annotations.get(key))
                if said is not None and said not in there and not is_placeholder(said):
                    found = f"{shown(said)} is no level of {queue.title}'s topology: the job is "
                    found += "never admitted"
                    path = (*pod.path[1:-1], "metadata", "annotations", key)
                    remedy = f"write one of {', '.join(sorted(filter(None, there)))}"
                    yield job, job.find(Code.QUEUE, path, found, remedy, Level.WARNING)


def untolerated(together: ManifestSet) -> Iterator[Found]:
    """Refuse a workload that tolerates no flavor of a resource that it asks for.

    Kueue, "Resource Flavor", nodeTaints: a flavor is left out for pods that do not tolerate its
    taints, by themselves or by the flavor's tolerations; without one the job stays suspended.
    """
    for job, queue in _queued(together):
        for pod in job.pods:
            kept = (
                (flavors[0], [_away(each, pod) for each in flavors])
                for flavors in _choices(queue, pod, together)
            )
            flavor, taint = next(
                ((first, taints[0]) for first, taints in kept if all(taints)), (None, None)
            )
            if flavor is not None and taint is not None:
                found = f"{flavor.title} has the taint {taint}: the job is never admitted"
                path = (*pod.path[1:], "tolerations")
                remedy = f"tolerate {taint.key} with effect {taint.effect}, here or in the flavor"
                yield job, job.find(Code.QUEUE, path, found, remedy)
                break


def _queued(together: ManifestSet) -> Iterator[tuple[Manifest, Manifest]]:
    """Return the workloads that name a queue, each with the ClusterQueue behind it."""
    for job in together.objects:
        name = text(job.labels.get(_QUEUE))
        local = together.named(job, "LocalQueue", name) if name else None
        queue_name = text(local.spec.get("clusterQueue")) if local is not None else None
        queue = together.named(job, "ClusterQueue", queue_name) if queue_name else None
        if queue is not None:
            yield job, queue


def _choices(queue: Manifest, pod: Pod, together: ManifestSet) -> Iterator[list[Manifest]]:
    """Return the flavors of each resource group that a pod needs, where all of them are known."""
    known = {each.name: each for each in together.of("ResourceFlavor")}
    for value in items(queue.spec.get("resourceGroups")) or []:
        group = mapping(value) or {}
        covered = [str(each) for each in items(group.get("coveredResources")) or []]
        listed = [mapping(each) or {} for each in items(group.get("flavors")) or []]
        there = [known.get(text(each.get("name"))) for each in listed]
        flavors = [each for each in there if each is not None]
        if flavors and len(flavors) == len(there) and any(pod.names(each) for each in covered):
            yield flavors


def _other(flavor: Manifest, pod: Pod) -> str | None:
    """Say which label of a flavor no way of a pod to its nodes allows."""
    labels = {
        key: said
        for key, each in (mapping(flavor.spec.get("nodeLabels")) or {}).items()
        if (said := text(each)) is not None
    }
    ways = [
        next(
            (
                f"{key} {shown(values[0])}, and {flavor.title} has {shown(labels[key])}"
                for key, operator, values in term
                if operator == "In" and values and key in labels and labels[key] not in values
                if not any(is_placeholder(each) for each in (labels[key], *values))
            ),
            None,
        )
        for term in node_terms(pod)
    ]
    return ways[0] if ways and all(ways) else None


def _away(flavor: Manifest, pod: Pod) -> Taint | None:
    given = [
        mapping(each) or {}
        for part in (pod.spec.get("tolerations"), flavor.spec.get("tolerations"))
        for each in items(part) or []
    ]
    for value in items(flavor.spec.get("nodeTaints")) or []:
        body = mapping(value) or {}
        key, effect = text(body.get("key")), text(body.get("effect"))
        if key is None or effect not in _KEEPS_AWAY:
            continue
        taint = Taint(key, text(body.get("value")) or "", effect)
        if not any(tolerates(each, taint) for each in given):
            return taint
    return None
