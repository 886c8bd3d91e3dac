"""Commands tell of a job what is true, whichever kind of object runs its ranks."""

import json
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial

import pytest
import yaml

from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import (
    cancel,
    holdings,
    logs,
    overview,
    records,
    rendering,
    status,
    status_view,
    submit,
    verify,
)
from megatron_eks.ops.jobs.logs import Options
from megatron_eks.ops.jobs.rendering import Wish
from megatron_eks.ops.kube import jobs as running
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from megatron_eks.project import ROOT, Project, load_project
from megatron_eks.synthesis import synthesise_manifests
from tests import schemas
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.annex.kubelet.test_ended_jobs import Shared
from tests.annex.kubelet.test_meks_status import WORDS
from tests.consoles import console, written

pytestmark = [
    pytest.mark.control_plane,
    pytest.mark.programs,
    pytest.mark.usefixtures("other_kinds"),
]

_NAMESPACE = "megatron-workshop"
_ALL = tuple(WORKLOADS.values())
_CHECK = "all-reduce"
_ARGS = ["--seq-length", "4096"]
# Rank 0 fails at its first start, after two steps more than were saved.
_SCRIPT = """
folder=/shared/logs/$0; mkdir -p $folder
rank=${PET_NODE_RANK:-$JOB_COMPLETION_INDEX}; echo "rank $rank is here"
[ $rank = 0 ] || while [ ! -e $folder/finish ]; do sleep 0.2; done
[ $rank = 0 ] || exit 0
if [ ! -e $folder/again ]; then
  touch $folder/again
  for i in 1 2 3 4; do line $i; done; saved 4; line 5; line 6
  echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1
fi
loaded 4; for i in 5 6 7 8; do line $i; done
while [ ! -e $folder/finish ]; do sleep 0.2; done
for i in 9 10; do line $i; done; saved 10; echo '[after training is done] datetime: now'
"""


@dataclass(frozen=True)
class _Run:
    """A job of two ranks, the first of which has started again, and the files that it is of."""

    job: Object
    kind: str
    project: Project
    console: Console

    @property
    def name(self) -> str:
        return str(self.job["metadata"]["name"])


@pytest.fixture(scope="module", params=jobs.KINDS)
def run(request, cluster):
    """Start the job, wait until it steps again, and delete it after the tests of its kind."""
    name = f"run-of-{request.param.lower()}"
    job = runs.job(name, 2, image=runs.GANG, kind=request.param)
    for pod in jobs.pod_specs(job):
        (container,) = pod["containers"]
        words = [*container["command"][:5], "sh", "-ec", WORDS + _SCRIPT, name]
        container |= {"command": words, "args": _ARGS}
    jobs.apply(cluster.client, job)
    files = load_project(ROOT / "cluster.yaml", date(2026, 11, 22))
    plan = next(each for each in files.jobs if each.name == "megatron-cpt-techpulse")
    planned = replace(files, jobs=(replace(plan, name=name, nodes=2, args=tuple(_ARGS)),))
    yield _Run(job, request.param, planned, console(yes=True))
    jobs.delete(cluster.client, job)


def _state(cluster, run, **how):
    found = status.read(cluster.client, run.project, run.name, **how)
    return schemas.checked("status", status_view.as_json(found))


def test_status_counts_restarts_and_what_they_cost(cluster, run):
    """In place or in new pods; where the lines before a restart went with their pod, it says so."""

    def at_eight():
        found = _state(cluster, run)
        # The first rank may be there before the second one's pod is, or is told to be.
        runs = found["phase"] == "Running" and not found["waits_for"]
        there = runs and (found["progress"] or {}).get("step") == 8
        return found if there else None

    found = wait_for("step 8", at_eight, 150)
    in_place = run.kind == "PyTorchJob"
    assert found["kind"] == run.kind
    again = found["restarts"]
    assert (again["gang"], again["used"], again["limit"] > 1) == (1, 1, True)
    assert again["lost_steps"] == (2 if in_place else None)
    assert found["checkpoint"]["iteration"] == 4
    assert len(found["ranks"]) == 2
    told = overview.read(cluster.client, run.project.cluster)
    (row,) = (each for each in told.jobs if each.name == run.name)
    assert (row.phase, row.ranks, row.running, row.restarts) == ("Running", 2, 2, 1)
    assert row.progress is not None
    assert row.progress.step == 8


def test_logs_of_both_ranks(cluster, run):
    """By the number of each."""
    assert logs.run(cluster.client, run.project.cluster, run.name, Options(), run.console) == 0
    lines = run.console.stdout.getvalue().splitlines()
    assert {"[0] rank 0 is here", "[1] rank 1 is here"} <= set(lines)


def test_what_ended_the_start_before_is_found_while_the_job_runs(cluster, run):
    """Also where the pod that knew it is gone."""
    options, words = Options(previous=True), "[0] torch.OutOfMemoryError: CUDA out of memory."
    if records.are_needed(cluster.client, run.project, run.name, None, back=True):
        assert run.kind != "PyTorchJob"
        record = records.Record(Shared(cluster), run.project, run.name, run.console)
        # What Kubernetes says of the new start is written some seconds after it.
        assert wait_for("the start before", lambda: words in record.read(options))
        return
    logs.run(cluster.client, run.project.cluster, run.name, replace(options, rank=0), run.console)
    assert words in run.console.stdout.getvalue().splitlines()


