"""The real torchrun and gloo on process nodes, in jobs of our chart on the real operator."""

import os
import signal

import pytest

from tests.annex import jobs
from tests.annex.kubelet import runs

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]


@pytest.mark.parametrize(
    ("nodes", "processes"),
    [*(pytest.param(*each, marks=pytest.mark.long) for each in ((1, 2), (2, 2))), (4, 1)],
)
def test_all_ranks_meet(cluster, start, nodes, processes):
    """Each torchrun finds its peers by the names and the port that the operator gave it."""
    run = start(runs.job(f"torch-{nodes}", nodes, processes=processes))
    step = run.wait_for_step()
    assert step["world"] == nodes * processes
    assert step["sum"] == sum(range(1, nodes * processes + 1))
    run.finish()
    jobs.wait_for_condition(cluster.client, run.job, "Succeeded")


@pytest.mark.long
def test_a_killed_rank_restarts_all(cluster, start):
    """The survivors' torchrun notices, every pod restarts in place, and the run continues."""
    run = start(runs.job("torch-killed", 2))
    run.wait_for_step(after=3)
    _, worker = jobs.pods_of(cluster.client, run.job)
    (rank,) = cluster.ranks_of(worker, "programs.train_megatron")
    os.kill(rank, signal.SIGKILL)
    assert run.wait_for_restart()["start"] > 3
    # Asked while both run: the operator deletes what still runs when the master has succeeded.
    pods = jobs.pods_of(cluster.client, run.job)
    restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods]
    # On a slow machine the first to be back may start once more, for the one that comes after it.
    assert set(restarts) <= {1, 2}
    run.finish()
    jobs.wait_for_condition(cluster.client, run.job, "Succeeded")
