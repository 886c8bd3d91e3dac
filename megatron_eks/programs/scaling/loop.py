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
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from megatron_eks.programs.cluster_api import APPLY, MERGE, Api, Object, of_pod
from megatron_eks.programs.scaling.aws import NodeGroups, Size
from megatron_eks.programs.scaling.demand import Decision, Job, Node, Pool, decide
from megatron_eks.programs.scaling.objects import (
    ENDED,
    GPU,
    IDLE,
    LEAVING,
    gpus_of,
    keeps_node,
    key_of,
    node_of,
    pods_of,
    states,
    text_of,
)

_ROUND_SECONDS = 15.0
# Of a job that nodes were refused to.
_AGAIN_SECONDS = 600
_POOL = "megatron-eks/pool"
_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_WORKLOAD = "kueue.x-k8s.io/workload"


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
        self._api.send("PATCH", f"/api/v1/nodes/{quote(node)}", body, MERGE)

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
        self._api.send("PATCH", f"{path}/status", {"status": {"conditions": [condition]}}, MERGE)

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
        self._api.send("PATCH", f"{path}?fieldManager={self._check}&force=true", body, APPLY)


def _say(text: str) -> None:
    sys.stderr.write(f"{text_of(time.time())} {text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until the pod ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", type=Path, metavar="SETTINGS")
    settings = json.loads(parser.parse_args(arguments).settings.read_text())
    scaler = Scaler(settings, of_pod())
    while True:
        try:
            scaler.adjust(time.time())
        except (OSError, ValueError) as problem:
            _say(f"{problem} - tried again")
        time.sleep(_ROUND_SECONDS)


if __name__ == "__main__":
    main()
