"""Megatron itself on process nodes, in a job of our chart on the real operator."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from megatron_eks.kubernetes.client import wait_for
from tests.local import jobs
from tests.local.kubelet import runs
from tests.programs import prepare_files
from tests.programs.megatron_run import TRACKER, MegatronRun, from_iteration, prepare, starts

pytestmark = [pytest.mark.control_plane, pytest.mark.programs]

ITERATIONS, INTERVAL = 120, 20
_SECONDS = 240


@pytest.fixture(scope="module")
def folder(cluster) -> Path:
    """Return the job's folder on the file system that pods see as /shared, with its data."""
    found: Path = cluster.shared() / "tiny"
    tokenizer = found / "tokenizer"
    tokenizer.mkdir(parents=True)
    prepare_files.python(prepare_files.TRAIN, tokenizer, prepare_files.BOS, prepare_files.EOD)
    prepare(found, tokenizer)
    return found


def _job(name: str):
    """Return the default job with a tiny model in the place of its own, on two pods of a rank."""
    inside = Path("/shared/tiny")
    tiny = MegatronRun(inside / "job", inside / "documents_text_document", inside / "tokenizer")
    found = runs.job(name, 2, image=runs.MEGATRON)
    for pod in jobs.pod_specs(found):
        args = pod["containers"][0]["args"]
        more = ["--train-iters", str(ITERATIONS), "--save-interval", str(INTERVAL)]
        args[args.index("--") + 1 :] = [*tiny.words, *more]
    return found


def test_a_killed_rank_resumes(cluster, submit, folder):
    """Tensor parallel over two pods; from its newest checkpoint on it prints the same losses."""
    job = _job("megatron-killed")
    submit(job)
    # The last rank prints them, as it does on GPUs.
    log = cluster.shared() / "logs" / "megatron-killed" / "rank-00001.log"
    tracker = folder / "job" / "checkpoints" / TRACKER

    def saved() -> int:
        # Megatron empties the file before it writes it anew.
        return int(tracker.read_text() or 0) if tracker.exists() else 0

    def between_saves() -> bool:
        (first,) = starts(log.read_text()) if saved() else ({0: 0},)
        return INTERVAL // 4 <= max(first) - saved() <= INTERVAL // 2

    wait_for("some iterations after a checkpoint", between_saves, _SECONDS)
    _, worker = jobs.pods_of(cluster.client, job)
    for process in cluster.processes_of(worker, "pretrain_gpt.py"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    newest = saved()
    wait_for("the last checkpoint", lambda: saved() == ITERATIONS, _SECONDS)
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    killed, resumed = starts(log.read_text())
    assert list(resumed) == list(range(newest + 1, ITERATIONS + 1))
    expected = from_iteration(killed, newest)
    assert {each: resumed[each] for each in expected} == pytest.approx(expected, abs=1e-6)
    pods = jobs.pods_of(cluster.client, job)
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [1, 1]
