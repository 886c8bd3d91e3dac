"""The real torchrun and gloo on process nodes, in jobs of our chart on the real operator."""

import pytest

from tests.annex import jobs
from tests.annex.kubelet import runs

pytestmark = [pytest.mark.control_plane, pytest.mark.programs, pytest.mark.long]


@pytest.mark.parametrize(("nodes", "processes"), [(1, 2), (2, 2), (4, 1)])
def test_all_ranks_meet(cluster, start, nodes, processes):
    """Each torchrun finds its peers by the names and the port that the operator gave it."""
    run = start(runs.job(f"torch-{nodes}", nodes, processes=processes))
    step = run.wait_for_step()
    assert step["world"] == nodes * processes
    assert step["sum"] == sum(range(1, nodes * processes + 1))
    run.finish()
    jobs.wait_for_condition(cluster.client, run.job, "Succeeded")
