"""What upstream gives its users works here: its example jobs, and its Python client."""

import json
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from megatron_eks.kubernetes.client import Object, wait_for
from tests.annex import jobs
from tests.upstream.modules import module_directory

pytestmark = pytest.mark.control_plane

# The only one whose jobs the operator runs.
NAMESPACE = "megatron-workshop"

FILES = (
    "cpu-demo/demo.yaml",
    "deepspeed-demo/pytorch_deepspeed_demo.yaml",
    "elastic/echo/echo.yaml",
    "elastic/imagenet/imagenet.yaml",
    "mnist/v1/pytorch_job_mnist_gloo.yaml",
    "mnist/v1/pytorch_job_mnist_mpi.yaml",
    "mnist/v1/pytorch_job_mnist_nccl.yaml",
    "simple.yaml",
    "smoke-dist/pytorch_job_sendrecv.yaml",
)


@pytest.fixture(autouse=True, scope="module")
def unguarded(client):
    """Upstream's examples say nothing of security, so the namespace refuses their pods."""
    level = "pod-security.kubernetes.io/enforce"
    found = client.get("v1", "Namespace", NAMESPACE)
    labels = found["metadata"]["labels"]
    for enforced in ("privileged", labels[level]):
        metadata = {"name": NAMESPACE, "labels": {**labels, level: enforced}}
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        if enforced == "privileged":
            yield


def examples() -> Path:
    """Return upstream's own folder, in the module that the build downloads."""
    return module_directory("github.com/kubeflow/training-operator") / "examples" / "pytorch"


def example(file: str) -> Object:
    """Return a job of upstream's, in a namespace that exists."""
    (job,) = yaml.safe_load_all((examples() / file).read_text(encoding="utf-8"))
    job["metadata"]["namespace"] = NAMESPACE
    return dict(job)


def test_no_example_of_upstream_s_is_left_out():
    """Every file with a PyTorchJob."""
    files = examples().rglob("*.yaml")
    found = {
        str(file.relative_to(examples()))
        for file in files
        if "PyTorchJob" in file.read_text(encoding="utf-8")
    }
    assert found == set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_an_example_of_upstream_s_runs(client, submit, file):
    """Accepted strictly, and every pod gets a node; those with a GPU need one toleration more."""
    job = example(file)
    pods = jobs.pod_specs(job)
    wants_gpu = "nvidia.com/gpu" in str(pods)
    if wants_gpu:
        for pod in pods:
            pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    submit(job)
    replicas = job["spec"]["pytorchReplicaSpecs"].values()
    count = sum(each["replicas"] for each in replicas)
    found = jobs.wait_for_pods(client, job, count, "Running")
    assert all(pod["spec"]["nodeName"].startswith("p4d-") for pod in found) or not wants_gpu


def test_an_example_with_a_gpu_says_what_it_lacks(client, submit):
    """GPU nodes keep away what does not ask for them by name."""
    job = example("mnist/v1/pytorch_job_mnist_nccl.yaml")
    submit(job)
    wait_for(
        "the scheduler's reason",
        lambda: any("untolerated taint" in each["message"] for each in jobs.events_of(client, job)),
    )


@pytest.fixture
def training_client(client, control_plane):
    """Return upstream's client, with the kubeconfig that `meks local up` prints."""
    assert client
    # Here, because importing it takes a second and reads the machine's own kubeconfig.
    upstream = import_module("kubeflow.training")
    return upstream.TrainingClient(config_file=str(control_plane.kubeconfig), namespace=NAMESPACE)


def test_upstream_s_client_creates_lists_waits_and_deletes(training_client):
    """The whole life of a job, with nothing but the client's own calls."""
    name = "by-upstream-s-client"
    training_client.create_job(
        name=name,
        base_image="docker.io/library/python:3.11-slim",
        num_workers=2,
        num_procs_per_worker=1,
        resources_per_worker={"cpu": "1", "memory": "1Gi"},
    )
    job = training_client.wait_for_job_conditions(
        name, expected_conditions={"Running"}, wait_timeout=30, polling_interval=1
    )
    assert type(job).__name__ == "KubeflowOrgV1PyTorchJob"
    assert name in {each.metadata.name for each in training_client.list_jobs()}
    pods = training_client.get_job_pod_names(name)
    assert sorted(pods) == [f"{name}-master-0", f"{name}-worker-0"]
    # Ends the job as its own program would; nothing of KWOK's ends the pods of an operator.
    for pod in pods:
        finish = {"metadata": {"annotations": {"localcloud/complete-after": "1s"}}}
        training_client.core_api.patch_namespaced_pod(pod, NAMESPACE, finish)
    training_client.wait_for_job_conditions(name, wait_timeout=30, polling_interval=1)
    assert training_client.is_job_succeeded(name)
    training_client.delete_job(name)
    assert training_client.list_jobs() == []


def test_upstream_s_client_submits_our_own_job(client, training_client, submit):
    """The manifest of the charts, through upstream's model of it, runs as by `kubectl apply`."""
    job = jobs.training_job("through-upstream")
    response = SimpleNamespace(data=json.dumps(job))
    model = training_client.api_client.deserialize(response, "KubeflowOrgV1PyTorchJob")
    training_client.create_job(model, namespace="megatron-workshop")
    jobs.wait_for_pods(client, job, 2, "Running")
    # Nothing but a way to have it deleted at the end, as every other.
    submit(job)
