"""One whole local cluster: control plane, our platform, the operator, simulated nodes."""

import json
import os
import signal
import threading
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.local.kubernetes import manifests, nodes
from megatron_eks.local.kubernetes.client import wait_for
from megatron_eks.local.kubernetes.control_plane import ControlPlane
from megatron_eks.local.kubernetes.operator import Operator
from megatron_eks.project import load_project

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_FILE = "state.json"

_WATCH_SECONDS = 0.5


@dataclass(frozen=True)
class State:
    """What a running cluster tells other processes."""

    pid: int
    """Of the process whose end is the end of the cluster."""
    kubeconfig: str
    pids: dict[str, int]
    ports: dict[str, int]


def read_state(folder: Path) -> State:
    """Return the state of the cluster that runs in a folder."""
    return State(**json.loads((folder / STATE_FILE).read_text()))


def serve(programs: "Mapping[str, Path]", cluster_file: Path, folder: Path, today: date) -> None:
    """Run a cluster until SIGTERM or SIGINT; raise ProcessError if one of its programs ends.

    Expects the project's manifests in `folder`/manifests.
    """
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    plane = ControlPlane(programs, folder / "cluster")
    plane.start()
    try:
        _fill(plane, cluster_file, folder / "manifests" / "platform", today)
        state = State(os.getpid(), str(plane.kubeconfig), plane.processes.pids, plane.ports)
        partial = folder / f"{STATE_FILE}.partial"
        partial.write_text(json.dumps(asdict(state)))
        # Whoever waits for the file finds it complete.
        partial.replace(folder / STATE_FILE)
        while not stopped.wait(_WATCH_SECONDS):
            plane.processes.check()
    finally:
        plane.stop()


def _fill(plane: ControlPlane, cluster_file: Path, platform: Path, today: date) -> None:
    client = plane.client
    operator_file = manifests.operator_file(platform)
    Operator(plane, manifests.read_file(operator_file)).install()
    # Without the operator's own file: it runs as a process, and its Deployment would show another.
    for file in sorted(platform.glob("*.yaml")):
        if file != operator_file:
            for each in manifests.read_file(file):
                client.apply(each)
    plan = load_project(cluster_file, today).cluster
    wanted = [
        *nodes.system_nodes(plan),
        *(nodes.gpu_node(pool, number) for pool in plan.pools for number in range(pool.max_nodes)),
    ]
    for node in wanted:
        client.create(node)
    wait_for(
        "the nodes",
        lambda: all(nodes.is_ready(node) for node in client.list("v1", "Node")),
    )
