"""Rule over the taints of Kueue's flavors, and the pods that are to run on their nodes."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.node_pools import Taint, tolerates
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import Manifest, Pod

_QUEUE = "kueue.x-k8s.io/queue-name"
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def untolerated(together: ManifestSet) -> Iterator[Found]:
    """Warn of a workload that tolerates no flavor of a resource that it asks for.

    Kueue, "Resource Flavor", nodeTaints: a flavor is left out for pods that do not tolerate its
    taints, by themselves or by the flavor's tolerations; without one the job stays suspended.
    """
    for job in together.objects:
        name = text(job.labels.get(_QUEUE))
        local = together.named(job, "LocalQueue", name) if name else None
        queue_name = text(local.spec.get("clusterQueue")) if local is not None else None
        queue = together.named(job, "ClusterQueue", queue_name) if queue_name else None
        for pod in job.pods if queue is not None else ():
            away = next((e for e in _groups(queue, pod, together) if e is not None), None)
            if away is not None:
                flavor, taint = away
                found = f"{flavor.title} has the taint {taint}: the job is never admitted"
                path = (*pod.path[1:], "tolerations")
                remedy = f"tolerate {taint.key} with effect {taint.effect}, here or in the flavor"
                yield job, job.find(Code.QUEUE, path, found, remedy, Level.WARNING)
                break


def _groups(
    queue: Manifest | None, pod: Pod, together: ManifestSet
) -> Iterator[tuple[Manifest, Taint] | None]:
    """Return of each resource group that a pod needs what keeps it from all of its flavors."""
    known = {each.name: each for each in together.of("ResourceFlavor")}
    for value in items(queue.spec.get("resourceGroups")) or [] if queue is not None else ():
        group = mapping(value) or {}
        covered = [str(each) for each in items(group.get("coveredResources")) or []]
        listed = [mapping(each) or {} for each in items(group.get("flavors")) or []]
        flavors = [known.get(text(each.get("name"))) for each in listed]
        if not any(pod.names(each) for each in covered) or not flavors or None in flavors:
            continue
        kept = [(each, _away(each, pod)) for each in flavors if each is not None]
        first, taint = kept[0]
        yield (first, taint) if taint is not None and all(each[1] for each in kept) else None


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
