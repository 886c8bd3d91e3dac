"""One whole local cluster: control plane, our platform, the operator, and nodes."""

import os
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from megatron_eks.kubernetes.client import Client, wait_for
from megatron_eks.local.aws import keys
from megatron_eks.local.aws import server as aws
from megatron_eks.local.kubernetes import manifests, nodes
from megatron_eks.local.kubernetes.control_plane import ControlPlane
from megatron_eks.local.kubernetes.joined import JoinedNodes
from megatron_eks.local.kubernetes.kubelet.fleet import Fleet
from megatron_eks.local.kubernetes.operator import Operator
from megatron_eks.local.kubernetes.processes import free_port
from megatron_eks.local.kubernetes.state import SHARED, State
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import load_project

ADMINISTRATOR = "LocalAdmin"
"""The role that an empty account has."""

_WATCH_SECONDS = 0.5
_NODES_SECONDS = 60


def serve(
    programs: Mapping[str, Path],
    cluster_file: Path,
    folder: Path,
    today: date,
    process_nodes: int = 0,
    *,
    empty: bool = False,
    aws_port: int = 0,
) -> None:
    """Run a cluster until SIGTERM or SIGINT; raise ProcessError if one of its programs ends.

    Expects the project's manifests in `folder`/manifests, at the latest when the control plane is
    up; they may be moved there meanwhile. With `process_nodes` each pool has so
    many nodes that run their pods here, and the system nodes do too; otherwise all are simulated.
    An empty cluster has neither a platform, the operator excepted, nor nodes but those of the node
    groups that somebody deploys to the local AWS.
    """
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    local = aws.new(aws_port or free_port())
    plane = ControlPlane(
        programs,
        folder / "cluster",
        token_reviewer=local.token_reviewer,
        simulates_nodes=not process_nodes,
    )
    plane.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    plane.ports[aws.NAME] = local.port
    credentials = folder / keys.FILE
    fleet = Fleet(plane, aws=local, shared=folder / SHARED)
    try:
        # The first, since it takes as long as all of the control plane.
        aws.start(plane.processes, sys.executable, local, credentials, plane.kubeconfig)
        plane.start()
        platform = folder / "manifests" / "platform"
        wait_for("the manifests", lambda: platform.exists() or stopped.is_set())
        if stopped.is_set():
            return
        operator_file = manifests.operator_file(platform)
        Operator(plane, manifests.read_file(operator_file)).install()
        plan = load_project(cluster_file, today).cluster
        joined, environment = None, {"KUBECONFIG": str(plane.kubeconfig)}
        if empty:
            joined = JoinedNodes(plane, local, fleet if process_nodes else None)
            # A file for `meks kubeconfig` to write: nobody's own gets entries of what will be gone.
            environment = {"KUBECONFIG": str(folder / "kubeconfig")}
            environment |= local.environment(plan.region)
        else:
            _install(plane.client, platform, operator_file)
            _add_nodes(plane, fleet, plan, process_nodes)
        aws.wait(plane.processes, local.port)
        if empty:
            # Nobody deploys to an account in which nobody could administer what is made.
            iam = local.client("iam", plan.region)
            iam.create_role(RoleName=ADMINISTRATOR, AssumeRolePolicyDocument="{}")
        state = State(
            os.getpid(),
            str(plane.kubeconfig),
            local.endpoint_url,
            str(credentials),
            plane.processes.pids,
            plane.ports,
            environment,
        )
        state.publish(folder)
        while not stopped.wait(_WATCH_SECONDS):
            plane.processes.check()
            if joined:
                joined.adjust()
    finally:
        plane.stop()


def _install(client: Client, platform: Path, operator_file: Path) -> None:
    # Without the operator's own file: it runs as a process, and its Deployment would show another.
    for file in sorted(platform.glob("*.yaml")):
        if file != operator_file:
            for each in manifests.read_file(file):
                client.apply(each)


def _add_nodes(plane: ControlPlane, fleet: Fleet, plan: ClusterPlan, process_nodes: int) -> None:
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
        fleet.start(*map(nodes.as_process, wanted))
    else:
        for node in wanted:
            plane.client.create(node)

    def ready() -> bool:
        found = plane.client.list("v1", "Node")
        return len(found) == len(wanted) and all(nodes.is_ready(node) for node in found)

    wait_for("the nodes", ready, _NODES_SECONDS)
