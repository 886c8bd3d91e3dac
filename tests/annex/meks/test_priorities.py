"""Quotas and priorities of the platform, on a real API server and scheduler."""

import pytest

from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import ApiError, Object, wait_for
from tests.annex import jobs

pytestmark = pytest.mark.control_plane

NAMESPACE = "megatron-workshop"
GPU = "requests.nvidia.com/gpu"


def check_pod(emitted, name: str, gpus: int) -> Object:
    """Return the pod of the smoke test by itself, with another number of GPUs."""
    (job,) = manifests.read_file(emitted / "validation" / "nvidia-smi-p4d.k8s.yaml")
    spec = job["spec"]["template"]["spec"]
    for amounts in spec["containers"][0]["resources"].values():
        amounts["nvidia.com/gpu"] = gpus
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


@pytest.fixture
def checks(client, emitted):
    """Fill every GPU node with a check, so that no training pod finds room."""
    names = [f"check-{number}" for number in range(jobs.NODES)]
    for name in names:
        client.create(check_pod(emitted, name, gpus=5))
    wait_for("the checks", lambda: set(phases(client, names)) == {"Running"})
    yield names
    for name in names:
        client.delete("v1", "Pod", name, NAMESPACE, missing_ok=True)
    wait_for("deletion", lambda: not phases(client, names))


def phases(client, names: list[str]) -> list[str]:
    """Return the phases of those pods that exist."""
    found = [client.find("v1", "Pod", name, NAMESPACE) for name in names]
    return [pod["status"]["phase"] for pod in found if pod]


def test_training_takes_the_place_of_checks(client, checks, submit):
    """Even where checks hold GPUs of the quota: training is counted apart from them."""
    job = jobs.training_job("preempts", jobs.NODES)
    submit(job)
    jobs.wait_for_pods(client, job, jobs.NODES, "Running")
    assert phases(client, checks) == []
    reasons = {
        event["involvedObject"]["name"]: event["message"]
        for event in client.list("v1", "Event", NAMESPACE)
        if event["reason"] == "Preempted"
    }
    assert set(checks) <= set(reasons)


def test_a_check_takes_nobody_s_place(client, emitted, submit):
    """It waits beside a running job, and says what for."""
    job = jobs.training_job("keeps-its-nodes", jobs.NODES)
    submit(job)
    before = jobs.wait_for_pods(client, job, jobs.NODES, "Running")
    client.create(check_pod(emitted, "waits", gpus=1))

    def reason() -> str:
        status = client.get("v1", "Pod", "waits", NAMESPACE)["status"]
        found = [each.get("message", "") for each in status.get("conditions", ())]
        return next((each for each in found if "Insufficient nvidia.com/gpu" in each), "")

    try:
        assert "preemptionPolicy=Never" in wait_for("the scheduler", reason)
        after = jobs.pods_of(client, job)
        uids = [[pod["metadata"]["uid"] for pod in pods] for pods in (before, after)]
        assert uids[0] == uids[1]
    finally:
        client.delete("v1", "Pod", "waits", NAMESPACE)


def test_one_job_may_use_the_whole_quota_and_the_next_may_not(client, plan, submit):
    """The quota is what the pools have at their largest; the second job says why it has no pod."""
    first, second = jobs.training_job("first", jobs.NODES), jobs.training_job("second", 1)
    submit(first)
    jobs.wait_for_pods(client, first, jobs.NODES, "Running")
    gpus = str(jobs.NODES * plan.pools[0].instance.gpus)
    status = client.get("v1", "ResourceQuota", "training", NAMESPACE)["status"]
    assert status["hard"][GPU] == gpus
    wait_for(
        "the count",
        lambda: (
            client.get("v1", "ResourceQuota", "training", NAMESPACE)["status"]["used"][GPU] == gpus
        ),
    )
    submit(second)
    wait_for(
        "the refusal",
        lambda: any(
            f"exceeded quota: training, requested: {GPU}=8" in event["message"]
            for event in jobs.events_of(client, second)
        ),
    )
    assert jobs.pods_of(client, second) == []


def test_a_pod_without_gpus_is_not_held_back_by_the_quota_of_gpus(client, emitted):
    """Data preparation needs no GPU, and need not say that it needs none."""
    pod = check_pod(emitted, "no-gpu", gpus=0)
    del pod["spec"]["containers"][0]["resources"]
    client.create(pod, dry_run=True)


def test_a_class_that_nobody_made_is_refused(client, emitted):
    """What `meks validate` warns of."""
    pod = check_pod(emitted, "unknown-class", gpus=1)
    pod["spec"]["priorityClassName"] = "urgent"
    with pytest.raises(ApiError, match="no PriorityClass with name urgent was found"):
        client.create(pod, dry_run=True)


def test_a_job_on_the_whole_quota_gets_a_lost_pod_back(client, submit):
    """The count of the old pod goes a moment after the pod, and the operator asks again."""
    job = jobs.training_job("whole-quota", jobs.NODES)
    submit(job)
    *_, lost = jobs.wait_for_pods(client, job, jobs.NODES, "Running")
    client.delete("v1", "Pod", lost["metadata"]["name"], NAMESPACE)

    def again() -> bool:
        uids = {
            pod["metadata"]["uid"] for pod in jobs.wait_for_pods(client, job, jobs.NODES, "Running")
        }
        return lost["metadata"]["uid"] not in uids

    wait_for("the new pod", again)
