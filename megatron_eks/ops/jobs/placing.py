"""Whether nodes that are there can keep groups of ranks together, and what to do where not."""

from collections import Counter
from collections.abc import Iterable

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WITH_PODS, templates
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.console import Console
from megatron_eks.ops.jobs import room
from megatron_eks.plan.cluster.pools import POOL_LABEL


def ease(client: Client, objects: Iterable[Object], console: Console) -> None:
    """Let groups be divided where the nodes leave no other way, and say so.

    Kueue knows such groups as a condition alone, and would let the job wait for ever.
    """
    for each in objects:
        for count, template in templates(each) if each["kind"] in WITH_PODS else ():
            notes = template["metadata"].get("annotations") or {}
            size = int(notes.get(kueue.SLICE_SIZE_ANNOTATION, 0))
            if not size:
                continue
            pool = template["spec"]["nodeSelector"][POOL_LABEL]
            nodes = client.list("v1", "Node", labels=f"{POOL_LABEL}={pool}")
            usable = [e for e in room.rooms(nodes, ()) if e.usable]
            below = Counter(e.labels.get(notes[kueue.SLICE_ANNOTATION]) for e in usable)
            whole = sum(number // size * size for number in below.values())
            # Of nodes that are still to come nobody knows where they will be.
            if whole < count <= len(usable):
                del notes[kueue.SLICE_ANNOTATION], notes[kueue.SLICE_SIZE_ANNOTATION]
                console.say(
                    f"note: of {count // size} groups of {size} nodes, whose ranks wait for each "
                    f"other in each layer, {whole // size} fit below one network node of pool "
                    f"{pool}; others must be divided, so steps may take longer"
                )
