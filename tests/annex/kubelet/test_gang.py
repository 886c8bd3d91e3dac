"""Ranks that wait for a lost peer and raise nothing: the watcher makes all of them start again."""

import contextlib
import json
import logging
import os
import re
import signal
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from megatron_eks.catalog.workloads import WITH_PODS, WORKLOADS, whole
from megatron_eks.kubernetes.client import wait_for
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.charts import rendered
from tests.programs.trainer_files import Run

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

_LOG = logging.getLogger(__name__)
_MEGATRON = "programs.train_megatron"


@pytest.fixture
def run(request, start):
    """Start a job of three nodes, and wait until it steps."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    found = start(runs.gang_job(name, 3))
    found.wait_for_step(after=10)
    return found


def _finish(cluster, run) -> None:
    """Let the run step on, then end: who finishes is not taken for lost."""
    run.wait_for_step(after=len(run.steps()) + 30)
    again = {step["start"] for step in run.steps()}
    run.finish()
    jobs.wait_for_condition(cluster.client, run.job, jobs.DONE[run.job["kind"]])
    assert {step["start"] for step in run.steps()} == again


def test_a_lost_rank_restarts_the_gang(cluster, run):
    """Its node's watcher tells the master's, which tells all; each pod restarts."""
    _, _, worker = jobs.pods_of(cluster.client, run.job)
    (rank,) = cluster.ranks_of(worker, _MEGATRON)
    os.kill(rank, signal.SIGKILL)
    assert run.wait_for_restart()["start"] >= 10
    pods = jobs.pods_of(cluster.client, run.job)
    restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods]
    # On a slow machine the first to be back may start once more, for those that come after it.
    assert set(restarts) <= {1, 2}
    _finish(cluster, run)


@pytest.mark.long
def test_a_lost_master_restarts_the_gang(cluster, run):
    """The other nodes read the master's file themselves."""
    master = jobs.pods_of(cluster.client, run.job)[0]
    (rank,) = cluster.ranks_of(master, _MEGATRON)
    os.kill(rank, signal.SIGKILL)
    run.wait_for_restart()
    _finish(cluster, run)


@pytest.mark.long
def test_a_deleted_pod_restarts_the_gang(cluster, run):
    """Its successor finds the others waiting for it anew."""
    worker = jobs.pods_of(cluster.client, run.job)[1]
    cluster.client.delete("v1", "Pod", worker["metadata"]["name"], "megatron-workshop")
    run.wait_for_restart()
    _finish(cluster, run)


@pytest.mark.long
def test_a_pod_that_dies_without_a_word_restarts_the_gang(cluster, run):
    """All its processes go at once, the watcher too: its file stands still, or is another's."""
    worker = jobs.pods_of(cluster.client, run.job)[1]
    doomed = cluster.processes_of(worker, "")
    for process in doomed:
        # Some end by themselves once the first is gone.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    run.wait_for_restart()
    _finish(cluster, run)


@pytest.mark.long
@pytest.mark.usefixtures("other_kinds", "as_on_eks")
@pytest.mark.parametrize(("kind", "rank"), [*((kind, 1) for kind in jobs.KINDS), ("PyTorchJob", 0)])
def test_a_lost_node_restarts_the_gang(cluster, start, kind, rank):
    """On a new node, with the same silent survivors: nobody's connection is closed by anybody."""
    job = runs.gang_job(f"gang-lost-{kind.lower()}-{rank}", 3, kind=kind)
    run = start(job)
    run.wait_for_step(after=10)
    node = cluster.lose_node(jobs.pods_of(cluster.client, job)[rank])
    # From the newest step that is recorded, as from the newest whole checkpoint.
    assert run.wait_for_restart()["start"] >= 10
    assert node not in {pod["spec"]["nodeName"] for pod in jobs.pods_of(cluster.client, job)}
    _finish(cluster, run)


_SHIPPED = {"train_fsdp": "fsdp-llama-2-7b", "train_ddp": "ddp-llama-3-2-1b"}


@pytest.mark.long
@pytest.mark.usefixtures("other_kinds")
@pytest.mark.parametrize("lost", ["rank", "pod", "node"])
@pytest.mark.parametrize("ranks", [*product(_SHIPPED, jobs.KINDS), ("train_ddp", "Job")])
def test_our_trainers_step_again(cluster, submit, request, ranks, lost):
    """From their newest checkpoint, whatever runs their ranks."""
    if lost == "node":
        request.getfixturevalue("as_on_eks")
    program, kind = ranks
    name = f"{lost}-{program.replace('_', '-')}-{kind.lower()}"
    files = Run(cluster.shared() / name, Path("python"), program)
    files.config["training"] |= {"max_steps": 10**6, "log_interval": 1}
    files.config["checkpoint"] |= {"interval": 5, "keep_last": 2}
    text = json.dumps(files.config).replace(str(files.root), f"/shared/{name}")
    (files.root / "config.json").write_text(text)
    plan = replace(
        rendered.training_job(name=_SHIPPED[program]),
        name=name,
        nodes=2,
        files={},
        workload=kind.lower(),
    )
    objects = rendered.jobs(plan)
    job = whole(rendered.only(objects, kind), objects)
    runs.hurry(job)
    if kind == "PyTorchJob":
        job["spec"]["nprocPerNode"] = "1"
    folder = f"/shared/logs/{name}"
    for pod in jobs.pod_specs(job):
        (container,) = pod["containers"]
        for each in (container, *pod["initContainers"]):
            each["image"] = runs.GANG
        words = [word.replace("node=8", "node=1") for word in container["command"]]
        container["command"] = [*words[:3], folder, *words[4:]]
        container["args"] = ["--config", f"/shared/{name}/config.json", "--device=cpu"]
        container["args"] += ["--heartbeats", f"{folder}/heartbeats"]
    for each in (*(each for each in objects if each["kind"] not in WITH_PODS), job):
        if each["kind"] not in WORKLOADS or each is job:
            submit(each)

    def newest(after: int) -> int:
        """Return the first step of the newest start, of several."""
        printed = runs.starts(cluster, name)
        steps = re.findall(r"^step (\d+)/", printed[-1], re.MULTILINE) if printed[after:] else ()
        return int(steps[0 if after else -1]) if steps else 0

    wait_for("steps", lambda: newest(0) >= 12, 240)
    before = len(runs.starts(cluster, name))
    cluster.lose(lost, jobs.pods_of(cluster.client, job)[1], program)
    began = time.monotonic()
    assert wait_for("steps of another start", lambda: newest(before), 240) >= 11
    _LOG.info("%s: %.0f s", name, time.monotonic() - began)
