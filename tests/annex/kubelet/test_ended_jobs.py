"""A job's reason outlives its pods and the job itself, whatever kind it is of."""

import json
import stat
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial

import pytest

from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.jobs import records, status, status_view
from megatron_eks.ops.jobs.logs import Options
from megatron_eks.ops.kube import jobs as running
from megatron_eks.ops.programs import Here
from megatron_eks.project import ROOT, load_project
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.charts import rendered
from tests.consoles import console

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

NAMESPACE = "megatron-workshop"
KILLED = 137
STEPS = (
    "echo ' [2026-11-20 10:40:00] iteration 400/ 400 | lm loss: 2.5E+00 |';"
    "echo '  successfully saved checkpoint from iteration 400 to /shared/checkpoints/run';"
    "echo '[after training is done] datetime: 2026-11-20 11:00:00'"
)
OUR_STEPS = (
    "echo 'step 400/400 | loss 2.50000 | grad norm 0.606 | lr 1.000e-03 | 0.071 s';"
    "echo 'saved checkpoint of step 400 to /shared/checkpoints/run';"
    """echo '{"program": "train_ddp", "step": 400, "loss": 2.5, "status": "finished"}'"""
)
# Jobs as they are shipped, of which nothing is there that they read; and what else may end one.
MISSING = {
    "megatron-gpt-7b": "error /shared/data/",
    "fsdp-llama-2-7b": "error device: 0 GPUs",
    "bridge-cpt-techpulse": "error /shared/data/",
    "data-prep-techpulse": "error /shared/tokenizer/",
    "import-llama-3-1-8b": "error /shared/models/",
    "export-techpulse": "error /shared/checkpoints/",
}
SCRIPTS = {
    "nccl-test-p4d": ("python -c 'import nothing_of_that_name'", "ModuleNotFoundError"),
    "fetch-tokenizer": ("python -c 'import os; os.kill(os.getpid(), 9)'", "exit code 137"),
    "megatron-cpt-techpulse": (STEPS, ""),
    "ddp-llama-3-2-1b": (OUR_STEPS, ""),
}


NEVER = "never-started"
ON_A_NODE = "on-a-node"


class Shared:
    """The way to a record: the real reader, on the folder that pods see as /shared."""

    name = "shared"

    def __init__(self, cluster):
        self._shared = cluster.shared()

    def run(self, program, args, tell):
        """Run it on this machine."""
        folder = self._shared / args[0].removeprefix("/shared/")
        return Here({}).run(program, [str(folder), *args[1:]], tell)


def shipped(name):
    """Return a job that a checkout starts with, of one process a pod, after what is beside it."""
    plan = rendered.training_job(name=name)
    plan = replace(plan, nodes=1) if plan.workload == "pytorchjob" else plan
    objects = rendered.jobs(plan)
    (job,) = (each for each in objects if each["kind"] in WORKLOADS)
    spec = job["spec"]
    # The operator fails a job at its first restart.
    spec.get("runPolicy", spec)["backoffLimit"] = 1 if "runPolicy" in spec else 0
    if "nprocPerNode" in spec:
        spec["nprocPerNode"] = "1"
    for _, pod in running.pod_specs(job):
        (container,) = pod["containers"]
        for each in (container, *pod.get("initContainers", ())):
            each["image"] = runs.GANG
        words = [word for word in container["command"] if "--nproc-per-node" not in word]
        container["command"] = words
        if name in SCRIPTS:
            container |= {"command": [*words[:5], "sh", "-c", SCRIPTS[name][0]], "args": []}
    return [*(each for each in objects if each is not job), job]


@pytest.fixture(scope="module")
def files():
    """Read the files that a checkout starts with."""
    return load_project(ROOT / "cluster.yaml", date(2026, 11, 22))


@pytest.fixture(scope="module")
def gone(cluster):
    """Return the way to the records of jobs that have all ended, and are gone with their pods."""
    client = cluster.client
    named = {"name": "hugging-face", "namespace": NAMESPACE}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": named}
    client.apply({**secret, "stringData": {"token": "hf_none"}})
    made = [[client.apply(each) for each in shipped(name)][-1] for name in (*MISSING, *SCRIPTS)]

    def ended(job):
        found = running.find(client, NAMESPACE, job["metadata"]["name"])
        return found is not None and found.ended

    for job in made:
        wait_for(f"the end of {job['metadata']['name']}", partial(ended, job), 150)
        if job["kind"] == "Job":
            for pod in running.pods_of(client, running.RunningJob(job)):
                cluster.force_delete(pod)
        jobs.delete(client, job)
    return Shared(cluster)


