"""One node: its registration, its heartbeat, and the pods that are bound to it."""

import contextlib
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from megatron_eks.kubernetes.client import ApiError, Object
from megatron_eks.kubernetes.watch import Change, Watch
from megatron_eks.localcloud.kubernetes.kubelet.context import NODE_ADDRESS, SERVER_ERRORS, Context
from megatron_eks.localcloud.kubernetes.kubelet.pod import PodWorker
from megatron_eks.localcloud.kubernetes.kubelet.running import ContainerProcess
from megatron_eks.localcloud.kubernetes.kubelet.status import timestamp

_CONFLICT = 409
_NOT_FOUND = 404
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
# The kubelet's default: nodes are judged by the lease's renewal, not by this.
_LEASE_SECONDS = 40
_MERGE = "application/merge-patch+json"

_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
    "Ready": ("True", "KubeletReady"),
}


@dataclass
class _Pod:
    """A pod of the node as the API last told it, and who runs it."""

    manifest: Object
    worker: PodWorker | None = None
    removing: bool = False


class Node:
    """A kubelet's main loop."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._name = context.settings.name
        self._pods: dict[str, _Pod] = {}
        self._lock = threading.Lock()
        self._since = timestamp()

    def run(self) -> None:
        """Register, then run pods for as long as the process lives."""
        self._beat_until_it_works()
        threading.Thread(target=self._beat, daemon=True).start()
        watch = Watch(
            self._context.client, "/api/v1/pods", {"fieldSelector": f"spec.nodeName={self._name}"}
        )
        watch.follow(self._learn, threading.Event())

    def find(self, namespace: str, name: str) -> Object | None:
        """Return the newest pod of a name that this node has or had."""
        with self._lock:
            found = [
                each.manifest
                for each in self._pods.values()
                if each.manifest["metadata"]["namespace"] == namespace
                and each.manifest["metadata"]["name"] == name
            ]
        return max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def process(self, pod: Object, container: str) -> ContainerProcess | None:
        """Return the run of a pod's container that goes on."""
        with self._lock:
            known = self._pods.get(pod["metadata"]["uid"])
            worker = known.worker if known else None
        return worker.process(container) if worker else None

    def _learn(self, change: Change) -> None:
        pod = change.manifest
        uid = pod["metadata"]["uid"]
        with self._lock:
            known = self._pods.setdefault(uid, _Pod(pod))
            known.manifest = pod
            if change.deleted:
                del self._pods[uid]
                if known.worker:
                    known.worker.forget()
            elif known.worker:
                known.worker.update(pod)
            elif pod["metadata"].get("deletionTimestamp"):
                self._remove(known)
            elif pod["status"].get("phase") in {"Pending", "Running"}:
                known.worker = PodWorker(self._context, pod, self._finished)

    def _finished(self, worker: PodWorker) -> None:
        with self._lock:
            known = self._pods.get(worker.uid)
            if known:
                known.worker = None
                # It may have ended before it heard that it is to be deleted.
                if known.manifest["metadata"].get("deletionTimestamp"):
                    self._remove(known)

    def _remove(self, pod: _Pod) -> None:
        """Complete the deletion of a pod without processes, without holding up anybody."""
        if not pod.removing:
            pod.removing = True
            threading.Thread(target=self._remove_now, args=(pod,), daemon=True).start()

    def _remove_now(self, pod: _Pod) -> None:
        try:
            self._context.remove(pod.manifest)
        except SERVER_ERRORS:
            # The next change of the pod, or the next list of all, brings it up again.
            pod.removing = False

    def _beat_until_it_works(self) -> None:
        while True:
            try:
                self._register()
                self._renew()
            except SERVER_ERRORS:
                time.sleep(1)
            else:
                return

    def _beat(self) -> None:
        while True:
            time.sleep(self._context.settings.heartbeat_seconds)
            # The next beat comes soon; a node that misses several is judged to be lost.
            with contextlib.suppress(*SERVER_ERRORS):
                self._renew()
                self._report()

    def _register(self) -> None:
        node: Object = {**self._context.settings.node, "status": self._status()}
        try:
            self._context.client.request("POST", "/api/v1/nodes", node)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            self._report()

    def _report(self) -> None:
        self._context.client.request(
            "PATCH",
            f"/api/v1/nodes/{self._name}/status",
            {"status": self._status()},
            content_type="application/strategic-merge-patch+json",
        )

    def _renew(self) -> None:
        now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": self._name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": now,
        }
        client, lease = self._context.client, {"metadata": {"name": self._name}, "spec": spec}
        try:
            client.request("PATCH", f"{_LEASES}/{self._name}", lease, content_type=_MERGE)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            client.request("POST", _LEASES, lease)

    def _status(self) -> Object:
        given: Object = self._context.settings.node["status"]
        now = timestamp()
        return {
            **given,
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": "",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": self._since,
                }
                for kind, (status, reason) in _HEALTHY.items()
            ],
            "addresses": [
                {"type": "InternalIP", "address": NODE_ADDRESS},
                {"type": "Hostname", "address": self._name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._context.settings.port}},
            "nodeInfo": {"containerRuntimeVersion": "processes", "kubeletVersion": "processes"},
        }
