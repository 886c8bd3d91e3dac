"""Jobs that Kubernetes itself runs: a gang by index, and files."""

from dataclasses import replace
from typing import Any

from tests.charts.rendered import Manifest, jobs, only, training_job

DDP = training_job(name="ddp-llama-3-2-1b")
FSDP = training_job(name="fsdp-llama-2-7b")


def job_of(**changes: Any) -> Manifest:
    """Render the DDP job with another value for some fields of its plan."""
    return only(jobs(replace(DDP, **changes)), "Job")


def test_each_node_is_a_pod_with_an_index():
    """All at once: a rank that waits for a place would keep the others waiting."""
    spec = job_of(nodes=5)["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 5


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
