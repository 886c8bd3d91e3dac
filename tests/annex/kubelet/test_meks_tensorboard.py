"""`meks tensorboard` through the real exec, with a stand-in for TensorBoard itself."""

import signal
import socket
import urllib.request

import pytest

from tests.annex.kubelet import test_shared_pod as shared
from tests.annex.kubelet.test_shared_pod import begin, meks, no_pod

__all__ = ["begin", "meks"]

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

# Of `shared.write_project`.
JOB = "gpt-7b-of-meks"


@pytest.fixture(scope="module")
def cluster_file(project, tmp_path_factory):
    """Return a cluster file whose image has a TensorBoard."""
    return shared.write_project(tmp_path_factory.mktemp("board"), project, "tensorboard")


def test_event_files_are_shown_until_ctrl_c(cluster, begin, meks):
    """In a pod that goes with the command; a folder that is not there is told."""
    folder = cluster.shared() / "logs" / JOB / "tensorboard"
    missing = meks("tensorboard", JOB)
    assert missing.returncode == 3
    assert f"MEKS-0894 /shared/logs/{JOB}/tensorboard" in missing.stderr
    assert "no such folder - wait for the job's first steps" in missing.stderr
    folder.mkdir(parents=True)
    (folder / "events.out.tfevents.1").write_text("a curve")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with begin("tensorboard", JOB, "--port", port) as process:
        said = iter(process.stderr.readline, "")
        line = next(each for each in said if "http://" in each)
        assert line.startswith(f"http://127.0.0.1:{port} shows /shared/logs/")
        url = f"http://127.0.0.1:{port}/events.out.tfevents.1"
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.read() == b"a curve"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    no_pod(cluster)
