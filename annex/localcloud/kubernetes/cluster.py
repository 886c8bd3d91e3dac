"""One whole local cluster: control plane, a platform, the operator, and nodes."""

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from megatron_eks.kubernetes.client import Client, Object, wait_for
from megatron_eks.kubernetes.manifests import read_file
from megatron_eks.localcloud.aws import keys
from megatron_eks.localcloud.aws import server as aws
from megatron_eks.localcloud.kubernetes import build, controllers, nodes, prometheus
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.joined import JoinedNodes
from megatron_eks.localcloud.kubernetes.kubelet.fleet import Fleet
from megatron_eks.localcloud.kubernetes.processes import free_port
from megatron_eks.localcloud.kubernetes.settings import Settings
from megatron_eks.localcloud.kubernetes.state import SHARED, State

ADMINISTRATOR = "LocalAdmin"
"""The role that an empty account has."""

_WATCH_SECONDS = 0.5
_NODES_SECONDS = 60


def serve(programs: Mapping[str, Path], settings: Settings) -> None:
    """Run a cluster until SIGTERM or SIGINT; raise ProcessError if one of its programs ends.

    Expects the manifests at the latest when the control plane is up; they may be moved there
    meanwhile. An empty cluster has neither a platform, the operator excepted, nor nodes but those
    of the node groups that somebody deploys to the local AWS.
    """
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    local, folder = aws.new(settings.aws_port or free_port()), settings.folder
    plane = ControlPlane(
        programs,
        folder / "cluster",
        token_reviewer=local.token_reviewer,
        simulates_nodes=not settings.images,
    )
    plane.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    plane.ports[aws.NAME] = local.port
    credentials = folder / keys.FILE
    fleet = None
    if settings.images:
        fleet = Fleet(plane, settings.images, aws=local, shared=folder / SHARED)
    try:
        # The first, since it takes as long as all of the control plane.
        aws.start(plane.processes, sys.executable, local, credentials, plane.kubeconfig)
        plane.start()
        platform = folder / "manifests" / "platform"
        wait_for("the manifests", lambda: platform.exists() or stopped.is_set())
        if stopped.is_set():
            return
        controllers.follow(plane, platform)
        joined, environment = None, {"KUBECONFIG": str(plane.kubeconfig)}
        if settings.empty:
            joined = JoinedNodes(plane, local, fleet)
            # A file of its own for a client to write: nobody's gets entries of what will be gone.
            environment = {"KUBECONFIG": str(folder / "kubeconfig")}
            environment |= local.environment(settings.region)
        else:
            _install(plane.client, platform)
            _add_nodes(plane, fleet, settings.nodes)
        if settings.watch and fleet:
            scraped, rules = map(Path, settings.watch)
            prometheus.start(plane, programs[build.PROMETHEUS], scraped, rules, fleet.holder)
        aws.wait(plane.processes, local.port)
        if settings.empty:
            # Nobody deploys to an account in which nobody could administer what is made.
            iam = local.client("iam", settings.region)
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
            if controllers.follow(plane, platform):
                replace(state, pids=plane.processes.pids).publish(folder)
            if joined:
                joined.adjust()
    finally:
        plane.stop()


def _install(client: Client, platform: Path) -> None:
    # Without the controllers' own files: they run as processes, and a Deployment would show more.
    theirs = {each.file(platform) for each in controllers.CONTROLLERS}
    for file in sorted({*platform.glob("*.yaml")} - theirs):
        for each in read_file(file):
            client.apply(each)


def _add_nodes(plane: ControlPlane, fleet: Fleet | None, wanted: Sequence[Object]) -> None:
    if fleet:
        fleet.start(*map(nodes.as_process, wanted))
    else:
        for node in wanted:
            plane.client.create(node)

    def ready() -> bool:
        found = plane.client.list("v1", "Node")
        return len(found) == len(wanted) and all(nodes.is_ready(node) for node in found)

    wait_for("the nodes", ready, _NODES_SECONDS)
