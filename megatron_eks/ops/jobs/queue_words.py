"""What Kueue says of a job that waits, in words for people who do not know Kueue."""

import re

from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.kube import pods

# Why a place was lost, where what is free does not say it.
_LOST = {"NodeFailures", "PodsReadyTimeout"}

# Of v0.19.2: pkg/scheduler, pkg/controller/tas/node_controller.go, pkg/cache/scheduler.
_ROOM = r'.*topology "[^"]*" '
_MEANT = (
    (r".*no replacement for unhealthy node\(s\): ", "no other node could replace failed "),
    (r".*multiple TAS assigned node failures, including: ", "nodes failed at once: "),
    (
        rf"{_ROOM}allows to fit only (\d+) out of (\d+) pod\(s\)",
        r"nodes have room for \1 of \2 pods",
    ),
    (rf"{_ROOM}doesn't allow to fit any of (\d+) pod.s.", r"nodes have room for none of \1 pods"),
)


def told(lost: Object, waits: Object) -> str:
    """Return why a job lost its place, if no other job has it, and why it waits: two conditions."""
    said = [waits.get("message", "")]
    if lost.get("reason") in _LOST:
        said.insert(0, lost.get("message", ""))
    return "; ".join(dict.fromkeys(map(_meant, filter(None, said))))


def _meant(message: str) -> str:
    for said, meant in _MEANT:
        message = re.sub(said, meant, message)
    return pods.one_line(message)
