"""Rule over the node labels of Kueue's flavors, and the nodes that pods demand."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.hardware import node_terms
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_QUEUE = "kueue.x-k8s.io/queue-name"


def contradicted(together: ManifestSet) -> Iterator[Found]:
    """Warn of a workload that demands other nodes than each flavor of a resource has.

    Kueue, "Resource Flavor", nodeLabels: a flavor is taken only for pods whose nodeSelector and
    node affinity its labels meet; without one the job stays suspended.
    """
    for job in together.objects:
        name = text(job.labels.get(_QUEUE))
        local = together.named(job, "LocalQueue", name) if name else None
        queue_name = text(local.spec.get("clusterQueue")) if local is not None else None
        queue = together.named(job, "ClusterQueue", queue_name) if queue_name else None
        for pod in job.pods if queue is not None else ():
            found = next(_groups(queue, pod, together), None)
            if found is not None:
                path = (*pod.path[1:], "nodeSelector")
                remedy = "demand the flavor's nodes, or correct its nodeLabels"
                yield job, job.find(Code.QUEUE, path, found, remedy, Level.WARNING)
                break


def _groups(queue: Manifest | None, pod: Pod, together: ManifestSet) -> Iterator[str]:
    """Say of each resource group that a pod needs what keeps it from all of its flavors."""
    known = {each.name: each for each in together.of("ResourceFlavor")}
    for value in items(queue.spec.get("resourceGroups")) or [] if queue is not None else ():
        group = mapping(value) or {}
        covered = [str(each) for each in items(group.get("coveredResources")) or []]
        listed = [mapping(each) or {} for each in items(group.get("flavors")) or []]
        flavors = [known.get(text(each.get("name"))) for each in listed]
        if not any(pod.names(each) for each in covered) or not flavors or None in flavors:
            continue
        kept = [_other(each, pod) for each in flavors if each is not None]
        if all(kept) and kept[0] is not None:
            yield f"{kept[0]}: the job stays suspended"


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
