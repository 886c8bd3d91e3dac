"""The watcher beside real processes: whom it ends and why, and whom it leaves alone."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from megatron_eks.programs.start import gang, rank_processes, watch
from tests.programs import nccl_logs as logs
from tests.programs.run_program import command

_SLEEPS = "import time; time.sleep(600)"
_COMPUTES = "while True: pass"
_QUICK = ("--round-seconds=0.1", "--grace-seconds=0.1")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a Python process, ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(words: list[str], **environment: str) -> "subprocess.Popen[str]":
        started.append(
            subprocess.Popen(  # noqa: S603 -- a process of the test
                words,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment},
            )
        )
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def rank(start) -> Callable[[str], "subprocess.Popen[str]"]:
    """Return a function that starts a rank of one line."""
    return lambda code: start([sys.executable, "-c", code])


@pytest.fixture
def watched(start) -> Start:
    """Return a function that starts a watcher of a rank, as node 0 of two."""

    def begin(
        rank: "subprocess.Popen[str]", *words: str, node: int = 0, **more: str
    ) -> "subprocess.Popen[str]":
        options = (f"--rank={rank.pid}", f"--node={node}", "--nodes=2", *_QUICK, *words)
        process: subprocess.Popen[str] = start(command("start.watch", *options), **more)
        return process

    return begin


def _ended(watcher: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    out, err = watcher.communicate(timeout=60)
    findings = json.loads(out)["findings"] if out else []
    assert [line for line in err.splitlines() if line.startswith("error")] == findings
    return watcher.returncode, findings


def _wait_for_beats(path: Path, count: int) -> None:
    while (record := gang.read(path)) is None or record.count < count:
        time.sleep(0.05)


def test_a_stopped_rank_is_ended(rank, watched):
    """It computes nothing; the watcher says so and ends it."""
    process = rank(_COMPUTES)
    watcher = watched(process, "--idle-seconds=2")
    os.kill(process.pid, signal.SIGSTOP)
    code, findings = _ended(watcher)
    assert (code, process.wait(timeout=60)) == (watch.EXIT_BLOCKED, -signal.SIGKILL)
    assert findings == [
        (
            f"error process {process.pid}: it used no CPU time for 2 s - all ranks start again; "
            "look at the node if it happens again"
        )
    ]


def test_a_blocked_rank_shows_its_stack_before_its_end(rank):
    """Of a trainer; a signal that a program does not expect would end it without a word."""
    shows = "import faulthandler; faulthandler.register(10)"
    blocked = f"def blocked(): print(1, flush=True); {_SLEEPS}"
    trainer, other = rank(f"{blocked}\n{shows}; blocked()"), rank(_SLEEPS)
    assert trainer.stdout.readline() == "1\n"
    rank_processes.end([trainer.pid, other.pid])
    assert [each.wait(timeout=60) for each in (trainer, other)] == [-signal.SIGKILL] * 2
    assert "in blocked" in trainer.stderr.read()


@pytest.mark.parametrize(
    ("used", "blocked"),
    [
        pytest.param([0, 5, 10, 15, 20], False, id="computes"),
        pytest.param([0, 0, 0, 0.02, 0.04], False, id="is slow"),
        pytest.param([3, 3, 3, 3, 3], True, id="waits"),
        pytest.param([3, 3.001, 3.002, 3.003, 3.004], True, id="only its threads wake up"),
        pytest.param([3, 9, 9, 9, 9], False, id="not long enough yet"),
    ],
)
def test_progress(used, blocked):
    """A look a second, and a window of four."""
    progress = rank_processes.Progress(4)
    looks = [progress.is_blocked(1, each, now) for now, each in enumerate(used)]
    assert looks == [False] * 4 + [blocked]


def test_a_rank_below_nsys_is_one_of_its_torchruns(start, tmp_path, monkeypatch):
    """Its process is watched and ended, and not the one between it and torchrun."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    (tmp_path / "nsys").write_text('#!/bin/sh\n"$@"\n')
    (tmp_path / "nsys").chmod(0o755)
    alone = [sys.executable, "-c", f"import os; print(os.getpid(), flush=True); {_SLEEPS}"]
    ranks = [
        start(command, LOCAL_RANK=str(number))
        for number, command in enumerate((alone, [str(tmp_path / "nsys"), *alone]))
    ]
    mine, below = (int(each.stdout.readline()) for each in ranks)
    try:
        assert mine == ranks[0].pid
        assert below != ranks[1].pid
        for each in (mine, below):
            assert rank_processes.Rank(each).siblings() == sorted((mine, below))
    finally:
        os.kill(below, signal.SIGKILL)