@pytest.fixture(scope="module")
def given(gone, files):
    """Return what gives the record of a job."""
    told = console()
    return lambda name: records.Record(gone, files, name, told)


def kept(cluster, name):
    """Return what is kept of the objects of a job."""
    files = (cluster.shared() / "logs" / name).glob("objects-*.json")
    return [json.loads(each.read_text()) for each in files]


@pytest.mark.usefixtures("gone")
def test_what_kubernetes_said_is_kept(cluster):
    """The job, its pods to their end, and the events; by their owner alone."""
    (found,) = kept(cluster, "fetch-tokenizer")
    assert running.RunningJob(found["job"]).ended == "Failed"
    (pod,) = found["pods"].values()
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == KILLED
    assert "env" not in pod["spec"]["containers"][0]
    assert {"Scheduled", "Started"} <= {each["reason"] for each in found["events"].values()}
    (file,) = (cluster.shared() / "logs" / "fetch-tokenizer").glob("objects-*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.usefixtures("gone")
def test_everything_that_was_missing_is_kept(cluster):
    """Base weights are named too, where the corpus alone would have stopped the run."""
    record = (cluster.shared() / "logs" / "bridge-cpt-techpulse").rglob("*.log*")
    assert any("no base weights" in each.read_text() for each in record)


def test_a_job_that_never_started_keeps_its_reason(cluster, given):
    """No container has written a line; the events say what it waited for."""
    objects = shipped("fetch-tokenizer")
    job = objects[-1]
    job["metadata"]["name"] = NEVER
    for _, pod in running.pod_specs(job):
        missing = {"secret": {"secretName": "nobody-has-it"}}
        pod["volumes"].append({"name": "missing", **missing})
    made = cluster.client.apply(job)

    def told():
        return any("nobody-has-it" in json.dumps(each["events"]) for each in kept(cluster, NEVER))

    wait_for("the event in the record", told, 60)
    jobs.delete(cluster.client, made)
    found = given(NEVER).explain(Options(), cluster.client)
    assert found.code == LogCode.CONFIG_MISSING


def test_what_was_said_of_a_node_is_the_reason(cluster, given):
    """Of the node that a pod was on, while it was there."""
    objects = shipped("fetch-tokenizer")
    job = objects[-1]
    job["metadata"]["name"] = ON_A_NODE
    for _, pod in running.pod_specs(job):
        (container,) = pod["containers"]
        words = [word.replace("fetch-tokenizer", ON_A_NODE) for word in container["command"][:5]]
        container |= {"command": [*words, "sh", "-c", "echo begun; sleep 600"], "args": []}
    made = cluster.client.apply(job)

    def runs_now():
        found = running.pods_of(cluster.client, running.RunningJob(made))
        return [each for each in found if each["status"]["phase"] == "Running"]

    def begun():
        found = (cluster.shared() / "logs" / ON_A_NODE).rglob("*.log")
        return any("begun" in each.read_text() for each in found)

    (pod,) = wait_for("its pod", runs_now, 90)
    # The first process of a container hears no signal before it has set itself to do so, and what
    # was kept before a start may be of an earlier job.
    wait_for("the program's first line", begun, 60)
    now = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": ON_A_NODE, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": pod["spec"]["nodeName"]},
        "reason": "NodeNotReady",
        "type": "Normal",
        "lastTimestamp": now,
    }
    cluster.client.apply(event)

    def told():
        return "NodeNotReady" in json.dumps(kept(cluster, ON_A_NODE))

    wait_for("the event in the record", told, 60)
    jobs.delete(cluster.client, made)
    found = given(ON_A_NODE).explain(Options(), cluster.client)
    assert found.cause == f"The node went away: NodeNotReady at {now[11:16]}."


@pytest.mark.parametrize(
    ("name", "reason"),
    [*MISSING.items(), *((name, reason) for name, (_, reason) in SCRIPTS.items())],
)
def test_one_command_finds_the_reason(cluster, files, given, name, reason):
    """From the record alone; `status` shows it too, with the command that explains it."""
    found = given(name).explain(Options(), cluster.client)
    record = partial(given(name).read, Options(), both=True)
    state = status.read(cluster.client, files, name, record=record)
    lines = "\n".join(status_view.lines(state))
    if not reason:
        assert found.ended_well
        assert f"{name}: Succeeded" in lines
        assert "step        400/400, loss 2.5" in lines
        assert "checkpoint  iteration 400" in lines
        return
    assert found.code is not None
    assert f"{name}: Failed" in lines
    assert reason in lines
    assert f"meks logs {name} --explain" in lines
