"""`meks submit`, `status` and `cancel` on a real API server, operator and scheduler."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from megatron_eks.config.errors import ConfigError
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import (
    cancel,
    overview,
    rendering,
    status,
    status_view,
    submission,
    submit,
)
from megatron_eks.ops.jobs.rendering import Wish
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from megatron_eks.plan.jobs.job import JOB_LABEL
from megatron_eks.project import load_project
from tests import command, schemas
from tests.annex import jobs
from tests.annex.meks.submitting import NAMESPACE, job_name, loaded, send, small

__all__ = ["job_name", "loaded", "send", "small"]

pytestmark = pytest.mark.control_plane


def running(client, name, count=2):
    """Wait until a job's pods run."""
    job = client.get("kubeflow.org/v1", "PyTorchJob", name, NAMESPACE)
    return jobs.wait_for_pods(client, job, count, "Running")


def said(console):
    """Return what was said so far."""
    return console.stderr.getvalue()


def state_of(client, loaded, console, name):
    """Return what `meks status JOB -o json` prints."""
    start = len(console.stdout.getvalue())
    assert status_view.show(status.read(client, loaded, name), "json", console) == 0
    return schemas.read("status", console.stdout.getvalue()[start:])


def test_a_job_of_another_cluster_is_refused(client, small, console, tmp_path):
    """The API server is one that another cluster file has set up."""
    shutil.copytree(small.parent / "jobs", tmp_path / "jobs")
    file = tmp_path / "cluster.yaml"
    file.write_text(small.read_text().replace("name: techpulse", "name: other"))
    today = datetime.now(tz=UTC).date()
    project = load_project(file, today)
    wish = Wish(file, "fetch-tokenizer", rendering.parse(["name=of-other"]), today)
    on = Opened(Access(client, is_local=True), project, console)
    with pytest.raises(Failure, match=r"MEKS-0724 Namespace .* belongs to cluster 'techpulse'"):
        submit.run(wish, submit.Options(previews=True), on)
    assert client.find("batch/v1", "Job", "of-other", NAMESPACE) is None


def test_submitting_twice_starts_one_job(client, send, console, job_name):
    """The second time it is found, by its name and a hash of all that was rendered."""
    assert send() == 0
    first = client.get("kubeflow.org/v1", "PyTorchJob", job_name, NAMESPACE)
    running(client, job_name)
    assert send() == 0
    again = client.get("kubeflow.org/v1", "PyTorchJob", job_name, NAMESPACE)
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    assert f"{job_name}: Running, 2 of 2 ranks run" in said(console)


def test_another_specification_is_refused_with_the_commands_to_run(client, send, job_name):
    """What differs is named; nothing is changed."""
    send()
    with pytest.raises(Failure) as raised:
        send("megatron-gpt-7b", "training.train_iters=9000", command=("meks", "submit", "x"))
    message = str(raised.value)
    assert message.startswith(f"MEKS-0728 {job_name} is there already, with another ")
    assert "specification: training.train_iters: 10000 -> 9000 - " in message
    assert f"meks cancel {job_name} && meks submit x" in message
    assert raised.value.code == 1
    live = client.get("kubeflow.org/v1", "PyTorchJob", job_name, NAMESPACE)
    assert "10000" in str(live["spec"])
    # Values of a job's own variables stay out of a message that ends in logs.
    with pytest.raises(Failure) as raised:
        send("megatron-gpt-7b", "runtime.env.APP=Tr0ub4dor")
    assert "Tr0ub4dor" not in str(raised.value)
    assert "another specification: runtime.env.APP - " in str(raised.value)


def test_a_run_is_compared_with_the_one_before_it(  # noqa: PLR0917 -- its fixtures
    client, loaded, send, console, job_name, monkeypatch
):
    """Also when that is cancelled: what changes is said, and what cannot load starts no node."""

    def again(*changes, **options):
        cancel.run(client, loaded.cluster, job_name, 60, console)
        return send("megatron-gpt-7b", *changes, **options)

    send()
    again("training.train_iters=20000")
    note = f"note: if it goes on from /shared/checkpoints/{job_name}: training.train_iters: 10000 "
    assert f"{note}-> 20000: " in said(console)
    monkeypatch.setattr(submission, "checkpoint_in", lambda *_: True)
    with pytest.raises(Failure) as raised:
        again("training.learning_rate=1e-3", "training.train_iters=20000")
    assert "MEKS-0737" in str(raised.value)
    assert "training.learning_rate" in str(raised.value)
    assert client.find("kubeflow.org/v1", "PyTorchJob", job_name, NAMESPACE) is None
    monkeypatch.setattr(submission, "checkpoint_in", lambda *_: False)
    assert send("megatron-gpt-7b", "training.learning_rate=1e-3") == 0


