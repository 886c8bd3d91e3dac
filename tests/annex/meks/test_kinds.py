"""Every shipped job and every test of a pool, admitted, placed and brought to an end."""

from dataclasses import replace

import pytest

from megatron_eks.kubernetes import manifests
from megatron_eks.kubernetes.client import Client, Object, wait_for
from megatron_eks.plan.jobs.job import Rendezvous
from megatron_eks.project import ROOT
from tests.annex import jobs
from tests.charts import rendered

pytestmark = pytest.mark.control_plane

SHIPPED = sorted(f"jobs/{file.stem}" for file in (ROOT / "jobs").iterdir())
POOL_TESTS = [
    f"validation/{name}-p4d"
    for name in ("all-reduce", "efa-check", "nvidia-smi", "sample-training", "storage")
]


@pytest.mark.parametrize("file", [*SHIPPED, *POOL_TESTS])
def test_its_pods_are_admitted_and_run(client, emitted, submit, file):
    """The operator's pods run, those of a Job run to their end."""
    objects = manifests.read_file(emitted / f"{file}.k8s.yaml")
    for each in objects:
        submit(each)
    if (found := [each for each in objects if each["kind"] == "PyTorchJob"]) != []:
        (job,) = found
        jobs.wait_for_pods(client, job, _nodes(job), "Running")
    else:
        (job,) = [each for each in objects if each["kind"] == "Job"]
        wait_for_success(client, job)


def test_pods_of_an_indexed_job_know_their_rank(client, submit):
    """The variable that torchrun's arguments name is there, and each has the name of its index."""
    plan = replace(rendered.training_job(name="ddp-llama-3-2-1b"), name="ranks-by-index")
    for each in rendered.jobs(plan):
        submit(each)
    labels = "batch.kubernetes.io/job-name=ranks-by-index"

    def found() -> list[Object]:
        pods: list[Object] = client.list("v1", "Pod", "megatron-workshop", labels=labels)
        return pods if len(pods) == plan.nodes else []

    pods = sorted(wait_for("the pods", found), key=lambda pod: str(pod["spec"]["hostname"]))
    assert [pod["spec"]["hostname"] for pod in pods] == ["ranks-by-index-0", "ranks-by-index-1"]
    assert {pod["spec"]["subdomain"] for pod in pods} == {"ranks-by-index"}
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert "JOB_COMPLETION_INDEX" in {each["name"] for each in container["env"]}


def test_ranks_without_a_master_are_told_where_to_meet(client, submit):
    """Everything torchrun needs for c10d, and no rank."""
    meeting = Rendezvous("c10d", 1, 2, max_restarts=3)
    plan = replace(rendered.training_job(), name="elastic", rendezvous=meeting)
    job = rendered.only(rendered.jobs(plan), "PyTorchJob")
    submit(job)
    for pod in jobs.wait_for_pods(client, job, 2, "Running"):
        variables = jobs.environment(pod)
        assert variables["PET_RDZV_BACKEND"] == "c10d"
        assert variables["PET_RDZV_ENDPOINT"] == "elastic-worker-0:23456"
        assert variables["PET_RDZV_ID"] == "elastic"
        assert variables["PET_NNODES"] == "1:2"
        assert variables["PET_NPROC_PER_NODE"] == "8"
        assert variables["PET_MAX_RESTARTS"] == "3"
        assert "PET_NODE_RANK" not in variables
        names = [each["name"] for each in pod["spec"]["initContainers"]]
        assert names == ["wait-for-policies"]


def test_etcd_gets_its_pod(client, submit):
    """In the namespace of jobs, under its level."""
    found = rendered.platform(rendered.other_platform(etcd=True))
    for each in found:
        if "etcd" in each["metadata"]["name"]:
            submit(each)
    wait_for(
        "etcd",
        lambda: client.get("apps/v1", "Deployment", "etcd", "megatron-workshop")["status"].get(
            "readyReplicas"
        ),
    )


def wait_for_success(client: Client, job: Object) -> None:
    """Wait until all pods of a Job have succeeded."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    wanted = job["spec"].get("completions", 1)
    wait_for(
        f"{name} to succeed",
        lambda: client.get("batch/v1", "Job", name, namespace)["status"].get("succeeded") == wanted,
    )


def _nodes(job: Object) -> int:
    return sum(each["replicas"] for each in job["spec"]["pytorchReplicaSpecs"].values())
