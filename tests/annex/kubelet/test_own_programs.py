"""A program of a user's own on process nodes: its code from the job, under our record and guard."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.project import ROOT
from megatron_eks.synthesis import synthesise_manifests
from tests.annex import jobs
from tests.annex.kubelet import runs

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

_SECONDS = 240


@pytest.fixture
def run(submit, tmp_path) -> Callable[..., Object]:
    """Return a function that submits the example's job, changed, to the pool of these nodes."""

    def begin(name: str, *args: str, **changes: object) -> Object:
        shutil.copytree(ROOT / "examples" / "own-script" / "jobs" / "ddp", tmp_path / "jobs/ddp")
        shutil.copy(ROOT / "cluster.yaml", tmp_path)
        value = yaml.safe_load((ROOT / "examples/own-script/jobs/ddp.yaml").read_text())
        folder = f"/shared/checkpoints/{name}"
        value |= {"name": name, "pool": "p4d", "gpus_per_node": 1, **changes}
        value["program"]["args"] = [f"--directory={folder}", *args]
        value["checkpoint"]["directory"] = folder
        (tmp_path / "jobs" / "own.yaml").write_text(yaml.safe_dump(value))
        synthesise_manifests(tmp_path / "cluster.yaml", tmp_path / "dist")
        for each in manifests.read(tmp_path / "dist" / "jobs"):
            if each["kind"] == "PyTorchJob":
                job = each
                for pod in jobs.pod_specs(job):
                    pod["terminationGracePeriodSeconds"] = 2
            submit(each)
        return job

    return begin


def record(cluster, name: str, start: int, rank: int) -> str:
    """Return what a rank has printed by now."""
    file: Path = cluster.shared() / "logs" / name / f"{start:04}" / f"rank-{rank:05}.log"
    return file.read_text() if file.exists() else ""


@pytest.mark.parametrize("image", ["fsdp", runs.OWN])
def test_a_script_runs_on_two_nodes(cluster, run, image):
    """In our image, and in one that has torch and none of our programs."""
    name = "own-ddp" if image == "fsdp" else "own-image"
    job = run(name, "--steps=60", "--save-every=10", image=image)
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    for rank in range(2):
        text = record(cluster, name, 1, rank)
        assert f"rank {rank} of 2 starts at step 0" in text
        assert "record: ended with exit code 0" in text
    assert "step 60/60, loss:" in record(cluster, name, 1, 0)
    kept = [each.name for each in (cluster.shared() / "checkpoints" / name).iterdir()]
    assert sorted(kept) == ["step-50", "step-60"]


def test_a_lost_rank_restarts_all_from_the_newest_checkpoint(cluster, run):
    """As with the programs of this project; nothing in the script knows of it."""
    job = run("own-killed", "--steps=1000000", "--save-every=200")
    wait_for("steps", lambda: "step 600/" in record(cluster, "own-killed", 1, 0), _SECONDS)
    _, worker = jobs.pods_of(cluster.client, job)
    starters = cluster.processes_of(worker, "--script=")
    (rank,) = {*cluster.processes_of(worker, "train.py")} - {*starters}
    os.kill(rank, signal.SIGKILL)

    def again() -> str:
        text = record(cluster, "own-killed", 2, 0)
        return text if "starts at step " in text else ""

    text = wait_for("another start", again, _SECONDS)
    assert int(text.partition("starts at step ")[2].split()[0]) >= 600
