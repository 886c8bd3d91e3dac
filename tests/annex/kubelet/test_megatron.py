"""Megatron itself on process nodes, in a job of our chart on the real operator."""

import contextlib
import logging
import os
import re
import signal
import time
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.plan.cluster.platform import TRAINING_PRIORITY, VALIDATION_PRIORITY
from megatron_eks.plan.cluster.queues import queue_labels
from tests.annex import jobs
from tests.annex.kubelet import cables, runs
from tests.annex.pids import alive
from tests.charts import rendered
from tests.programs import prepare_files
from tests.programs.megatron_run import (
    TRACKER,
    MegatronRun,
    from_iteration,
    prepare,
    printed,
    starts,
)

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

_LOG = logging.getLogger(__name__)

ITERATIONS, INTERVAL = 120, 20
_SECONDS = 240
# Losses have six digits behind the point, and one line of a start is the mean of two of them.
_LAST_DIGIT = 1.5e-6
_STEP = re.compile(r"\[([-\d]+ [:.\d]+)\] iteration +(\d+)/")


@pytest.fixture(scope="module")
def folder(cluster) -> Path:
    """Return the job's folder on the file system that pods see as /shared, with its data."""
    found: Path = cluster.shared() / "tiny"
    tokenizer = found / "tokenizer"
    tokenizer.mkdir(parents=True)
    prepare_files.python(prepare_files.TRAIN, tokenizer, prepare_files.BOS, prepare_files.EOD)
    prepare(found, tokenizer)
    return found


# Saved by the ranks themselves: processes that save import torch for longer than 20 steps take.
_ASYNC = frozenset({"--async-save", "--use-persistent-ckpt-worker"})


def _job(
    name: str,
    iterations: int,
    *more: str,
    without: frozenset[str] = frozenset(),
    kind: str = "PyTorchJob",
):
    """Return the default job with a tiny model in the place of its own, on two pods of a rank."""
    inside = Path("/shared/tiny")
    tiny = MegatronRun(inside / name, inside / "documents_text_document", inside / "tokenizer")
    found = runs.job(name, 2, image=runs.MEGATRON, kind=kind)
    for pod in jobs.pod_specs(found):
        args = pod["containers"][0]["args"]
        length = ["--train-iters", str(iterations), "--save-interval", str(INTERVAL)]
        words = [word for word in tiny.words if word not in without]
        args[args.index("--") + 1 :] = [*words, *length, *more]
    return found


def _said(logs: Path, rank: int) -> str:
    """Return what a rank has printed in all its starts."""
    found = sorted(logs.glob(f"*/rank-{rank:05}*.log"))
    return "".join(log.read_text(errors="replace") for log in found)


@pytest.mark.long
def test_a_killed_rank_resumes(cluster, submit, folder):
    """Tensor parallel over two pods; from its newest checkpoint on it prints the same losses."""
    job = _job("megatron-killed", ITERATIONS)
    submit(job)
    # The last rank prints them, as it does on GPUs.
    logs = cluster.shared() / "logs" / "megatron-killed"
    tracker = folder / "megatron-killed" / "checkpoints" / TRACKER

    def saved() -> int:
        # Megatron empties the file before it writes it anew.
        return int(tracker.read_text() or 0) if tracker.exists() else 0

    def between_saves() -> bool:
        (first,) = starts(_said(logs, 1)) if saved() else ({0: 0},)
        return INTERVAL // 4 <= max(first) - saved() <= INTERVAL // 2

    wait_for("some iterations after a checkpoint", between_saves, _SECONDS)
    _, worker = jobs.pods_of(cluster.client, job)
    for process in cluster.ranks_of(worker, "programs.train_megatron"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    newest = saved()
    wait_for("both to step again", lambda: len(starts(_said(logs, 1))) == 2, _SECONDS)
    # Asked while both run: the operator deletes what still runs when the master has succeeded.
    pods = jobs.pods_of(cluster.client, job)
    restarts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods]
    # On a slow machine the first to be back may start once more, for the one that comes after it.
    assert set(restarts) <= {1, 2}
    wait_for("the last checkpoint", lambda: saved() == ITERATIONS, _SECONDS)
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    killed, resumed = starts(_said(logs, 1))
    assert list(resumed) == list(range(newest + 1, ITERATIONS + 1))
    expected = from_iteration(killed, newest)
    assert {each: resumed[each] for each in expected} == pytest.approx(expected, abs=_LAST_DIGIT)


@dataclass
class Gang:
    """A job of which something is lost while it trains, and what its files say."""

    name: str
    folder: Path
    logs: Path

    def saved(self) -> int:
        """Return the newest whole checkpoint."""
        tracker = self.folder / self.name / "checkpoints" / TRACKER
        return int(tracker.read_text() or 0) if tracker.exists() else 0

    def steps(self) -> list[tuple[datetime, int]]:
        """Return each step by the last rank's own clock."""
        found = _STEP.findall(_said(self.logs, 1))
        return [(datetime.fromisoformat(when), int(number)) for when, number in found]

    def starts(self, *began: int) -> list[dict[int, float]]:
        """Return the losses of each start; those after the first began after so many steps.

        One that ended with a checkpoint, and no step after it, is not told by its numbers.
        """
        found = printed(_said(self.logs, 1))
        return [dict(found[begin:end]) for begin, end in pairwise((0, *began, len(found)))]

    def wait_between_saves(self, *, newer_than: int) -> None:
        """Return some steps after a checkpoint, far from the next one."""

        def there() -> bool:
            saved = self.saved()
            return saved > newer_than and 2 <= self.steps()[-1][1] - saved <= INTERVAL // 2

        wait_for("some iterations after a checkpoint", there, _SECONDS)

    def assert_silence(self, cluster, pod) -> None:
        """Of the rank that is left: it lives, does not step, and has nothing to complain about."""
        before = self.steps()
        rank = cluster.ranks_of(pod, "programs.train_megatron")[0]
        time.sleep(3)
        assert alive([rank]) == [rank]
        assert self.steps() == before
        # The start before this one was killed.
        said = _said(self.logs, 0).rpartition("record: start ")[2]
        assert "Traceback" not in said
        assert "closed by peer" not in said

    def wait_for_restart(self, known: int) -> tuple[datetime, int]:
        """Return the first step of another start than so many known steps."""
        return wait_for("the gang's restart", lambda: self.steps()[known:], _SECONDS)[0]


