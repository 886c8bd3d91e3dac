"""Rule over Volcano: queues, and what a group of pods needs at once."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_absent, is_placeholder, mapping, number, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Manifest

_SCHEDULING, _BATCH = "scheduling.volcano.sh", "batch.volcano.sh"
_KUBEFLOW = "kubeflow.org"
_GIVEN = ("default", "root")
_OWN = ("cpu", "memory", "ephemeral-storage", "pods")
_MEANT = {
    **dict.fromkeys(("mem", "ram"), "memory"),
    **dict.fromkeys(("gpu", "gpus"), GPU),
    **dict.fromkeys(("efa", "efas"), EFA),
    **dict.fromkeys(("cpus", "vcpu", "vcpus"), "cpu"),
}


def groups(together: ManifestSet) -> Iterator[Found]:
    """Warn of a group of pods whose queue is not there, or may never have what it needs at once.

    Volcano, "Queue", capability, and "PodGroup", minResources, and issue 1331: a group that does
    not fit stays Pending, or Inqueue, for ever. kubeflow/trainer v1.9.4, schedulingPolicy: the
    operator makes the group of a job, of all its pods where minAvailable does not say otherwise.
    """
    queues = {each.name: each for each in together.of("Queue") if each.group == _SCHEDULING}
    for each in together.objects:
        gang, place = _gang(each)
        if gang is None:
            continue
        name = text(gang.get("queue"))
        if name is None or not queues or is_placeholder(name):
            continue
        queue = queues.get(name)
        if queue is None and name not in _GIVEN:
            found, remedy = (
                f"no Queue {shown(name)}",
                f"there: {', '.join(sorted(map(str, queues)))}",
            )
            yield each, each.find(Code.QUEUE, (*place, "queue"), found, remedy, Level.WARNING)
        elif queue is not None:
            capability = mapping(queue.spec.get("capability")) or {}
            least = mapping(gang.get("minResources"))
            path = (*place, "minResources") if least else (*place, "queue")
            for resource, amount in (least or _at_once(each, gang)).items():
                most, needed = quantity(capability.get(resource)), quantity(amount)
                if most is not None and needed is not None and needed > most:
                    found = f"{shown(amount)} of {resource} at once, and {queue.title} allows "
                    found += f"{shown(capability[resource])}: it never starts"
                    remedy = "raise the capability of the queue, or ask for less"
                    where = (*path, resource) if least else path
                    # Whether the training operator makes groups at all is said elsewhere.
                    level = Level.WARNING if each.group == _KUBEFLOW else Level.ERROR
                    yield each, each.find(Code.QUEUE, where, found, remedy, level)


def _gang(each: Manifest) -> "tuple[dict[str, Json] | None, Path]":
    """Return what of an object says how Volcano places it, and where that stands."""
    if each.group in {_SCHEDULING, _BATCH} and each.kind in {"PodGroup", "Job"}:
        return dict(each.spec), ("spec",)
    if each.group == _KUBEFLOW:
        policy = mapping(each.spec.get("runPolicy")) or {}
        return mapping(policy.get("schedulingPolicy")), ("spec", "runPolicy", "schedulingPolicy")
    return None, ()


def _at_once(each: Manifest, gang: "dict[str, Json]") -> "dict[str, Json]":
    """Return what all pods of a gang ask for, which it counts where it names no least amount."""
    counts = [pod.replicas for pod in each.pods]
    total = sum(many or 0 for many in counts)
    least = gang.get("minAvailable")
    if not counts or None in counts or not (is_absent(least) or number(least) == total):
        return {}
    plain = {
        resource: sum(
            container.requested(resource) * (pod.replicas or 0)
            for pod in each.pods
            for container in pod.containers
            if not container.is_init
        )
        for resource in ("cpu", "memory")
    }
    return {
        **({"cpu": f"{float(plain['cpu']):g}"} if plain["cpu"] else {}),
        **({"memory": f"{float(plain['memory'] / 2**30):g}Gi"} if plain["memory"] else {}),
    } | {
        device: amount
        for device in (GPU, EFA)
        if (
            amount := sum(
                int(container.amount(device) or 0) * (pod.replicas or 0)
                for pod in each.pods
                for container in pod.containers
                if not container.is_init
            )
        )
    }


def amounts(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a queue that is promised more than it may have, and warn of unknown resources.

    Volcano, "Queue", guarantee, deserved and capability: its webhook refuses it.
    """
    if (manifest.group, manifest.kind) == (_SCHEDULING, "Queue"):
        capability = mapping(manifest.spec.get("capability")) or {}
        for name in capability:
            # Kubernetes, "Resource Management for Pods and Containers": without a domain only its
            # own (volcano-sh/volcano, issue 4867).
            if "/" not in name and name not in _OWN and not name.startswith("hugepages-"):
                close = _MEANT.get(name.lower())
                found = f"no pod asks for {shown(name)}: the queue is not held to it"
                remedy = f"write {close}" if close else f"there: {', '.join(_OWN)}"
                path = ("spec", "capability", name)
                yield manifest.find(Code.QUEUE, path, found, remedy, Level.WARNING)
        guarantee = mapping((mapping(manifest.spec.get("guarantee")) or {}).get("resource"))
        for key, part in (
            ("guarantee", guarantee),
            ("deserved", mapping(manifest.spec.get("deserved"))),
        ):
            for resource, amount in (part or {}).items():
                yield from _above(manifest, key, resource, amount, capability.get(resource))


def _above(
    manifest: Manifest, key: str, resource: str, amount: Json, most: Json
) -> Iterator[Finding]:
    wanted, offered = quantity(amount), quantity(most)
    if wanted is not None and offered is not None and wanted > offered:
        found = f"{shown(amount)} of {resource}, and its capability is {shown(most)}: "
        found += "Volcano refuses it"
        path = ("spec", key)
        yield manifest.find(Code.QUEUE, path, found, "stay within the capability")
