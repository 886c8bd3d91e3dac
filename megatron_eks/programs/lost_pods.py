"""Takes deleted pods of jobs from lost nodes, so that their ranks start on others.

A deleted pod stays until its kubelet says that its processes have ended. Of a lost node nobody ever
says so: the pod keeps its name, and its job waits, until the Node object goes as well, and a minute
more. What is done here is what Kubernetes does then (pkg/controller/podgc), to pods that somebody
has deleted already, on nodes that the control plane has not heard of for its grace period.

It is part of `job_objects`, which hands over what it reads, and waits for no file system.
"""

import queue
import sys
import time
from typing import NoReturn

from megatron_eks.programs.cluster_api import MERGE, Api, Object

_ROUND_SECONDS, _AGAIN_SECONDS = 1.0, 10.0
_POD = "/api/v1/namespaces/{namespace}/pods/{name}"
_MESSAGE = "node {} is lost, so nobody says that this pod has ended; its job goes on without it"


class LostPods:
    """Pods that are to end, and nodes without a kubelet."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._ending: dict[str, Object] = {}
        self._lost: dict[str, bool] = {}
        self._tried: dict[str, float] = {}
        self.changes: queue.Queue[Object] = queue.Queue()
        """Pods and nodes, each as it was seen last."""

    def run(self) -> NoReturn:
        """End lost pods for good."""
        while True:
            self.look(time.monotonic())
            time.sleep(_ROUND_SECONDS)

    def look(self, now: float) -> None:
        """Take what has changed, and end what is lost."""
        while not self.changes.empty():
            self._take(self.changes.get())
        for uid, pod in list(self._ending.items()):
            node = pod["spec"].get("nodeName")
            if self._lost.get(node) and now >= self._tried.get(uid, now):
                self._tried[uid] = now + _AGAIN_SECONDS
                self._end(uid, pod, _MESSAGE.format(node))

    def _take(self, found: Object) -> None:
        metadata, is_gone = found["metadata"], "gone" in found
        if found["kind"] == "Node":
            conditions = found["status"].get("conditions", ())
            unknown = any((e["type"], e["status"]) == ("Ready", "Unknown") for e in conditions)
            self._lost[metadata["name"]] = is_gone or unknown
        elif is_gone:
            self._forget(metadata["uid"])
        elif "deletionTimestamp" in metadata:
            self._ending[metadata["uid"]] = found

    def _end(self, uid: str, pod: Object, message: str) -> None:
        """Say that a pod has failed, which the Job that counts it waits for, and take it away."""
        path, own = _POD.format(**pod["metadata"]), {"uid": uid}
        status = {"phase": "Failed", "reason": "NodeLost", "message": message}
        try:
            if pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                self._api.send(
                    "PATCH", f"{path}/status", {"metadata": own, "status": status}, MERGE
                )
            how = {"gracePeriodSeconds": 0, "preconditions": own}
            self._api.send("DELETE", path, how, "application/json")
        except FileNotFoundError:
            self._forget(uid)
            return
        except OSError as problem:
            message = f"{problem} - tried again"
        sys.stderr.write(f"{pod['metadata']['name']}: {message}\n")

    def _forget(self, uid: str) -> None:
        self._ending.pop(uid, None)
        self._tried.pop(uid, None)
