"""What the real operator and scheduler make of the jobs that the charts emit."""

from dataclasses import replace

import pytest

from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import ApiError, Object, wait_for
from megatron_eks.localcloud.kubernetes import nodes
from tests.annex import jobs

pytestmark = pytest.mark.control_plane


def test_the_default_job_runs_on_two_nodes(client, emitted, submit):
    """Master and worker are admitted under `restricted`, and each fills a node of the pool."""
    *_, job = manifests.read_file(emitted / "jobs" / "megatron-cpt-techpulse.k8s.yaml")
    submit(job)
    pods = jobs.wait_for_pods(client, job, 2, "Running")
    assert [pod["metadata"]["name"] for pod in pods] == [
        "megatron-cpt-techpulse-master-0",
        "megatron-cpt-techpulse-worker-0",
    ]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert all(pod["spec"]["nodeName"].startswith("p4d-") for pod in pods)
    assert [pod["metadata"]["labels"]["role"] for pod in pods] == ["master", "worker"]
    jobs.wait_for_condition(client, job, "Running")


def test_the_worker_waits_in_our_own_init_container(client, submit):
    """The operator read its template: its built-in container would have been refused."""
    job = jobs.training_job("init-container")
    submit(job)
    master, worker = jobs.wait_for_pods(client, job, 2, "Running")
    (policies,) = master["spec"]["initContainers"]
    *others, container = worker["spec"]["initContainers"]
    # Both wait for their policies first.
    assert [each["name"] for each in others] == [policies["name"]] == ["wait-for-policies"]
    assert container["image"].startswith("public.ecr.aws/docker/library/busybox:")
    assert container["securityContext"]["runAsNonRoot"] is True
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["MASTER"] == "init-container-master-0"
    assert variables["TRIES"] == "3600"


@pytest.mark.parametrize("count", [1, 2, 4])
def test_torchrun_is_told_rank_and_size(client, submit, count):
    """Everything torchrun needs stands in `PET_*`, and ranks are 0 to n-1, the master's first."""
    job = jobs.training_job(f"ranks-{count}", count)
    submit(job)
    pods = jobs.wait_for_pods(client, job, count, "Running")
    variables = [jobs.environment(pod) for pod in pods]
    assert [each["PET_NODE_RANK"] for each in variables] == [str(rank) for rank in range(count)]
    for each in variables:
        assert each["PET_NNODES"] == str(count)
        assert each["PET_NPROC_PER_NODE"] == "8"
        assert each["PET_MASTER_ADDR"] == f"ranks-{count}-master-0"
        assert each["PET_MASTER_PORT"] == "23456"
        assert each["WORLD_SIZE"] == str(8 * count)
    service = client.get("v1", "Service", f"ranks-{count}-master-0", "megatron-workshop")
    assert service["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize(
    ("resource", "offered"),
    [("vpc.amazonaws.com/efa", "0"), ("hugepages-2Mi", "0"), ("nvidia.com/gpu", "4")],
)
def test_a_job_waits_for_nodes_that_have_what_it_needs(client, plan, submit, resource, offered):
    """The scheduler says which resource is missing, and places nothing."""
    pool = f"without-{resource.split('/')[-1].lower()}"
    node = gpu_node(replace(plan.pools[0], name=pool, labels={"megatron-eks/pool": pool}), 0)
    for sums in node["status"].values():
        sums[resource] = offered
    client.create(node)
    name = node["metadata"]["name"]
    wait_for("the node", lambda: nodes.is_ready(client.get("v1", "Node", name)))
    job = jobs.training_job(pool, 1)
    for pod in jobs.pod_specs(job):
        pod["nodeSelector"] = {"megatron-eks/pool": pool}
    submit(job)

    def reason() -> str:
        conditions = [
            each
            for pod in jobs.pods_of(client, job)
            for each in pod["status"].get("conditions", [])
            if each["type"] == "PodScheduled" and each["status"] == "False"
        ]
        return " ".join(each["message"] for each in conditions)

    assert f"1 Insufficient {resource}" in wait_for("the scheduler's reason", reason)
    assert [pod["status"]["phase"] for pod in jobs.pods_of(client, job)] == ["Pending"]
    client.delete("v1", "Node", name)


def test_a_quota_holds_pods_back_with_a_reason(client, submit, request):
    """A job beyond the quota is accepted; its event says why a pod is missing."""
    job = jobs.training_job("too-large")
    namespace = job["metadata"]["namespace"]
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
    }
    client.apply(quota)
    request.addfinalizer(lambda: client.delete("v1", "ResourceQuota", "gpus", namespace))
    wait_for(
        "the quota",
        lambda: client.get("v1", "ResourceQuota", "gpus", namespace).get("status", {}).get("hard"),
    )
    submit(job)

    def refusals() -> list[str]:
        events: list[Object] = client.list("v1", "Event", namespace)
        return [each["message"] for each in events if "exceeded quota: gpus" in each["message"]]

    assert wait_for("the refusal", refusals)
    assert len(jobs.pods_of(client, job)) == 1


def test_a_job_succeeds_with_its_master(client, submit):
    """What a training run looks like from outside when it has come to its end."""
    job = jobs.training_job("ends")
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["metadata"]["annotations"] = {"localcloud/complete-after": "1s"}
    submit(job)
    jobs.wait_for_condition(client, job, "Succeeded")


def test_a_lost_pod_is_made_again(client, submit):
    """A pod that is gone with its node comes back under the same name and rank."""
    job = jobs.training_job("lost-pod")
    submit(job)
    _, worker = jobs.wait_for_pods(client, job, 2, "Running")
    client.delete("v1", "Pod", worker["metadata"]["name"], "megatron-workshop")

    def successor() -> Object | None:
        pods = {pod["metadata"]["name"]: pod for pod in jobs.pods_of(client, job)}
        found = pods.get(worker["metadata"]["name"])
        new = found and found["metadata"]["uid"] != worker["metadata"]["uid"]
        return found if new else None

    assert jobs.environment(wait_for("the new worker", successor))["PET_NODE_RANK"] == "1"


def test_without_its_operator_a_cluster_takes_no_job(client, operator, submit):
    """The webhook fails closed, and a running job outlives the operator's restart."""
    running = jobs.training_job("outlives")
    submit(running)
    before = jobs.wait_for_pods(client, running, 2, "Running")
    operator.stop()
    try:
        with pytest.raises(ApiError, match="failed calling webhook"):
            client.apply(jobs.training_job("unchecked"))
    finally:
        operator.start()
    client.apply(jobs.training_job("checked"), dry_run=True)
    after = jobs.pods_of(client, running)
    assert [pod["metadata"]["uid"] for pod in after] == [pod["metadata"]["uid"] for pod in before]
