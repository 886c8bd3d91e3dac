"""Rule over Volcano: queues, and what a group of pods needs at once."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_SCHEDULING, _BATCH = "scheduling.volcano.sh", "batch.volcano.sh"
_GIVEN = ("default", "root")


def groups(together: ManifestSet) -> Iterator[Found]:
    """Warn of a group of pods whose queue is not there, or may never have what it needs at once.

    Volcano, "Queue", capability, and "PodGroup", minResources: a group that does not fit stays
    Pending, or Inqueue, for ever.
    """
    queues = {each.name: each for each in together.of("Queue") if each.group == _SCHEDULING}
    for each in together.of("PodGroup", "Job"):
        if each.group not in {_SCHEDULING, _BATCH}:
            continue
        name = text(each.spec.get("queue"))
        if name is None or not queues or is_placeholder(name):
            continue
        queue = queues.get(name)
        if queue is None and name not in _GIVEN:
            found, remedy = (
                f"no Queue {shown(name)}",
                f"there: {', '.join(sorted(map(str, queues)))}",
            )
            yield each, each.find(Code.QUEUE, ("spec", "queue"), found, remedy, Level.WARNING)
        elif queue is not None:
            capability = mapping(queue.spec.get("capability")) or {}
            for resource, amount in (mapping(each.spec.get("minResources")) or {}).items():
                most, needed = quantity(capability.get(resource)), quantity(amount)
                if most is not None and needed is not None and needed > most:
                    found = f"{shown(amount)} of {resource} at once, and {queue.title} may have "
                    found += f"{shown(capability[resource])}: it never starts"
                    path = ("spec", "minResources", resource)
                    remedy = "raise the capability of the queue, or ask for less"
                    yield each, each.find(Code.QUEUE, path, found, remedy, Level.WARNING)


def amounts(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a queue that is promised more than it may have.

    Volcano, "Queue", guarantee, deserved and capability: its webhook refuses it.
    """
    if (manifest.group, manifest.kind) == (_SCHEDULING, "Queue"):
        capability = mapping(manifest.spec.get("capability")) or {}
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
