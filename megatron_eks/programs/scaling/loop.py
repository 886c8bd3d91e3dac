"""Keeps the pools of a cluster at the size that jobs in queues need.

loop.py SETTINGS

Runs once in a cluster, as a pod of the system nodes. It plays the part of Kueue's admission check
for provisioning: a job that has a place in its queue is let go when the nodes that it takes are
there, and brings them until then. A node that has had no job for a while goes. SETTINGS is a file:
{"cluster", "region", "suffix" (of AWS's host names), "check" (its name), "pools": [{"name",
"devices" (of a node, by resource), "max_nodes", "idle_seconds", "keep_until" (null: for ever)}]}.
It has the standard library alone: its image is Python's own.
"""

import argparse
import json
import math
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from megatron_eks.programs.scaling.aws import NodeGroups, Size
from megatron_eks.programs.scaling.demand import Decision, Job, Node, Pool, decide
from megatron_eks.programs.scaling.objects import (
    ENDED,
    GPU,
    IDLE,
    LEAVING,
    Object,
    gpus_of,
    keeps_node,
    key_of,
    node_of,
    pods_of,
    states,
    text_of,
)

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ROUND_SECONDS, _REQUEST_SECONDS = 15.0, 60.0
# Of a job that nodes were refused to.
_AGAIN_SECONDS = 600
_POOL = "megatron-eks/pool"
_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_WORKLOAD = "kueue.x-k8s.io/workload"
_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class Api:
    """The API server, as pods reach it."""

    def __init__(self, url: str, account: Path) -> None:
        self._url, self._account = url, account
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def items(self, path: str) -> list[Object]:
        """Return all objects of a path."""
        found: list[Object] = self.send("GET", path)["items"]
        return found

    def send(self, method: str, path: str, body: Object | None = None, form: str = "") -> Object:
        """Send a request and return the answer; raise OSError with what the server says."""
        # The kubelet renews the file.
        token = (self._account / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"} | ({"Content-Type": form} if form else {})
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(  # noqa: S310 -- the API server's
            f"{self._url}{path}", data=data, headers=headers, method=method
        )
        try:
            with self._opener.open(request, timeout=_REQUEST_SECONDS) as answer:
                found: Object = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:500]
            raise OSError(f"{method} {path}: {error.code} {said}") from None


