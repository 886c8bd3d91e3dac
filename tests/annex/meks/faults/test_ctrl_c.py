"""Ctrl-C while a command waits for the cluster."""

import pytest
import yaml

from megatron_eks.kubernetes import manifests
from megatron_eks.ops.console import SystemClock
from tests.annex import jobs
from tests.annex.meks.faults.world import NAMESPACE

pytestmark = pytest.mark.control_plane


@pytest.fixture
def ctrl_c(monkeypatch):
    """Let somebody press Ctrl-C as soon as a command waits."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "sleep", interrupted)


def test_ctrl_c_while_a_job_is_cancelled_says_how_to_come_back(
    unreachable, send, client, capfd, ctrl_c
):
    """What Kubernetes was told stays told; the same command waits on."""
    del ctrl_c
    send(client, "cancelled")
    job = client.get("kubeflow.org/v1", "PyTorchJob", "cancelled", NAMESPACE)
    (pod, *_) = jobs.wait_for_pods(client, job, 2, "Running")
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
    patch = "application/merge-patch+json"
    # As on a node that is lost, the pod stays for a while.
    client.request("PATCH", path, {"metadata": {"finalizers": ["test/keep"]}}, None, patch)
    try:
        assert unreachable(["cancel", "cancelled", "--yes"]) == 130
        err = capfd.readouterr().err
        assert "interrupted: what was done stays done; to go on: meks cancel cancelled --yes" in err
        assert "Traceback" not in err
        assert client.find("kubeflow.org/v1", "PyTorchJob", "cancelled", NAMESPACE) is None
    finally:
        client.request("PATCH", path, {"metadata": {"finalizers": None}}, None, patch)


def test_ctrl_c_while_a_remedy_is_awaited_says_how_to_come_back(
    unreachable, client, emitted, capfd, ctrl_c
):
    """What was applied stays applied; the same command looks again."""
    del ctrl_c
    place = ("apps/v1", "DaemonSet", "nvidia-device-plugin", "kube-system")
    client.delete(*place)
    code = unreachable(["fix", "0847", "--yes", "--preview"])
    err = capfd.readouterr().err
    there = client.find(*place)
    # As other tests know it: without the label of what `meks` has applied.
    client.delete(*place, missing_ok=True)
    for each in manifests.read(emitted / "platform"):
        if (each["kind"], each["metadata"]["name"]) == place[1:3]:
            client.apply(each)
    # Whether it has to wait, the API server decides.
    assert (code, "to go on: meks fix 0847" in err) in {(130, True), (0, False)}, err
    assert there


def test_ctrl_c_while_the_platform_is_awaited_says_how_to_come_back(
    unreachable, client, capfd, ctrl_c, tmp_path
):
    """What was applied is there, what needs it is not; the same command goes on."""
    del ctrl_c
    pod = {"containers": [{"name": "a", "image": "a"}], "nodeSelector": {"no": "node"}}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "never-ready", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"app": "never"}},
            "template": {"metadata": {"labels": {"app": "never"}}, "spec": pod},
        },
    }
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump_all([workload, jobs.training_job("comes-after")]))
    try:
        assert unreachable(["apply", str(file), "--yes", "--preview"]) == 130
        err = capfd.readouterr().err
        assert f"to go on: meks apply {file} --yes --preview" in err
        assert client.find("apps/v1", "Deployment", "never-ready", "kube-system")
        assert client.find("kubeflow.org/v1", "PyTorchJob", "comes-after", NAMESPACE) is None
    finally:
        client.delete("apps/v1", "Deployment", "never-ready", "kube-system", missing_ok=True)


def test_ctrl_c_while_a_check_runs_says_how_to_come_back(unreachable, client, capfd, ctrl_c):
    """The check goes on in the cluster, and the next run follows it."""
    del ctrl_c
    try:
        assert unreachable(["verify", "p4d", "--check", "nvidia-smi", "--preview"]) == 130
        err = capfd.readouterr().err
        assert "goes on, and ends within the hour; to end it: meks cancel nvidia-smi-p4d" in err
        assert client.find("batch/v1", "Job", "nvidia-smi-p4d", NAMESPACE)
    finally:
        client.delete("batch/v1", "Job", "nvidia-smi-p4d", NAMESPACE, missing_ok=True)