def test_validate_tells_what_the_cluster_remembers(send, small, control_plane, job_name, tmp_path):
    """At the line of the job file; the cluster is asked with `--live` alone."""
    send()
    text = (small.parent / "jobs" / "megatron-gpt-7b.yaml").read_text()
    text = text.replace("/shared/checkpoints/gpt-7b", f"/shared/checkpoints/{job_name}")
    text = text.replace("train_iters: 10000", "train_iters: 20000")
    (file := tmp_path / "longer.yaml").write_text(text)
    words = "validate", file, "--cluster", small, "-o", "json"
    kubeconfig = "--kubeconfig", control_plane.kubeconfig
    done = command.meks(*words, "--live", *kubeconfig)
    assert done.returncode == 0, done.stderr
    found = {each["path"]: each for each in json.loads(done.stdout) if each["code"] == "MEKS-0738"}
    assert found.keys() == {"training.train_iters", "training.decay_iters"}
    more = found["training.train_iters"]
    assert more["file"] == str(file)
    assert "10000 -> 20000: the run goes on until there" in more["found"]
    assert "MEKS-0738" not in command.meks(*words).stdout


def test_an_override_is_checked_like_the_file(send):
    """What stands in no file is told at the command line; what stays has its line."""
    with pytest.raises(ConfigError) as raised:
        send("megatron-gpt-7b", "training.nope=1", "training.train_iters=lots")
    found = {str(finding.code): finding for finding in raised.value.findings}
    assert str(found["MEKS-0101"]).startswith("error MEKS-0101 command line training.nope: ")
    assert str(found["MEKS-0103"]).startswith("error MEKS-0103 command line training.train_iters: ")


@pytest.mark.programs
def test_megatron_is_asked_before_a_job_starts(send):
    """What it refuses, it refuses here."""
    with pytest.raises(ConfigError, match=r"Megatron 0.19.2 says"):
        send("megatron-gpt-7b", 'extra_args=["--adam-eps", "small"]')


def test_what_a_job_lacks_is_said_before_anything_is_created(client, send, job_name):
    """Its pods would wait for the Secret for ever."""
    with pytest.raises(Failure, match="MEKS-0730 there is no Secret hugging-face - meks secret"):
        send("fetch-tokenizer")
    assert client.find("batch/v1", "Job", job_name, NAMESPACE) is None


def test_a_job_that_the_deployed_role_does_not_reach_is_refused(  # noqa: PLR0917 -- its fixtures
    client, loaded, small, console, job_name, monkeypatch
):
    """Its copies would be denied after its GPUs were paid for; nothing is created."""
    role = "arn:aws:iam::111122223333:role/Jobs"
    deployed = replace(loaded, outputs=replace(loaded.outputs, job_role=role))
    uri = "s3://models/runs/new"
    changes = [f"name={job_name}", f"checkpoint.s3_uri={uri}"]
    wish = Wish(small, "megatron-gpt-7b", rendering.parse(changes), datetime.now(tz=UTC).date())
    asked = []

    def out_of_reach(_, arn, access):
        asked.append((arn, access.writes))
        return access.writes

    monkeypatch.setattr(submission, "out_of_reach", out_of_reach)
    on = Opened(Access(client, is_local=True), deployed, console)
    with pytest.raises(Failure, match="run: meks deploy Storage") as caught:
        submit.run(wish, submit.Options(previews=True), on)
    assert (caught.value.finding, asked) == ("MEKS-0839", [(role, (uri,))])
    assert client.find("kubeflow.org/v1", "PyTorchJob", job_name, NAMESPACE) is None


