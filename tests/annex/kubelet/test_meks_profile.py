"""`meks profile` through real pods: a request that a rank finds, and its trace as a page."""

import json
import re

import pytest

from tests.annex.kubelet.test_shared_pod import _JOB as JOB
from tests.annex.kubelet.test_shared_pod import begin, cluster_file, meks, no_pod
from tests.ops.test_profile import written

__all__ = ["begin", "cluster_file", "meks"]

pytestmark = pytest.mark.control_plane


def test_it_asks_and_later_shows_what_came(cluster, cluster_file, meks):
    """Of a job that does not run: the request waits for it, and nothing is shown before."""
    logs = cluster.shared() / "logs" / JOB
    asked = meks("profile", JOB, "--steps", "10:12", "--rank", "0", "--rank", "9")
    assert asked.returncode == 0, asked.stderr
    assert f"traces steps 10 to 12 of ranks 0, 9 once it runs (meks submit {JOB})" in asked.stderr
    wish = json.loads((logs / "profile.json").read_text())
    assert wish == {"first": 10, "last": 12, "ranks": [0, 9], "nsys": False}
    early = meks("profile", JOB)
    assert early.returncode == 3
    assert f"MEKS-0771 {JOB} has given no trace; steps 10 to 12 are asked - wait" in early.stderr
    (folder := logs / "0004" / "profile").mkdir(parents=True)
    for rank in (0, 9):
        written(folder, rank)
    shown = meks("profile", JOB)
    assert shown.returncode == 0, shown.stderr
    page = cluster_file.parent / "reports" / f"{JOB}-profile.html"
    assert shown.stdout == f"{page}\n"
    text = re.sub("<[^>]*>", " ", page.read_text())
    assert "Rank 9: longest kernels" in text
    assert (
        cluster_file.parent / "profiles" / JOB / "0004" / "rank-00009.steps-10-12.json.gz"
    ).exists()
    no_pod(cluster)
