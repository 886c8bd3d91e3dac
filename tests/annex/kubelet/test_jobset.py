"""Ranks as a JobSet, or as a TrainJob that becomes one: all start again, and their end is told."""

import os
import signal

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.kube.jobs import RunningJob, everything, find, pods_of, ranks
from tests.annex import jobs
from tests.annex.kubelet import runs

pytestmark = [
    pytest.mark.control_plane,
    pytest.mark.programs,
    pytest.mark.usefixtures("other_kinds"),
]

_MEGATRON = "programs.train_megatron"
_NAMESPACE = "megatron-workshop"
_KINDS = ("JobSet", "TrainJob")


def _live(cluster, job) -> RunningJob:
    found = find(cluster.client, _NAMESPACE, job["metadata"]["name"])
    assert found is not None
    return found


def _uids(cluster, run) -> set[str]:
    return {each["metadata"]["uid"] for each in jobs.pods_of(cluster.client, run.job)}


# A TrainJob becomes a JobSet, whose ranks restart alike.
@pytest.fixture(params=[_KINDS[0], pytest.param(_KINDS[1], marks=pytest.mark.long)])
def run(request, start):
    """Start a job of three nodes, and wait until it steps."""
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:25].strip("-")
    found = start(runs.gang_job(f"{name}-{request.param.lower()}", 3, kind=request.param))
    found.wait_for_step(after=10)
    return found


def test_a_lost_rank_restarts_all_in_new_pods(cluster, run):
    """One container fails, and so its pod, its Job and the set; nothing restarts in place."""
    client = cluster.client
    live = _live(cluster, run.job)
    assert live.kind == run.job["kind"]
    there = ranks(live, pods_of(client, live))
    assert [each.number for each in there] == [0, 1, 2]
    assert live.phase(there) == "Running"
    # What the controllers make is no job of its own.
    assert [(each.kind, each.name) for each in everything(client, _NAMESPACE)] == [
        (live.kind, live.name)
    ]
    before = _uids(cluster, run)
    pod = there[2].manifest
    assert pod is not None
    (rank,) = cluster.ranks_of(pod, _MEGATRON)
    os.kill(rank, signal.SIGKILL)
    assert run.wait_for_restart()["start"] >= 10
    assert not before & _uids(cluster, run)
    assert _live(cluster, run.job).restarts == 1
    run.finish()
    jobs.wait_for_condition(client, run.job, jobs.DONE[live.kind])
    assert _live(cluster, run.job).ended == "Succeeded"


@pytest.mark.long
def test_a_deleted_pod_restarts_all(cluster, run):
    """As a node's end does, which takes the pod along."""
    worker = jobs.pods_of(cluster.client, run.job)[1]
    cluster.client.delete("v1", "Pod", worker["metadata"]["name"], _NAMESPACE)
    run.wait_for_restart()
    run.finish()
    jobs.wait_for_condition(cluster.client, run.job, jobs.DONE[run.job["kind"]])


@pytest.mark.long
def test_a_pod_that_is_evicted_restarts_all_and_does_not_count(cluster, run):
    """What a lost node, or one that is drained, does to its pod."""
    name = jobs.pods_of(cluster.client, run.job)[1]["metadata"]["name"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": _NAMESPACE},
    }
    path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{name}/eviction"
    cluster.client.request("POST", path, eviction)
    run.wait_for_restart()
    status = _live(cluster, run.job).made["status"]
    assert (status["restarts"], status.get("restartsCountTowardsMax", 0)) == (1, 0)
    run.finish()
    jobs.wait_for_condition(cluster.client, run.job, jobs.DONE[run.job["kind"]])


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "end",
    [(2, 0, "FailJobSet"), pytest.param((1, 1, "restart"), marks=pytest.mark.long)],
)
def test_failures(cluster, submit, kind, end):
    """A mistake ends the job at once; what another try may help is tried as often as is said."""
    code, restarts, why = end
    job = runs.job(f"fails-with-{code}-{kind.lower()}", 2, image=runs.SMALL, kind=kind)
    RunningJob(job).made["spec"]["failurePolicy"]["maxRestarts"] = 1
    for pod in jobs.pod_specs(job):
        (container,) = pod["containers"]
        container |= {"command": ["sh", "-c", f"exit {code}"], "args": []}
    submit(job)
    jobs.wait_for_condition(cluster.client, job, "Failed")
    found = _live(cluster, job)
    assert found.ended == "Failed"
    assert found.restarts == restarts
    assert why in found.message()


@pytest.mark.parametrize("kind", _KINDS)
def test_a_cancelled_job_takes_its_pods_along(cluster, submit, kind):
    """Deleting the object deletes what it has become, and that its pods."""
    job = runs.job(f"cancelled-{kind.lower()}", 2, image=runs.SMALL, kind=kind)
    for pod in jobs.pod_specs(job):
        (container,) = pod["containers"]
        container |= {"command": ["sh", "-c", "sleep 1000"], "args": []}
    submit(job)
    jobs.wait_for_pods(cluster.client, job, 2, "Running")
    name, namespace = jobs.place(job)
    cluster.client.delete(job["apiVersion"], kind, name, namespace)
    wait_for("the pods to go", lambda: not jobs.pods_of(cluster.client, job), 90)
