"""Ranks that wait for a lost peer and raise nothing: the watcher makes all of them start again."""

import contextlib
import os
import signal

import pytest

from megatron_eks.kubernetes.client import wait_for
from tests.annex import jobs
from tests.annex.kubelet import runs

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

_MEGATRON = "programs.train_megatron"


@pytest.fixture
def run(request, start):
    """Start a job of three nodes, and wait until it steps."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    found = start(runs.gang_job(name, 3))
    found.wait_for_step(after=10)
    return found


def _finish(cluster, run) -> None:
    """Let the run step on, then end: who finishes is not taken for lost."""
    run.wait_for_step(after=len(run.steps()) + 30)
    again = {step["start"] for step in run.steps()}
    run.finish()
    jobs.wait_for_condition(cluster.client, run.job, jobs.DONE[run.job["kind"]])
    assert {step["start"] for step in run.steps()} == again


def test_a_lost_rank_restarts_the_gang(cluster, run):
    """Its node's watcher tells the master's, which tells all; each pod restarts."""
    _, _, worker = jobs.pods_of(cluster.client, run.job)
    (rank,) = cluster.ranks_of(worker, _MEGATRON)
    os.kill(rank, signal.SIGKILL)
    assert run.wait_for_restart()["start"] >= 10
    pods = jobs.pods_of(cluster.client, run.job)
    restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods]
    # On a slow machine the first to be back may start once more, for those that come after it.
    assert set(restarts) <= {1, 2}
    _finish(cluster, run)


@pytest.mark.long
def test_a_lost_master_restarts_the_gang(cluster, run):
    """The other nodes read the master's file themselves."""
    master = jobs.pods_of(cluster.client, run.job)[0]
    (rank,) = cluster.ranks_of(master, _MEGATRON)
    os.kill(rank, signal.SIGKILL)
    run.wait_for_restart()
    _finish(cluster, run)


@pytest.mark.long
def test_a_deleted_pod_restarts_the_gang(cluster, run):
    """Its successor finds the others waiting for it anew."""
    worker = jobs.pods_of(cluster.client, run.job)[1]
    cluster.client.delete("v1", "Pod", worker["metadata"]["name"], "megatron-workshop")
    run.wait_for_restart()
    _finish(cluster, run)


@pytest.mark.long
def test_a_pod_that_dies_without_a_word_restarts_the_gang(cluster, run):
    """All its processes go at once, the watcher too: its file stands still, or is another's."""
    worker = jobs.pods_of(cluster.client, run.job)[1]
    doomed = cluster.processes_of(worker, "")
    for process in doomed:
        # Some end by themselves once the first is gone.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    run.wait_for_restart()
    _finish(cluster, run)


@pytest.mark.long
@pytest.mark.usefixtures("other_kinds")
@pytest.mark.parametrize("kind", jobs.KINDS)
def test_a_lost_node_restarts_the_gang(cluster, start, kind):
    """On a new node, with the same silent survivors: nobody's connection is closed by anybody."""
    job = runs.gang_job(f"gang-lost-node-{kind.lower()}", 3, kind=kind)
    for pod in jobs.pod_specs(job):
        for toleration in pod["tolerations"]:
            # Half a minute in our chart.
            if "tolerationSeconds" in toleration:
                toleration["tolerationSeconds"] = 1
    run = start(job)
    run.wait_for_step(after=10)
    worker = jobs.pods_of(cluster.client, job)[1]
    name, node = worker["metadata"]["name"], worker["spec"]["nodeName"]
    cluster.fleet.lose(node)
    cluster.add_gpu_node()

    def evicted() -> bool:
        pod = cluster.client.get("v1", "Pod", name, "megatron-workshop")
        return "deletionTimestamp" in pod["metadata"]

    wait_for("the eviction", evicted, 60)
    # Its kubelet will never say that the processes are gone; of a set, the end of its node does.
    if kind == "PyTorchJob":
        cluster.force_delete(worker)
    else:
        cluster.client.delete("v1", "Node", node)
    # From the newest step that is recorded, as from the newest whole checkpoint.
    assert run.wait_for_restart()["start"] >= 10
    assert node not in {pod["spec"]["nodeName"] for pod in jobs.pods_of(cluster.client, job)}
    _finish(cluster, run)
    cluster.client.delete("v1", "Node", node, missing_ok=True)
