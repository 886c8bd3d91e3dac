"""`meks tensorboard` through the real exec."""

import json
import signal
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.kubernetes.processes import free_port
from megatron_eks.project import ROOT
from tests.annex.kubelet.test_shared_pod import begin, cluster_file, meks, no_pod
from tests.programs.test_event_files import HELPERS
from tests.programs.trainer_files import python_says

__all__ = ["begin", "cluster_file", "meks"]

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

# Of `shared.write_project`.
JOB = "gpt-7b-of-meks"

PYTHON = ROOT / ".venv-programs" / "bin" / "python"
CURVE = f"""{HELPERS}
curve = b"".join(record(step, {{"lm loss": 9 - step}}) for step in (1, 2))
print(json.dumps(Path(sys.argv[2]).write_bytes(curve)))
"""


def test_event_files_are_shown_until_ctrl_c(cluster, begin, meks, tmp_path):
    """In a pod that goes with the command; a folder that is not there is told."""
    folder = cluster.shared() / "logs" / JOB / "tensorboard"
    missing = meks("tensorboard", JOB)
    assert missing.returncode == 3
    assert f"MEKS-0894 /shared/logs/{JOB}/tensorboard" in missing.stderr
    assert "no such folder - wait for the job's first steps" in missing.stderr
    folder.mkdir(parents=True)
    python_says(PYTHON, CURVE, tmp_path, folder / "events.out.tfevents.1")
    port = free_port()
    with begin("tensorboard", JOB, "--port", port) as process:
        said = iter(process.stderr.readline, "")
        line = next(each for each in said if "http://" in each)
        assert line.startswith(f"http://127.0.0.1:{port} shows /shared/logs/")
        url = f"http://127.0.0.1:{port}/data/plugin/scalars/scalars?run=.&tag=lm%20loss"

        def points():
            with (
                suppress(urllib.error.HTTPError),
                urllib.request.urlopen(url, timeout=60) as answer,
            ):
                return [(step, value) for _, step, value in json.load(answer)]

        assert wait_for("the curve", points, 120) == [(1, 8), (2, 7)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    no_pod(cluster)