@pytest.mark.long
@pytest.mark.usefixtures("other_kinds", "as_on_eks")
@pytest.mark.parametrize("kind", jobs.KINDS)
def test_a_deleted_pod_and_a_lost_node_resume(cluster, submit, folder, kind):
    """Survivors wait in silence; all step again from the newest checkpoint, with the same losses.

    One job loses both, one after the other.
    """
    # Four micro-batches of 2 would take four times as long, for the same. Two checkpoints more than
    # are needed: a look that comes late on a slow machine finds the steps after the next one.
    name, iterations = f"megatron-lost-{kind.lower()}", 5 * INTERVAL
    job = _job(name, iterations, "--micro-batch-size", "8", without=_ASYNC, kind=kind)
    submit(job)
    gang = Gang(name, folder, cluster.shared() / "logs" / name)
    holder = int((cluster.fleet.shared.parent / "holder").read_text())
    newest, began_after = 0, []
    for what in ("pod", "node"):
        if what == "node":
            cluster.add_gpu_node()
        gang.wait_between_saves(newer_than=newest)
        master, worker = jobs.pods_of(cluster.client, job)
        cables.pull(holder, worker["status"]["podIP"])
        newest, known = gang.saved(), len(gang.steps())
        began_after.append(known)
        # Soon after its cable, whose end the other rank's connection notices by and by.
        if what == "node":
            cluster.lose_at_once(worker)
        else:
            cluster.lose(what, worker, "programs.train_megatron")
        began = datetime.now()  # noqa: DTZ005 -- Megatron's log has local times
        if kind == "PyTorchJob" or what == "node":
            # In the others a pod that ends ends its Job, and so the master.
            gang.assert_silence(cluster, master)
        again, step = gang.wait_for_restart(known)
        assert step == newest + 1
        seconds = (again - began).total_seconds()
        # Shown by --log-cli-level=INFO; for docs/measurements.md.
        _LOG.info("%s, a %s lost: all step again after %.1f s", kind, what, seconds)
    jobs.wait_for_condition(cluster.client, job, jobs.DONE[kind], _SECONDS)
    first, second, third = gang.starts(*began_after)
    assert max(third) == iterations
    for before, after in ((first, second), (second, third)):
        expected = from_iteration(before, min(after) - 1)
        assert {each: after[each] for each in expected} == pytest.approx(expected, abs=_LAST_DIGIT)


@pytest.fixture(scope="module")
def queues(kueue) -> None:
    """Share out the nodes."""
    for each in rendered.platform_files("pytorchjob", kueue=True)["kueue-queues"]:
        kueue.apply(each)


def _in_queue(job: Object, priority: str) -> Object:
    """Let a job wait in the queue of all that have GPUs."""
    queue = job["metadata"]["namespace"]
    job["metadata"]["labels"] |= queue_labels(queue, priority)
    return job


@pytest.mark.long
@pytest.mark.usefixtures("queues")
def test_a_preempted_job_saves_and_goes_on(cluster, submit, folder):
    """Within its grace; then it trains as if it had never given its place to another."""
    iterations, name = 3 * INTERVAL, "megatron-queued"
    more = ("--micro-batch-size", "8")
    plain = _job("megatron-plain", iterations, *more, without=_ASYNC)
    submit(plain)
    jobs.wait_for_condition(cluster.client, plain, "Succeeded", 2 * _SECONDS)
    logs = cluster.shared() / "logs"
    expected = dict(printed(_said(logs / "megatron-plain", 1)))
    assert list(expected) == list(range(1, iterations + 1))
    low = _in_queue(_job(name, iterations, *more, without=_ASYNC), VALIDATION_PRIORITY)
    for pod in jobs.pod_specs(low):
        pod["terminationGracePeriodSeconds"] = 120
    submit(low)
    gang = Gang(name, folder, logs / name)
    gang.wait_between_saves(newer_than=0)
    high = _in_queue(runs.job("takes-its-place", 2, image=runs.SMALL), TRAINING_PRIORITY)
    submit(high)
    jobs.wait_for_pods(cluster.client, high, 2, "Running", _SECONDS)
    assert jobs.pods_of(cluster.client, low) == []
    # Not the last interval's: what it was told to end with.
    saved = gang.saved()
    assert saved == gang.steps()[-1][1]
    assert saved % INTERVAL
    (logs / "takes-its-place" / "finish").touch()
    jobs.wait_for_condition(cluster.client, high, "Succeeded")
    jobs.wait_for_condition(cluster.client, low, "Succeeded", 2 * _SECONDS)
    expected |= from_iteration(expected, saved)
    found = printed(_said(gang.logs, 1))
    assert [step for step, _ in found] == list(expected)
    assert dict(found) == pytest.approx(expected, abs=_LAST_DIGIT)
