"""One whole local cluster: control plane, our platform, the operator, and nodes."""

import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.local.aws import server as aws
from megatron_eks.local.kubernetes import manifests, nodes
from megatron_eks.local.kubernetes.control_plane import ControlPlane
from megatron_eks.local.kubernetes.kubelet.fleet import Fleet
from megatron_eks.local.kubernetes.operator import Operator
from megatron_eks.local.kubernetes.processes import free_port
from megatron_eks.project import load_project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from megatron_eks.plan.cluster import ClusterPlan

STATE_FILE = "state.json"

_WATCH_SECONDS = 0.5
_NODES_SECONDS = 60


@dataclass(frozen=True)
class State:
    """What a running cluster tells other processes."""

    pid: int
    """Of the process whose end is the end of the cluster."""
    kubeconfig: str
    aws_endpoint_url: str
    pids: dict[str, int]
    ports: dict[str, int]


def read_state(folder: Path) -> State:
    """Return the state of the cluster that runs in a folder."""
    return State(**json.loads((folder / STATE_FILE).read_text()))


def serve(
    programs: "Mapping[str, Path]",
    cluster_file: Path,
    folder: Path,
    today: date,
    process_nodes: int = 0,
) -> None:
    """Run a cluster until SIGTERM or SIGINT; raise ProcessError if one of its programs ends.

    Expects the project's manifests in `folder`/manifests. With `process_nodes` each pool has so
    many nodes that run their pods here, and the system nodes do too; otherwise all are simulated.
    """
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    plane = ControlPlane(programs, folder / "cluster")
    plane.start()
    try:
        plane.ports[aws.NAME] = free_port()
        local = aws.start(plane.processes, sys.executable, plane.ports[aws.NAME])
        _install(plane, folder / "manifests" / "platform")
        _add_nodes(plane, load_project(cluster_file, today).cluster, process_nodes)
        aws.wait(plane.processes, plane.ports[aws.NAME])
        state = State(
            os.getpid(),
            str(plane.kubeconfig),
            local.endpoint_url,
            plane.processes.pids,
            plane.ports,
        )
        partial = folder / f"{STATE_FILE}.partial"
        partial.write_text(json.dumps(asdict(state)))
        # Whoever waits for the file finds it complete.
        partial.replace(folder / STATE_FILE)
        while not stopped.wait(_WATCH_SECONDS):
            plane.processes.check()
    finally:
        plane.stop()


def _install(plane: ControlPlane, platform: Path) -> None:
    client = plane.client
    operator_file = manifests.operator_file(platform)
    Operator(plane, manifests.read_file(operator_file)).install()
    # Without the operator's own file: it runs as a process, and its Deployment would show another.
    for file in sorted(platform.glob("*.yaml")):
        if file != operator_file:
            for each in manifests.read_file(file):
                client.apply(each)


def _add_nodes(plane: ControlPlane, plan: "ClusterPlan", process_nodes: int) -> None:
    count = {pool.name: min(process_nodes or pool.max_nodes, pool.max_nodes) for pool in plan.pools}
    wanted = [
        *nodes.system_nodes(plan),
        *(
            nodes.gpu_node(pool, number)
            for pool in plan.pools
            for number in range(count[pool.name])
        ),
    ]
    if process_nodes:
        Fleet(plane).start(*map(nodes.as_process, wanted))
    else:
        for node in wanted:
            plane.client.create(node)

    def ready() -> bool:
        found = plane.client.list("v1", "Node")
        return len(found) == len(wanted) and all(nodes.is_ready(node) for node in found)

    wait_for("the nodes", ready, _NODES_SECONDS)
