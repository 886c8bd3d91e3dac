"""`meks profile` through real pods: a request that a rank finds, and its trace as a page."""

import json
import re
from pathlib import Path

import pytest

from megatron_eks.kubernetes.client import wait_for
from tests.annex.kubelet import runs
from tests.annex.kubelet.test_shared_pod import _JOB as JOB
from tests.annex.kubelet.test_shared_pod import begin, meks, no_pod, write_project
from tests.annex.kubelet.test_watched import HUNGRY, training
from tests.ops.test_profile import exported

__all__ = ["begin", "meks"]

pytestmark = pytest.mark.control_plane
SHIPPED, TRACED = "ddp-llama-3-2-1b", "ddp-of-meks"


@pytest.fixture(scope="module")
def cluster_file(project, tmp_path_factory):
    """Return a cluster file with a job for each test."""
    file = write_project(tmp_path_factory.mktemp("profile"), project, runs.MEGATRON)
    text = (project / "jobs" / f"{SHIPPED}.yaml").read_text()
    (file.parent / "jobs" / f"{TRACED}.yaml").write_text(text.replace(SHIPPED, TRACED))
    return file


def shown_by(done):
    """Return the words of a page that a command has written."""
    assert done.returncode == 0, done.stderr
    return re.sub("<[^>]*>", " ", Path(done.stdout.strip()).read_text())


def test_it_asks_and_later_shows_what_came(cluster, cluster_file, meks):
    """Of a job that does not run: the request waits for it; what nsys left is read and fetched."""
    logs = cluster.shared() / "logs" / JOB
    asked = meks("profile", JOB, "--steps", "10:12", "--rank", "0", "--rank", "9", "--nsys")
    assert asked.returncode == 0, asked.stderr
    assert f"traces steps 10 to 12 of ranks 0, 9 once it runs (meks submit {JOB})" in asked.stderr
    wish = json.loads((logs / "profile.json").read_text())
    assert wish == {"first": 10, "last": 12, "ranks": [0, 9], "nsys": True}
    (folder := logs / "0004" / "profile").mkdir(parents=True)
    report = folder / "rank-00009.steps-10-12.nsys-rep"
    report.touch()
    early = meks("profile", JOB)
    assert early.returncode == 3
    assert f"MEKS-0771 {JOB} has given no trace; steps 10 to 12 are asked - wait" in early.stderr
    report.write_bytes(b"what Nsight Systems reads")
    for rank in (0, 9):
        exported(folder, rank=rank)
    shown = meks("profile", JOB)
    assert shown.stdout == f"{cluster_file.parent / 'reports' / f'{JOB}-profile.html'}\n"
    assert "Rank 9: longest kernels" in shown_by(shown)
    fetched = cluster_file.parent / "profiles" / JOB / "0004" / report.name
    assert fetched.read_bytes() == report.read_bytes()
    no_pod(cluster)


@pytest.mark.long
@pytest.mark.programs
def test_a_training_is_traced_while_it_goes_on(cluster, submit, meks):
    """Two real ranks, from the request to the page; it is in the cluster's month as well."""
    made = training(cluster, TRACED, HUNGRY)
    made["spec"]["nprocPerNode"] = "2"
    submit(made)
    logs = cluster.shared() / "logs" / TRACED
    lines = cluster.shared() / TRACED / "checkpoints" / "metrics.jsonl"

    def step():
        return lines.exists() and len(lines.read_text().splitlines())

    wait_for("steps", lambda: step() > 3, 240)
    refused = meks("profile", TRACED, "--steps", "900:902", "--nsys")
    assert (refused.returncode, "the image fsdp, which has no nsys" in refused.stderr) == (2, True)
    first = step() + 60
    asked = meks("profile", TRACED, "--steps", f"{first}:{first + 1}")
    assert f"of its first rank and its last when it gets there\nthen: meks profile {TRACED}" in (
        asked.stderr
    )
    wait_for("traces", lambda: len([*logs.glob("0001/profile/rank-*")]) == 2, 240)
    page = shown_by(meks("profile", TRACED))
    title = f"{TRACED}: steps {first} to {first + 1}"
    for said in (title, "Rank 1: longest operators", "aten::mm"):
        assert said in page, said
    month = shown_by(meks("report"))
    row = re.search(rf"{TRACED}\s+1\s+0\s+[\d.]+\s+\d+%", month.partition("By job")[2])
    assert row, month
    assert step() > first + 1
    no_pod(cluster)
