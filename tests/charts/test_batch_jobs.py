"""Jobs that Kubernetes itself runs: a gang by index, programs without GPUs, files and tokens."""

import base64
import json
from dataclasses import replace
from typing import Any

from megatron_eks.plan.jobs.validation import plan_validation
from tests.charts.rendered import (
    JOB_LABEL,
    Manifest,
    cluster,
    jobs,
    only,
    outputs,
    pod,
    training_job,
)

DDP = training_job(name="ddp-llama-3-2-1b")
FETCH = training_job(name="fetch-llama-3-1-8b")
FSDP = training_job(name="fsdp-llama-2-7b")


def job_of(**changes: Any) -> Manifest:
    """Render the DDP job with another value for some fields of its plan."""
    return only(jobs(replace(DDP, **changes)), "Job")


def test_each_node_is_a_pod_with_an_index():
    """All at once: a rank that waits for a place would keep the others waiting."""
    spec = job_of(nodes=5)["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 5


def test_ranks_are_found_by_name_before_they_are_ready():
    """The Service of the job's name gives each pod JOB-INDEX.JOB, as torchrun is told."""
    rendered = jobs(DDP)
    service, job = only(rendered, "Service"), only(rendered, "Job")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {JOB_LABEL: job["metadata"]["name"]}
    assert pod(job).spec["subdomain"] == service["metadata"]["name"]
    index_0 = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert f"--master-addr={index_0}" in pod(job).container["command"]


def test_a_lost_rank_restarts_in_its_pod():
    """Torchrun hides the exit code of its program, so no rule could tell failures apart."""
    job = job_of()
    assert pod(job).spec["restartPolicy"] == "OnFailure"
    assert "podFailurePolicy" not in job["spec"]
    assert job["spec"]["backoffLimit"] == DDP.backoff_limit == 7


def test_a_task_gives_up_where_another_try_cannot_help():
    """Usage, not found, check failed; a pod that lost its node does not count."""
    spec = only(jobs(FETCH), "Job")["spec"]
    codes, lost = spec["podFailurePolicy"]["rules"]
    assert codes["action"] == "FailJob"
    assert codes["onExitCodes"] == {
        "containerName": "pytorch",
        "operator": "In",
        "values": [2, 3, 4],
    }
    assert lost == {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    # Kubernetes takes such rules with this policy alone.
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_a_task_runs_on_the_system_nodes_unless_it_names_a_pool():
    """There is nothing it would need of a GPU node but memory."""
    fetch = pod(only(jobs(FETCH), "Job")).spec
    assert "nodeSelector" not in fetch
    assert {each["key"] for each in fetch["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    convert = pod(only(jobs(training_job(name="import-llama-3-1-8b")), "Job"))
    assert convert.spec["nodeSelector"] == {"megatron-eks/pool": "p4d"}
    assert "nvidia.com/gpu" not in convert.container["resources"]["limits"]


def test_a_token_is_a_file_and_has_to_be_there():
    """A pod waits for a Secret that nobody made, and says so in its events."""
    spec = pod(only(jobs(FETCH), "Job")).spec
    (volume,) = [each for each in spec["volumes"] if "secret" in each]
    assert volume["secret"] == {
        "secretName": "hugging-face",
        "optional": False,
        "items": [{"key": "token", "path": "token"}],
    }
    mounts = {each["name"]: each for each in spec["containers"][0]["volumeMounts"]}
    assert mounts[volume["name"]]["mountPath"] == "/var/run/secrets/huggingface"
    assert mounts[volume["name"]]["readOnly"] is True


def test_files_come_as_a_config_map_of_their_content():
    """A job that runs keeps its own, whatever is applied later."""
    rendered = jobs(FSDP)
    config = only(rendered, "ConfigMap")
    assert config["data"] == FSDP.files
    assert config["immutable"] is True
    spec = only(rendered, "PyTorchJob")["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    (volume,) = [each for each in spec["volumes"] if "configMap" in each]
    assert volume["configMap"] == {"name": config["metadata"]["name"]}
    other = only(jobs(replace(FSDP, files={"train_fsdp.json": "{}"})), "ConfigMap")
    assert other["metadata"]["name"] != config["metadata"]["name"]


def test_binary_files_arrive_as_they_are():
    """The data set of the sample training is no text."""
    (sample,) = [
        job
        for job in plan_validation(cluster(), outputs().images)
        if job.name == "sample-training-p4d"
    ]
    config = only(jobs(sample), "ConfigMap")
    for name in ("sample.bin", "sample.idx"):
        assert base64.b64decode(config["binaryData"][name]) == sample.files[name]
    assert json.loads(config["data"]["train_fsdp.json"])["training"]["max_steps"] == 20
