"""Every object of every example, before a real API server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Client, wait_for
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.controllers import CONTROLLERS
from megatron_eks.localcloud.kubernetes.operator import Operator, operator_file
from megatron_eks.project import load_project
from tests import examples
from tests.charts import rendered
from tests.emitted import TODAY, write_manifests

pytestmark = pytest.mark.control_plane

VOLUMES = ("PersistentVolumeClaim", "PersistentVolume")


@pytest.fixture(scope="module")
def empty(programs, emitted, tmp_path_factory) -> Iterator[Client]:
    """Return an administrator of a cluster with the operator and without the default platform."""
    plane = ControlPlane(programs, tmp_path_factory.mktemp("examples"))
    plane.start()
    operator = Operator(plane, manifests.read_file(operator_file(emitted / "platform")))
    operator.install()
    # Not Kueue, which no example has: a dry run keeps no runtime for it to find.
    files = rendered.platform_files("trainjob")
    for controller in (each for each in CONTROLLERS[1:] if each.name in files):
        controller(plane, files[controller.name]).install()
    yield operator.client
    plane.stop()


def _run_by(workload: str, cluster_file: Path) -> None:
    """Let another kind of object run the ranks, but those whose number of nodes may vary."""
    cluster = yaml.safe_load(cluster_file.read_text())
    cluster["platform"] = {**(cluster.get("platform") or {}), "workload": workload}
    cluster_file.write_text(yaml.safe_dump(cluster))
    for file in (cluster_file.parent / "jobs").glob("*.yaml"):
        job = yaml.safe_load(file.read_text())
        if job.get("runtime", {}).get("rendezvous", "static") != "static":
            job["runtime"]["workload"] = "pytorchjob"
        elif job["kind"] == "ddp":
            job["runtime"] = {**job.get("runtime", {}), "workload": workload}
        file.write_text(yaml.safe_dump(job))


@pytest.mark.parametrize("workload", ["pytorchjob", "jobset", "trainjob"])
@pytest.mark.parametrize("name", examples.NAMES)
def test_every_object_is_accepted(empty, name, workload, tmp_path):
    """Strictly, in the namespaces that enforce their level, by quota and webhook too."""
    cluster_file = examples.copy(name, tmp_path)
    if workload != "pytorchjob":
        _run_by(workload, cluster_file)
    write_manifests(load_project(cluster_file, TODAY), tmp_path / "dist")
    platform = manifests.read(tmp_path / "dist" / "platform")
    assert {"Namespace", "PersistentVolume", "DaemonSet"} <= {each["kind"] for each in platform}
    for manifest in platform:
        # Of a process the webhook is elsewhere.
        if not re.search("jobset|trainer", str(manifest["metadata"])):
            empty.apply(manifest)
    for part in ("validation", "jobs"):
        for manifest in manifests.read(tmp_path / "dist" / part):
            empty.apply(manifest, dry_run=True)
    # The claims of the next example have the same names, and a claim keeps its volume.
    for kind in VOLUMES:
        for each in (each for each in platform if each["kind"] == kind):
            metadata = each["metadata"]
            empty.delete("v1", kind, metadata["name"], metadata.get("namespace"))
    wait_for("deletion", lambda: not any(empty.list("v1", kind) for kind in VOLUMES))
