"""Old checkpoints go, and nothing that a run could need ever does."""

import os
import subprocess
import sys
import time
from pathlib import Path

import checkpoints
import pytest
import retention
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.programs.megatron_files import PROGRAMS, TRACKER, write_checkpoint

# Each example writes files, which takes its time on a busy machine.
SLOW_DISK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIST = "torch_dist"
SLEEPING_PARENT = """
import os, subprocess, sys, time
print(subprocess.Popen([*sys.argv[1:], f"--parent={os.getpid()}"]).pid, flush=True)
time.sleep(60)
"""


def names(root: Path) -> list[str]:
    """Return what is left of a directory, without its tracker."""
    return sorted(path.name for path in root.iterdir() if path.name != TRACKER)


def save(root: Path, *iterations: int, tracker: int | str | None = None) -> None:
    """Write whole checkpoints, and the tracker of the last or of a given one."""
    for iteration in iterations:
        write_checkpoint(root, iteration)
    (root / TRACKER).write_text(str(iterations[-1] if tracker is None else tracker))


def test_newest_are_kept(tmp_path):
    """With three of five to keep the two oldest go."""
    save(tmp_path, 100, 200, 300, 400, 500)
    assert retention.prune(tmp_path, 3, DIST) == ["iter_0000100", "iter_0000200"]
    assert names(tmp_path) == ["iter_0000300", "iter_0000400", "iter_0000500"]


def test_trackers_checkpoint_is_kept(tmp_path):
    """A resume reads what the tracker names, however old it is."""
    save(tmp_path, 100, 200, 300, 400, tracker=100)
    retention.prune(tmp_path, 1, DIST)
    assert names(tmp_path) == ["iter_0000100", "iter_0000400"]


@pytest.mark.parametrize("tracker", ["", "4", "999", "release"])
def test_nothing_goes_while_the_tracker_is_not_good(tmp_path, tracker):
    """Megatron rewrites the tracker in place, so it may be caught half written."""
    save(tmp_path, 100, 200, 300, tracker=tracker)
    assert retention.prune(tmp_path, 1, DIST) == []


def test_remnants_of_failed_saves_go_once_they_are_old(tmp_path):
    """A save that never became whole goes when a younger one is whole, not before."""
    save(tmp_path, 200, 300)
    write_checkpoint(tmp_path, 100, whole=False)
    (tmp_path / "iter_0000150").mkdir()
    write_checkpoint(tmp_path, 400, whole=False)
    (tmp_path / "iter_0000500").mkdir()
    retention.prune(tmp_path, 2, DIST)
    assert names(tmp_path) == ["iter_0000200", "iter_0000300", "iter_0000400", "iter_0000500"]


def test_what_is_not_megatrons_stays(tmp_path):
    """Links, other names and directories with something else in them belong to somebody."""
    save(tmp_path, 400, 500)
    elsewhere = write_checkpoint(tmp_path / "elsewhere", 1)
    (tmp_path / "iter_0000001").symlink_to(elsewhere)
    (tmp_path / "iter_0000002").mkdir()
    (tmp_path / "iter_0000002" / "notes.txt").write_text("keep")
    (tmp_path / "iter_100-copy").mkdir()
    (tmp_path / "release").mkdir()
    before = names(tmp_path)
    retention.prune(tmp_path, 1, DIST)
    assert names(tmp_path) == [name for name in before if name != "iter_0000400"]
    assert checkpoints.is_complete(elsewhere, DIST)


def test_interrupted_removal_is_finished(tmp_path):
    """A checkpoint that was being removed is never taken for a whole one again."""
    save(tmp_path, 400, 500)
    write_checkpoint(tmp_path, ".deleting-iter_0000300")
    retention.prune(tmp_path, 2, DIST)
    assert names(tmp_path) == ["iter_0000400", "iter_0000500"]


@settings(SLOW_DISK)
@given(
    whole=st.sets(st.integers(1, 20), min_size=1),
    torn=st.sets(st.integers(1, 25)),
    keep_last=st.integers(1, 4),
    choice=st.integers(0, 30),
)
def test_retention_never_takes_what_counts(tmp_path_factory, whole, torn, keep_last, choice):
    """The newest N, the tracker's own and anything younger than the newest whole one stay."""
    root = tmp_path_factory.mktemp("save")
    torn -= whole
    save(root, *whole, tracker=choice)
    for iteration in torn:
        write_checkpoint(root, iteration, whole=False)
    retention.prune(root, keep_last, DIST)
    left = set(checkpoints.iterations(root))
    assert set(sorted(whole)[-keep_last:]) <= left
    assert {iteration for iteration in torn if iteration > max(whole)} <= left
    if choice in whole:
        assert left & whole == set(sorted(whole)[-keep_last:]) | {choice}
        assert not {iteration for iteration in torn if iteration < max(whole)} & left
    else:
        assert left == whole | torn


def start(root: Path, parent: int) -> "subprocess.Popen[str]":
    """Start the program as `train_megatron.py` does, only with less patience."""
    return subprocess.Popen(  # noqa: S603 -- the program under test
        [
            *(sys.executable, str(PROGRAMS / "retention.py")),
            *(f"--directory={root}", "--keep-last=1", f"--parent={parent}", "--interval=0.05"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, seconds: float = 20.0) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_program_survives_errors_and_says_them_once(tmp_path):
    """A directory that is not there yet is said once, and pruned when it appears."""
    root = tmp_path / "save"
    process = start(root, os.getpid())
    assert process.stderr is not None
    assert "could not remove old checkpoints" in process.stderr.readline()
    time.sleep(0.3)
    save(tmp_path / "staging", 100, 200)
    (tmp_path / "staging").rename(root)
    wait_for(lambda: not (root / "iter_0000100").exists())
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert err == "retention: removed iter_0000100, older than the 1 newest checkpoints\n"


def test_program_ends_with_its_parent(tmp_path):
    """A killed training process leaves no process behind."""
    save(tmp_path, 100)
    parent = subprocess.Popen(  # noqa: S603 -- the program under test
        [
            *(sys.executable, "-c", SLEEPING_PARENT),
            *(sys.executable, str(PROGRAMS / "retention.py")),
            *(f"--directory={tmp_path}", "--keep-last=1"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = Path("/proc") / parent.stdout.readline().strip()
    assert child.exists()
    time.sleep(0.5)
    parent.kill()
    parent.communicate(timeout=20)
    wait_for(lambda: not child.exists() or "\nState:\tZ" in (child / "status").read_text())
