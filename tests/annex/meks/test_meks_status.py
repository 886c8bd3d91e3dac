"""`meks status` on a real API server: whose pods are whose, what is asked, and a watch's end."""

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.jobs import status, status_view
from tests import hostile, schemas
from tests.annex import jobs
from tests.consoles import console, written

pytestmark = pytest.mark.control_plane

_NAMESPACE = "megatron-workshop"
_PODS = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_MERGE = "application/merge-patch+json"

# As Kueue serves them, for as much as is read.
_WORKLOADS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "workloads.kueue.x-k8s.io"},
    "spec": {
        "group": "kueue.x-k8s.io",
        "names": {"kind": "Workload", "plural": "workloads", "singular": "workload"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def state_of(client, loaded):
    """Return a function that looks at a job, and gives what programs are told."""

    def call(name):
        return schemas.checked("status", status_view.as_json(status.read(client, loaded, name)))

    return call


@pytest.fixture
def requests(client, monkeypatch):
    """Return the list of all that is asked of the API server."""
    asked = []
    exchange, stream = client.connection.exchange, client.connection.stream

    def count_exchange(method, target, *rest):
        asked.append(target)
        return exchange(method, target, *rest)

    def count_stream(target, *rest):
        asked.append(target)
        return stream(target, *rest)

    monkeypatch.setattr(client.connection, "exchange", count_exchange)
    monkeypatch.setattr(client.connection, "stream", count_stream)
    return asked


def test_as_many_requests_for_many_ranks_as_for_few(client, submit, state_of, requests):
    """Running ranks need no events; the logs are those of the first and the last rank."""
    counts = {}
    for ranks in (2, 4):
        name = f"asked-{ranks}"
        job = jobs.training_job(name, ranks)
        submit(job)
        jobs.wait_for_pods(client, job, ranks, "Running")
        state_of(name)
        requests.clear()
        assert len(state_of(name)["ranks"]) == ranks
        counts[ranks] = sorted(each.partition("?")[0] for each in requests)
        jobs.delete(client, job)
    assert len(counts[2]) == len(counts[4]) == 6
    assert not any("events" in each for each in counts[4])


def test_jobs_of_one_prefix_keep_their_ranks_and_events_apart(client, submit, state_of):
    """One takes all nodes, so the other waits, and only the other."""
    first, second = jobs.training_job("wide", 4), jobs.training_job("wide-2", 2)
    submit(first)
    pods = jobs.wait_for_pods(client, first, 4, "Running")
    submit(second)

    def refused():
        found = state_of("wide-2")
        return [each for each in found["waits_for"] if each["kind"] == "quota"] and found

    found = wait_for("the quota", refused)
    (wait,) = found["waits_for"]
    assert "exceeded quota: training" in wait["why"]
    assert wait["ranks"] == [0, 1]
    assert [each["phase"] for each in found["ranks"]] == ["Missing", "Missing"]
    wide = state_of("wide")
    assert wide["waits_for"] == []
    assert [each["node"] for each in wide["ranks"]] == [each["spec"]["nodeName"] for each in pods]


def test_half_of_the_ranks(client, submit, state_of):
    """Those that the quota let through wait for nothing that the others wait for."""
    taken, half = jobs.training_job("takes-two", 2), jobs.training_job("half", 4)
    submit(taken)
    jobs.wait_for_pods(client, taken, 2, "Running")
    submit(half)

    def settled():
        found = state_of("half")
        running = [each["rank"] for each in found["ranks"] if each["phase"] == "Running"]
        waiting = [rank for each in found["waits_for"] for rank in each["ranks"]]
        kinds = {each["kind"] for each in found["waits_for"]}
        # A rank whose container is being made waits for nothing, and does not run.
        return (
            "quota" in kinds and running and sorted([*running, *waiting]) == [*range(4)] and found
        )

    found = wait_for("ranks that run and ranks that do not", settled)
    assert found["phase"] == "Starting"
    quota = next(each for each in found["waits_for"] if each["kind"] == "quota")
    phases = {each["rank"]: each["phase"] for each in found["ranks"]}
    assert {phases[rank] for rank in quota["ranks"]} == {"Missing"}


def test_pods_of_an_earlier_job_are_no_ranks_of_this_one(client, submit, state_of):
    """They are still going, under the names that the new ones are to have."""
    job = jobs.training_job("again")
    submit(job)
    names = [pod["metadata"]["name"] for pod in jobs.wait_for_pods(client, job, 2, "Running")]
    held = {"metadata": {"finalizers": ["megatron-eks.example/hold"]}}
    for name in names:
        client.request("PATCH", f"{_PODS}/{name}", held, None, _MERGE)
    try:
        before = state_of("again")
        client.delete(job["apiVersion"], job["kind"], "again", _NAMESPACE)
        for name in names:
            client.delete("v1", "Pod", name, _NAMESPACE)
        wait_for(
            "its end", lambda: not client.find(job["apiVersion"], job["kind"], "again", _NAMESPACE)
        )
        client.apply(job)
        found = state_of("again")
        assert [each["phase"] for each in before["ranks"]] == ["Running", "Running"]
        assert [each["phase"] for each in found["ranks"]] == ["Missing", "Missing"]
    finally:
        for name in names:
            client.request(
                "PATCH", f"{_PODS}/{name}", {"metadata": {"finalizers": None}}, None, _MERGE
            )
    wait_for("the new ranks", lambda: state_of("again")["phase"] == "Running")


def test_a_node_whose_gpus_are_broken(client, submit, state_of):
    """The node monitoring agent says so in a condition; the rank on it runs on."""
    job = jobs.training_job("broken")
    submit(job)
    node = jobs.wait_for_pods(client, job, 2, "Running")[1]["spec"]["nodeName"]
    path = f"/api/v1/nodes/{node}/status"
    strategic = "application/strategic-merge-patch+json"
    condition = {
        "type": "AcceleratedHardwareReady",
        "status": "False",
        "reason": "NvidiaXID79Error",
        "message": "GPU has fallen off the bus",
    }
    client.request("PATCH", path, {"status": {"conditions": [condition]}}, None, strategic)
    try:
        (wait,) = state_of("broken")["waits_for"]
    finally:
        gone = {"$patch": "delete", "type": "AcceleratedHardwareReady"}
        client.request("PATCH", path, {"status": {"conditions": [gone]}}, None, strategic)
    assert (wait["kind"], wait["ranks"]) == ("node", [1])
    assert wait["why"] == (
        f"node {node} is not healthy (AcceleratedHardwareReady): GPU has fallen off the bus"
    )
    assert state_of("broken")["waits_for"] == []


def test_a_job_in_a_queue_says_what_kueue_says(client, submit, loaded, state_of):
    """Without Kueue the label alone is named."""
    job = jobs.training_job("queued")
    job["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "research"
    job["spec"]["runPolicy"]["suspend"] = True
    made = submit(job)
    wait_for("the phase", lambda: state_of("queued")["phase"] == "Suspended")
    (wait,) = state_of("queued")["waits_for"]
    assert (wait["kind"], wait["why"], wait["ranks"]) == (
        "queue",
        "waits in the queue research",
        [0, 1],
    )
    client.apply(_WORKLOADS)
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "pytorchjob-queued",
            "namespace": _NAMESPACE,
            "labels": {"kueue.x-k8s.io/job-uid": made["metadata"]["uid"]},
        },
        "status": {
            "conditions": [
                {
                    "type": "QuotaReserved",
                    "status": "False",
                    "message": f"{hostile.ALL}: insufficient unused quota for nvidia.com/gpu",
                }
            ]
        },
    }
    try:
        wait_for("the kind", lambda: client.serves("kueue.x-k8s.io/v1beta2", "Workload"))
        client.create(workload)
        (wait,) = state_of("queued")["waits_for"]
        told = console()
        state = status.read(client, loaded, "queued")
        status_view.show(state, "table", told)
    finally:
        client.delete(
            "apiextensions.k8s.io/v1", "CustomResourceDefinition", "workloads.kueue.x-k8s.io"
        )
    assert wait["kind"] == "queue"
    assert wait["why"].startswith("waits in the queue research: ")
    assert wait["why"].endswith(": insufficient unused quota for nvidia.com/gpu")
    assert "insufficient unused quota" in written(told)
    assert hostile.acting(written(told)) == []
