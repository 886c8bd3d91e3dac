"""What a kubelet says of a pod beside its status."""

import contextlib

from megatron_eks.kubernetes.client import Object
from megatron_eks.localcloud.kubernetes.kubelet.context import SERVER_ERRORS, Context
from megatron_eks.localcloud.kubernetes.kubelet.status import timestamp


def tell(context: Context, pod: Object, reason: str, message: str, kind: str = "Normal") -> None:
    """Record something, a "Warning" if a person should look at it."""
    metadata, now = pod["metadata"], timestamp()
    reference = {key: metadata[key] for key in ("name", "namespace", "uid")}
    event: Object = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **reference},
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": context.settings.name},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    # Nobody waits for an event; a namespace that is being deleted takes none.
    with contextlib.suppress(*SERVER_ERRORS):
        context.client.create(event)