def test_a_watcher_that_comes_too_late_ends(rank, watched):
    """There is nobody to watch any more."""
    process = rank("")
    process.wait()
    assert _ended(watched(process)) == (0, [])


@pytest.mark.parametrize(("code", "state"), [(0, "finished"), (3, "failed")])
def test_a_ranks_end_is_told(rank, watched, tmp_path, code, state):
    """Whoever waits for this node knows at once whether it is lost."""
    go = tmp_path / "go"
    line = f"import os, time\nwhile not os.path.exists('{go}'): time.sleep(0.05)\nos._exit({code})"
    process = rank(line)
    watcher = watched(process, f"--heartbeats={tmp_path}")
    path = gang.path_of(tmp_path, 0)
    _wait_for_beats(path, 2)
    go.touch()
    # Its exit code is there until the parent, here the test, takes it.
    assert _ended(watcher) == (0, [])
    record = gang.read(path)
    assert record is not None
    assert record.state == state


@pytest.mark.parametrize(("node", "other"), [(0, 1), (1, 0)])
def test_a_lost_node_ends_the_others_ranks(rank, watched, tmp_path, node, other):
    """Its watcher has said so; the ranks that wait for it would say nothing."""
    survivor, lost = rank(_SLEEPS), rank(_SLEEPS)
    heartbeats = f"--heartbeats={tmp_path}"
    watcher = watched(survivor, heartbeats, node=node)
    watched(lost, heartbeats, node=other)
    for each in (node, other):
        _wait_for_beats(gang.path_of(tmp_path, each), 5)
    lost.kill()
    code, findings = _ended(watcher)
    assert (code, survivor.wait(timeout=60)) == (watch.EXIT_PEER_LOST, -signal.SIGKILL)
    assert findings == [
        (
            f"error node {other}: it has lost its ranks - all ranks start again from the newest "
            "checkpoint"
        )
    ]


def test_a_silent_node_is_lost(rank, watched, tmp_path):
    """Nobody is left there who could say anything."""
    survivor, lost = rank(_SLEEPS), rank(_SLEEPS)
    heartbeats = f"--heartbeats={tmp_path}"
    watcher = watched(survivor, heartbeats, "--silent-rounds=20")
    gone = watched(lost, heartbeats, node=1)
    for each in (0, 1):
        _wait_for_beats(gang.path_of(tmp_path, each), 5)
    gone.kill()
    code, findings = _ended(watcher)
    assert (code, survivor.wait(timeout=60)) == (watch.EXIT_PEER_LOST, -signal.SIGKILL)
    assert findings[0].startswith("error node 1: it is silent for 20 rounds - ")


def test_tcp_instead_of_efa_ends_the_rank(rank, watched, tmp_path):
    """The log is found by the rank's process number."""
    process = rank(_COMPUTES)
    (tmp_path / f"node-0.{process.pid}.log").write_text(logs.NO_DEVICES)
    watcher = watched(process, "--expect-efa=4", NCCL_DEBUG_FILE=f"{tmp_path}/%h.%p.log")
    code, findings = _ended(watcher)
    assert (code, process.wait(timeout=60)) == (watch.EXIT_NETWORK, -signal.SIGKILL)
    assert "NCCL uses Socket" in findings[0]


def test_a_log_of_an_earlier_start_is_not_read(rank, watched, tmp_path):
    """A container's next start has the same process numbers."""
    process = rank(_COMPUTES)
    path = tmp_path / f"node-0.{process.pid}.log"
    path.write_text(logs.NO_DEVICES)
    os.utime(path, (1, 1))
    options = ("--expect-efa=4", "--start-seconds=1")
    code, findings = _ended(watched(process, *options, NCCL_DEBUG_FILE=f"{tmp_path}/%h.%p.log"))
    assert code == watch.EXIT_NETWORK
    assert "NCCL said nothing within 1 s" in findings[0]
