"""A cluster whose nodes really run pods, and ways to look at it and to break it."""

import contextlib
import itertools
import os
import signal
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from megatron_eks.catalog.program_places import UNPACKED
from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes.client import ApiError, Client, Object, wait_for
from megatron_eks.localcloud.aws.server import LocalAws
from megatron_eks.localcloud.kubernetes import nodes
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.kubelet.fleet import Fleet
from megatron_eks.localcloud.kubernetes.operator import Operator
from megatron_eks.plan.cluster.cluster import ClusterPlan
from tests.annex.pids import descendants


@dataclass
class Cluster:
    """A cluster of process nodes."""

    plane: ControlPlane
    fleet: Fleet
    aws: LocalAws
    operator: Operator
    plan: ClusterPlan

    def __post_init__(self) -> None:
        """Give each node a number of its own."""
        self._numbers = itertools.count()
        self.lost: list[str] = []

    @property
    def client(self) -> Client:
        """An administrator's client."""
        return self.plane.client

    def add_gpu_node(self) -> str:
        """Start one more node of the pool and return its name once pods can be bound to it."""
        node = nodes.as_process(gpu_node(self.plan.pools[0], next(self._numbers)))
        name: str = node["metadata"]["name"]
        self.fleet.start(node)
        self.wait_for_node(name)
        return name

    def wait_for_node(self, name: str) -> None:
        """Return once pods can be bound to a node."""

        def ready() -> bool:
            found = self.client.find("v1", "Node", name)
            return found is not None and nodes.is_ready(found)

        wait_for(f"node {name}", ready)

    def shared(self) -> Path:
        """Return the directory that pods see as /shared."""

        def prepared() -> Path | None:
            # By the platform's set-up Job.
            found = [folder for folder in self.fleet.shared.glob("*") if (folder / "logs").exists()]
            return found[0] if found else None

        return wait_for("the shared directories", prepared)

    def processes_of(self, pod: Object, program: str) -> list[int]:
        """Return the processes of a pod whose command line holds a word, by this machine's ids."""
        kubelet = self.plane.processes.pids[f"kubelet-{pod['spec']['nodeName']}"]
        variable = f"HOSTNAME={pod['spec'].get('hostname') or pod['metadata']['name']}"
        found = []
        for pid in descendants(kubelet):
            # It may end while one looks.
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                variables = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
                if variable in variables and any(program in word for word in words):
                    found.append(pid)
        return found

    def ranks_of(self, pod: Object, program: str) -> list[int]:
        """Return the ranks of a pod; what starts them names their program too."""
        starts = ("torch.distributed.run", UNPACKED, "--script=")
        launchers = [each for name in starts for each in self.processes_of(pod, name)]
        return [each for each in self.processes_of(pod, program) if each not in launchers]

    def force_delete(self, pod: Object) -> None:
        """Take a pod from the API at once, as `kubectl delete --force` does."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        try:
            self.client.request("DELETE", path, query={"gracePeriodSeconds": "0"})
        except ApiError as error:
            # Its controller may have deleted it meanwhile.
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def lose(self, what: str, pod: Object, program: str) -> None:
        """Kill the only rank of a pod, delete the pod, or lose its node."""
        if what == "rank":
            (rank,) = self.ranks_of(pod, program)
            os.kill(rank, signal.SIGKILL)
        elif what == "pod":
            self.client.delete("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
        else:
            self.lose_node(pod)

    def lose_node(self, pod: Object) -> str:
        """Lose the node that a pod is on, with another one ready, and return its name."""
        self.add_gpu_node()
        return self.lose_at_once(pod)

    def lose_at_once(self, pod: Object) -> str:
        """Lose the node that a pod is on, and return its name."""
        name: str = pod["spec"]["nodeName"]
        self.fleet.lose(name)
        self.lost.append(name)
        return name

    def now(self, pod: Object) -> Object:
        """Return a pod as it is by now."""
        metadata = pod["metadata"]
        return self.client.get("v1", "Pod", metadata["name"], metadata["namespace"])

    def logs(self, pod: Object, container: str, **query: str) -> str:
        """Return what the API server gets from the kubelet."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"
        lines = self.client.stream(path, {"container": container, **query}, 60)
        return b"".join(lines).decode()
