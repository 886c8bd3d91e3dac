"""Commands about jobs as processes, which are interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from megatron_eks.kubernetes.client import wait_for
from tests.annex import jobs
from tests.ops.aws.fakes import CLUSTER

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).parents[3]
NAMESPACE = "megatron-workshop"
JOB = "megatron-gpt-7b"
SECONDS = 150


@pytest.fixture
def folder(tmp_path):
    """Return a project with one job."""
    text = CLUSTER.replace("max_nodes: 2", f"max_nodes: {jobs.NODES}")
    (tmp_path / "cluster.yaml").write_text(text)
    (tmp_path / "jobs").mkdir()
    shutil.copy(ROOT / "jobs" / f"{JOB}.yaml", tmp_path / "jobs")
    return tmp_path


class Process:
    """One command, its output in files, which fill while it runs."""

    def __init__(self, folder: Path, environment, arguments) -> None:
        self.out, self.err = folder / "out", folder / "err"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(  # noqa: S603 -- our own command
                [sys.executable, "-m", "megatron_eks", *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def says(self, text: str) -> None:
        """Wait until it has said something."""
        wait_for(text, lambda: text in self.err.read_text(), SECONDS)

    def interrupt(self) -> int:
        """Press Ctrl-C, and return the exit code."""
        # A follower that has just begun still starts its threads.
        time.sleep(0.5)
        self.process.send_signal(signal.SIGINT)
        return self.ends()

    def ends(self) -> int:
        """Return the exit code when it has ended."""
        return self.process.wait(SECONDS)

    def last(self) -> str:
        """Return its last line."""
        return self.err.read_text().splitlines()[-1]


@pytest.fixture
def meks(folder, control_plane, client):
    """Return a function that starts a command on the shared cluster."""
    assert client
    started = []
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment = {
        **kept,
        "KUBECONFIG": str(control_plane.kubeconfig),
        "PYTHONPATH": str(ROOT),
    }

    def start(*arguments):
        process = Process(folder, environment, arguments)
        started.append(process)
        return process

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


@pytest.fixture
def job(client):
    """Return the only job's manifest as far as helpers need it; it is deleted after the test."""
    found = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": JOB, "namespace": NAMESPACE},
    }
    yield found
    jobs.delete(client, found)


@pytest.mark.parametrize("flag", ["--wait", "--follow"])
def test_ctrl_c_leaves_the_job_and_says_how_to_come_back(client, meks, job, flag):
    """The same command again finds it, and so does `meks logs`, which is left in the same way."""
    first = meks("submit", JOB, "--preview", flag)
    first.says(f"{JOB}: Running, 2 of 2 ranks run")
    assert first.interrupt() == 130
    assert first.last() == (
        f"the job goes on; to look again: meks logs {JOB} --follow; to end it: meks cancel {JOB}"
    )
    assert "Traceback" not in first.err.read_text()
    second = meks("logs", JOB, "--follow")
    threads = Path("/proc", str(second.process.pid), "task")
    wait_for("its readers", lambda: len(list(threads.iterdir())) > 2, SECONDS)
    assert second.interrupt() == 130
    assert second.last() == f"the job goes on; to look again: meks logs {JOB} --follow"
    assert len(jobs.wait_for_pods(client, job, 2, "Running")) == 2
