"""What becomes of a running job when a part of it, or of the cluster, fails."""

import os
import signal

import pytest

from megatron_eks.kubernetes.client import wait_for
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.annex.pids import alive, descendants

pytestmark = pytest.mark.control_plane


@pytest.fixture
def run(request, start):
    """Start a job of two ranks, and wait until it steps."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    found = start(runs.job(name, 2, image=runs.SMALL))
    found.wait_for_step(after=2)
    return found


def _finish(cluster, run) -> None:
    run.finish()
    jobs.wait_for_condition(cluster.client, run.job, "Succeeded")


def test_two_jobs_use_the_same_port_at_once(cluster, start):
    """Each job's name leads to its own master, on port 23456 in both."""
    both = [start(runs.job(name, 2, image=runs.SMALL)) for name in ("one", "two")]
    for each in both:
        assert each.wait_for_step()["sum"] == 3
    for each in both:
        _finish(cluster, each)


def test_a_killed_master_restarts_all(cluster, run):
    """The worker loses its connection, ends with it, and both start again in place."""
    master, _ = jobs.pods_of(cluster.client, run.job)
    (process,) = cluster.processes_of(master, "ranks.py")
    os.kill(process, signal.SIGKILL)
    run.wait_for_restart()
    master, worker = jobs.pods_of(cluster.client, run.job)
    (status,) = master["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 137
    assert worker["status"]["containerStatuses"][0]["restartCount"] >= 1
    _finish(cluster, run)


def test_a_deleted_worker_comes_back(cluster, run):
    """The operator makes a pod of the same name and rank; the master waits for it in place."""
    _, worker = jobs.pods_of(cluster.client, run.job)
    cluster.client.delete("v1", "Pod", worker["metadata"]["name"], "megatron-workshop")
    run.wait_for_restart()
    _, successor = jobs.pods_of(cluster.client, run.job)
    assert successor["metadata"]["uid"] != worker["metadata"]["uid"]
    _finish(cluster, run)


def test_a_run_goes_on_without_its_operator(cluster, run):
    """The operator only looks on; it learns of the end after its own restart."""
    cluster.operator.stop()
    try:
        steps = len(run.steps())
        run.wait_for_step(after=steps + 5)
    finally:
        cluster.operator.start()
    assert {step["start"] for step in run.steps()} == {0}
    _finish(cluster, run)


@pytest.mark.long
def test_a_lost_node_is_replaced(cluster, start):
    """Its pods are evicted after their toleration, taken away, and start on a new node."""
    run = start(runs.job("lost-node", 2, image=runs.SMALL))
    run.wait_for_step(after=2)
    _, worker = jobs.pods_of(cluster.client, run.job)
    processes = descendants(cluster.plane.processes.pids[f"kubelet-{worker['spec']['nodeName']}"])
    node = cluster.lose_node(worker)
    wait_for("the end of its processes", lambda: not alive(processes), 30)
    run.wait_for_restart()
    _, successor = jobs.pods_of(cluster.client, run.job)
    assert successor["spec"]["nodeName"] != node
    # The node itself is still there, and may come back.
    assert cluster.client.get("v1", "Node", node)
    _finish(cluster, run)