def test_a_job_that_finds_no_room_says_what_it_waits_for(client, loaded, send, console, job_name):
    """Of its own quota, of nodes in use, of nodes that are not there."""
    send("megatron-gpt-7b", "nodes=4", name="fills-the-pool")
    running(client, "fills-the-pool", 4)
    send()
    assert "it will wait: quota training allows 32 nvidia.com/gpu, 32 are in use" in said(console)
    room = "it will wait: pool p4d has room for 0 of 2 pods; the rest of it is in use by "
    assert f"{room}fills-the-pool - " in said(console)

    def reasons() -> str:
        found = state_of(client, loaded, console, job_name)
        return " ".join(wait["why"] for wait in found["waits_for"])

    wait_for("the reason", lambda: "exceeded quota: training" in reasons())
    assert state_of(client, loaded, console, job_name)["phase"] == "Pending"


def test_nodes_that_are_missing_are_taken_with_a_command(client, send, console):
    """A cordoned node counts as none."""
    path = "/api/v1/nodes/p4d-0"
    patch = "application/merge-patch+json"
    client.request("PATCH", path, {"spec": {"unschedulable": True}}, None, patch)
    try:
        send("megatron-gpt-7b", "nodes=4")
    finally:
        client.request("PATCH", path, {"spec": {"unschedulable": None}}, None, patch)
    assert "pool p4d has 3 of the 4 nodes that this takes - take them: meks scale p4d 4" in (
        said(console)
    )


def test_status_shows_each_rank_with_its_own_node(client, loaded, send, console, job_name):
    """Ranks are torchrun's: the master's is 0."""
    send()
    pods = running(client, job_name)
    found = state_of(client, loaded, console, job_name)
    assert (found["phase"], found["kind"], found["waits_for"]) == ("Running", "PyTorchJob", [])
    assert [(each["rank"], each["pod"], each["node"]) for each in found["ranks"]] == [
        (number, pod["metadata"]["name"], pod["spec"]["nodeName"])
        for number, pod in enumerate(pods)
    ]


def test_status_of_the_cluster_has_pools_and_jobs(client, loaded, send, job_name):
    """GPUs in use are those that pods have asked for."""
    send()
    running(client, job_name)
    found = schemas.checked("status", overview.as_json(overview.read(client, loaded.cluster)))
    pool = next(each for each in found["pools"] if each["pool"] == "p4d")
    assert (pool["nodes"], pool["gpus"], pool["free_gpus"]) == (4, 32, 16)
    (job,) = (each for each in found["jobs"] if each["name"] == job_name)
    assert (job["phase"], job["running"], job["ranks"]) == ("Running", 2, 2)


def test_cancel_returns_when_the_pods_are_gone(client, loaded, send, console, job_name):
    """With them goes what was made for them; a second run says that there is none."""
    send("fsdp-llama-2-7b")
    running(client, job_name)
    policy = client.get("networking.k8s.io/v1", "NetworkPolicy", f"ranks-of-{job_name}", NAMESPACE)
    selected = policy["spec"]["podSelector"]["matchLabels"]
    (label,) = (f"{key}={value}" for key, value in selected.items())
    assert len(client.list("v1", "Pod", NAMESPACE, labels=label)) == 2
    assert cancel.run(client, loaded.cluster, job_name, 60, console) == 0
    labels = f"training.kubeflow.org/job-name={job_name}"
    assert client.list("v1", "Pod", NAMESPACE, labels=labels) == []
    beside = f"{JOB_LABEL}={job_name}"
    assert client.list("v1", "ConfigMap", NAMESPACE, labels=beside) == []
    policies = client.list("networking.k8s.io/v1", "NetworkPolicy", NAMESPACE)
    assert f"ranks-of-{job_name}" not in {each["metadata"]["name"] for each in policies}
    with pytest.raises(Failure, match="MEKS-0729 no job") as raised:
        cancel.run(client, loaded.cluster, job_name, 60, console)
    assert raised.value.code == 3


def test_waiting_ends_with_the_job(client, send, console, job_name):
    """KWOK ends pods that say so."""
    send()
    for pod in running(client, job_name):
        annotations = {"localcloud/complete-after": "1s"}
        client.request(
            "PATCH",
            f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}",
            {"metadata": {"annotations": annotations}},
            None,
            "application/merge-patch+json",
        )
    assert send(wait=True) == 0
    assert f"{job_name}: Succeeded" in said(console)