class Scaler:
    """The pools of a cluster, which `adjust` brings nearer to what jobs need."""

    def __init__(self, settings: Object, api: Api) -> None:
        self._api, self._check = api, settings["check"]
        self._pools: list[Object] = settings["pools"]
        places = (settings[key] for key in ("cluster", "region", "suffix"))
        self._groups = NodeGroups(*places)

    def adjust(self, now: float) -> None:
        """Look at jobs and nodes once, and do what follows for each pool."""
        self._answer_for_check()
        pods = self._api.items("/api/v1/pods")
        workloads = self._api.items(f"{_KUEUE}/workloads")
        for each in self._pools:
            try:
                self._adjust_pool(each, pods, workloads, now)
            except OSError as problem:
                _say(f"{each['name']}: {problem} - tried again")

    def _adjust_pool(
        self, given: Object, pods: Sequence[Object], workloads: Sequence[Object], now: float
    ) -> None:
        keep = given["keep_until"]
        gpus = given["devices"][GPU]
        pool = Pool(
            given["name"],
            gpus,
            given["max_nodes"],
            given["idle_seconds"],
            math.inf if keep is None else keep,
        )
        nodes = {
            each["metadata"]["name"]: each
            for each in self._api.items(f"/api/v1/nodes?labelSelector={_POOL}%3D{pool.name}")
        }
        known = [node_of(each, given["devices"], pods) for each in nodes.values()]
        waiting = {key_of(each): each for each in workloads if self._concerns(each, pool.name)}
        jobs = [self._job(name, each, pods) for name, each in waiting.items()]
        size = self._groups.size(pool.name)
        decision = decide(pool, known, jobs, size.wanted, now=now, trouble=size.trouble)
        self._raise(pool, size, decision)
        self._tell(waiting, decision, now)
        for name, since in decision.idle.items():
            self._note(name, {IDLE: text_of(since)})
        for name in decision.uncordon:
            self._note(name, {LEAVING: None}, unschedulable=None)
        for name in decision.cordon:
            _say(f"{name} has been idle for long enough: it is cordoned, and then ended")
            self._note(name, {LEAVING: text_of(now)}, unschedulable=True)
        for node in decision.end:
            self._end(node, now)

    def _raise(self, pool: Pool, size: Size, decision: Decision) -> None:
        if decision.size is None or not size.active:
            return
        _say(f"{pool.name}: {size.wanted} nodes, and jobs need {decision.size}")
        try:
            self._groups.raise_to(pool.name, decision.size)
        except OSError as problem:
            # What jobs wait for, in place of what they would wait for.
            decision.told = {name: f"{told}: {problem}" for name, told in decision.told.items()}
            _say(f"{pool.name}: {problem}")

    def _end(self, node: Node, now: float) -> None:
        """End a node that nobody has put a pod on meanwhile."""
        on_it = self._api.items(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node.name}")
        if any(map(keeps_node, on_it)):
            return
        # Noted before: what is noted takes no pod any more, whether EC2 has heard of it or not.
        self._note(node.name, {ENDED: text_of(now)})
        _say(f"{node.name} ({node.instance}) is ended")
        self._groups.end(node.instance)

    def _note(self, node: str, notes: Mapping[str, str | None], **spec: bool | None) -> None:
        body = {"metadata": {"annotations": dict(notes)}, **({"spec": spec} if spec else {})}
        self._api.send("PATCH", f"/api/v1/nodes/{quote(node)}", body, _MERGE)

    def _answer_for_check(self) -> None:
        """Tell Kueue that somebody answers for the check; without that its queues stand still."""
        path = f"{_KUEUE}/admissionchecks/{self._check}"
        found = self._api.send("GET", path)
        if any(e["status"] == "True" for e in found.get("status", {}).get("conditions", ())):
            return
        condition = {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "nodes are brought by megatron-eks",
            "lastTransitionTime": text_of(time.time()),
            "observedGeneration": found["metadata"]["generation"],
        }
        self._api.send("PATCH", f"{path}/status", {"status": {"conditions": [condition]}}, _MERGE)

    def _state(self, workload: Object) -> Object:
        checks = workload.get("status", {}).get("admissionChecks", ())
        return next((each for each in checks if each["name"] == self._check), {})

    def _concerns(self, workload: Object, pool: str) -> bool:
        """Say whether a job has a place in its queue, and not all of its pods on nodes."""
        true = states(workload)
        sets = workload.get("status", {}).get("admission", {}).get("podSetAssignments", ())
        return (
            any(pool in each.get("flavors", {}).values() for each in sets)
            and "QuotaReserved" in true
            and not true.keys() & {"Finished", "Evicted", "PodsReady"}
            and self._state(workload).get("state") in {None, "Pending", "Ready"}
        )

    def _job(self, name: str, workload: Object, pods: Sequence[Object]) -> Job:
        missing = sorted(pods_of(workload))
        metadata = workload["metadata"]
        for pod in pods:
            own = pod["metadata"]
            place = own["namespace"], own.get("annotations", {}).get(_WORKLOAD)
            on_node = pod["spec"].get("nodeName")
            if on_node and place == (metadata["namespace"], metadata["name"]):
                asked = gpus_of(pod["spec"])
                if asked in missing:
                    missing.remove(asked)
        waits = self._state(workload).get("state") == "Pending"
        return Job(name, states(workload)["QuotaReserved"], tuple(missing), waits)

    def _tell(self, waiting: Mapping[str, Object], decision: Decision, now: float) -> None:
        for name in decision.ready:
            self._set(waiting[name], now, "Ready", "its nodes are there")
        for name, told in decision.told.items():
            self._set(waiting[name], now, "Pending", told)
        for name, told in decision.given_up.items():
            _say(f"{name} {told}: it gives its place to others and comes again")
            self._set(waiting[name], now, "Retry", told, requeueAfterSeconds=_AGAIN_SECONDS)

    def _set(self, workload: Object, now: float, state: str, message: str, **more: int) -> None:
        found = self._state(workload)
        if (found.get("state"), found.get("message")) == (state, message):
            return
        check = {
            "name": self._check,
            "state": state,
            "message": message,
            "lastTransitionTime": text_of(now),
            **more,
        }
        # Applied, so that what Kueue and others say of the job stays.
        metadata = {key: workload["metadata"][key] for key in ("name", "namespace")}
        kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
        body = {**kind, "metadata": metadata, "status": {"admissionChecks": [check]}}
        path = f"{_KUEUE}/namespaces/{metadata['namespace']}/workloads/{metadata['name']}/status"
        self._api.send("PATCH", f"{path}?fieldManager={self._check}&force=true", body, _APPLY)


def _say(text: str) -> None:
    sys.stderr.write(f"{text_of(time.time())} {text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until the pod ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", type=Path, metavar="SETTINGS")
    settings = json.loads(parser.parse_args(arguments).settings.read_text())
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    scaler = Scaler(settings, Api(f"https://{host}:{port}", ACCOUNT))
    while True:
        try:
            scaler.adjust(time.time())
        except (OSError, ValueError) as problem:
            _say(f"{problem} - tried again")
        time.sleep(_ROUND_SECONDS)


if __name__ == "__main__":
    main()