def test_cost_begins_before_the_restart(cluster, run):
    """Nodes were paid for from the first start on."""
    held = holdings.read(cluster.client, run.project.cluster, datetime.now(tz=UTC), run.name)
    (found,) = held.jobs
    assert (found.phase, found.pool, len(found.ranks)) == ("Running", "p4d", 2)
    live = running.get(cluster.client, _NAMESPACE, run.name)
    born = datetime.fromisoformat(live.manifest["metadata"]["creationTimestamp"])
    hours = (datetime.now(tz=UTC) - born).total_seconds() / 3600
    assert found.ranks[0].hours == pytest.approx(hours, abs=25 / 3600)


def test_its_end_is_told_and_outlives_it(cluster, run):
    """Success, then the record alone: of every pod that the job has had."""
    (cluster.shared() / "logs" / run.name / "finish").touch()

    def ended():
        found = _state(cluster, run)
        return found if found["phase"] == "Succeeded" else None

    assert wait_for("the end", ended, 90)["progress"]["step"] == 10
    assert verify.log_of(cluster.client, running.get(cluster.client, _NAMESPACE, run.name))
    (held,) = holdings.read(
        cluster.client, run.project.cluster, datetime.now(tz=UTC), run.name
    ).jobs
    assert held.ended is not None
    assert cancel.run(cluster.client, run.project.cluster, run.name, 90, run.console) == 0
    assert running.find(cluster.client, _NAMESPACE, run.name) is None

    record = records.Record(Shared(cluster), run.project, run.name, run.console)
    found = _state(cluster, run, record=partial(record.read, Options(), both=True))
    told = found["kind"], found["phase"], found["progress"]["step"]
    assert told == (run.kind, "Succeeded", 10)
    assert record.explain(Options(), cluster.client).ended_well
    (file,) = (cluster.shared() / "logs" / run.name).glob("objects-*.json")
    kept = json.loads(file.read_text())
    assert len(kept["pods"]) == (2 if run.kind == "PyTorchJob" else 4)
    assert (cluster.shared() / "logs" / run.name / "keep-days").read_text() == "7\n"


@pytest.fixture(params=jobs.KINDS[1:])
def own(request, tmp_path, project):
    """Write a project whose platform has another kind of jobs, and return its file and the kind."""
    shutil.copytree(project / "jobs", tmp_path / "jobs")
    cluster = yaml.safe_load((project / "cluster.yaml").read_text())
    cluster["platform"] = {"workload": request.param.lower()}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    return tmp_path / "cluster.yaml", request.param


def test_a_job_is_submitted_once_and_cancelled(cluster, own):
    """Found again by its name and hash, refused with other values, gone with all that it made."""
    file, kind = own
    today, client = datetime.now(tz=UTC).date(), cluster.client
    project, access = load_project(file, today), Access(cluster.client, is_local=True)
    told = console(yes=True)
    name = f"sent-as-{kind.lower()}"

    def send(*changes):
        values = [f"name={name}", f"checkpoint.directory=/shared/checkpoints/{name}", *changes]
        wish = Wish(file, "megatron-gpt-7b", rendering.parse(values), today)
        on = Opened(access, project, told)
        return submit.run(wish, submit.Options(previews=True), on)

    assert send() == 0
    first = running.get(client, _NAMESPACE, name)
    assert (first.kind, first.wanted) == (kind, 2)
    assert send() == 0
    assert running.get(client, _NAMESPACE, name).uid == first.uid
    with pytest.raises(Failure, match="train_iters: 10000 -> 9000"):
        send("training.train_iters=9000")
    assert cancel.run(client, project.cluster, name, 90, told) == 0
    left = [client.find(each.api_version, each.kind, name, _NAMESPACE) for each in _ALL]
    assert left == [None] * len(_ALL)
    assert client.find(_ALL[1].api_version, "TrainingRuntime", name, _NAMESPACE) is None


def test_a_check_runs_to_its_end_and_again(cluster, own, tmp_path):
    """An earlier one of its name makes room, with what it had become."""
    file, kind = own
    synthesise_manifests(file, tmp_path / "dist")
    project = load_project(file, datetime.now(tz=UTC).date())
    check = f"{_CHECK}-{project.cluster.pools[0].name}"
    uids = []
    for _ in range(2):
        told = console(yes=True)
        on = Opened(Access(cluster.client, is_local=True), project, told)
        assert verify.run("json", on, checks=[_CHECK], previews=True) == 4
        # The image has no such program here.
        (found,) = json.loads(written(told))["checks"]
        assert (found["name"], found["findings"][0]["code"]) == (check, "MEKS-0861")
        job = running.get(cluster.client, _NAMESPACE, check)
        assert (job.kind, job.ended) == (kind, "Failed")
        uids.append(job.uid)
    assert uids[0] != uids[1]
    assert cancel.run(cluster.client, project.cluster, check, 90, told) == 0
