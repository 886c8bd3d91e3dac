"""One control plane for all tests, with the platform of the default cluster applied to it."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from megatron_eks.demo.nodes import gpu_node, system_nodes
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Client, Object, wait_for
from megatron_eks.localcloud.kubernetes import build, nodes
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.operator import Operator, operator_file
from megatron_eks.ops.console import Console
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import ROOT, Project, load_project
from megatron_eks.synthesis import synthesise_manifests
from tests import consoles
from tests.annex import jobs

_RUNNING: list[ControlPlane] = []


@pytest.fixture(scope="session")
def programs():
    """Build what this machine lacks; progress is shown although pytest captures output."""
    return build.programs(os.environ, lambda line: print(line, file=sys.__stderr__, flush=True))


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Path:
    """Copy the default cluster and its job, with nodes, and so a quota, for the largest test."""
    folder: Path = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    text = (ROOT / "cluster.yaml").read_text(encoding="utf-8")
    assert "max_nodes: 2" in text
    (folder / "cluster.yaml").write_text(text.replace("max_nodes: 2", f"max_nodes: {jobs.NODES}"))
    return folder


@pytest.fixture(scope="session")
def emitted(project):
    """Write the manifests of the cluster, as `make synth` does."""
    synthesise_manifests(project / "cluster.yaml", project / "dist")
    return project / "dist"


@pytest.fixture(scope="session")
def loaded(project) -> Project:
    """Load the shared project."""
    return load_project(project / "cluster.yaml", datetime.now(tz=UTC).date())


@pytest.fixture(scope="session")
def plan(project) -> ClusterPlan:
    """Plan the cluster."""
    return load_project(project / "cluster.yaml", datetime.now(tz=UTC).date()).cluster


@pytest.fixture
def console() -> Console:
    """Return a console whose streams can be read, and that says yes."""
    return consoles.console(yes=True)


@pytest.hookimpl(trylast=True)  # behind what the test itself takes back
def pytest_runtest_teardown(nextitem):
    """End the clusters with the last test here: they would run beside all others."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        for plane in _RUNNING:
            plane.stop()


@pytest.fixture(scope="session")
def start_plane(programs) -> Callable[..., ControlPlane]:
    """Return a function that starts an empty cluster for all tests here."""

    def start(folder: Path, node_grace_seconds: int = 50) -> ControlPlane:
        plane = ControlPlane(programs, folder, node_grace_seconds=node_grace_seconds)
        _RUNNING.append(plane)
        plane.start()
        return plane

    return start


@pytest.fixture(scope="session")
def control_plane(start_plane, tmp_path_factory) -> ControlPlane:
    """Start an empty cluster."""
    plane: ControlPlane = start_plane(tmp_path_factory.mktemp("control-plane"))
    return plane


@pytest.fixture(scope="session")
def operator(control_plane, emitted) -> Operator:
    """Run the training operator of our chart."""
    chart = manifests.read_file(operator_file(emitted / "platform"))
    operator = Operator(control_plane, chart)
    operator.install()
    return operator


@pytest.fixture(scope="session")
def client(operator, emitted, plan) -> Client:
    """Return an administrator, who has applied the whole platform as a person would."""
    admin: Client = operator.client
    for manifest in manifests.read(emitted / "platform"):
        admin.apply(manifest)
    for number in range(jobs.NODES):
        admin.create(gpu_node(plan.pools[0], number))
    for node in system_nodes(plan):
        admin.create(node)
    wait_for("nodes", lambda: all(nodes.is_ready(node) for node in admin.list("v1", "Node")))
    return admin


@pytest.fixture
def submit(client: Client) -> Iterator[Callable[[Object], Object]]:
    """Return a function that applies a job, which is deleted with its pods after the test."""
    applied: list[Object] = []

    def apply(manifest: Object) -> Object:
        applied.append(manifest)
        return client.apply(manifest)

    yield apply
    for job in applied:
        jobs.delete(client, job)
