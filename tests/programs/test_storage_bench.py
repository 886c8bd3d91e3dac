"""The storage measurement: its numbers, its checks, and that nothing of it stays behind."""

import os
import signal
import subprocess
import time

import pytest

from megatron_eks.programs import storage_bench
from megatron_eks.programs.storage_bench import FileResult
from tests.programs.run_program import command, run

SMALL = ("--size-gib", "0.03125", "--processes", "2")


def result(write: tuple[float, float], read: tuple[float, float]) -> FileResult:
    """Return the result of a file of a gigabyte."""
    return FileResult(10**9, write, read, direct=True)


def test_run_measures_and_leaves_nothing(tmp_path):
    """Rates of a real run are above zero, and the directory is as it was."""
    (tmp_path / "mine").write_text("kept")
    done = run("storage_bench", "--directory", tmp_path, *SMALL)
    summary = done.summary
    assert (done.code, summary["status"]) == (0, "done")
    assert summary["write_mb_s"] > 0
    assert summary["read_mb_s"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_throughput_is_from_the_first_start_to_the_last_end():
    """Processes that took turns were not fast together."""
    results = [result((0, 1), (4, 5)), result((1, 2), (4, 6))]
    assert storage_bench.throughput(results) == (1000, 1000)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_run_cleans_up(tmp_path, number):
    """A pod that is evicted leaves no gigabytes on the shared file system."""
    words = ("--directory", tmp_path, "--size-gib", "4")
    with subprocess.Popen(  # noqa: S603 -- the program under test
        command("storage_bench", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        wait_for(lambda: any(tmp_path.glob(".storage-bench-*/file-*")))
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert '"status": "interrupted"' in out
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_run_go(tmp_path):
    """What SIGKILL left a day ago is removed; what may be another pod's run is not."""
    for name, age in (("old", 90000), ("young", 60)):
        place = tmp_path / f".storage-bench-{name}"
        place.mkdir()
        (place / "file-0").write_text("x")
        os.utime(place, (time.time() - age, time.time() - age))
    storage_bench.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".storage-bench-young"]


def test_missing_directory_and_missing_space_are_told_apart(tmp_path):
    """3 is for what is not there, 4 for what is too small."""
    done = run("storage_bench", "--directory", tmp_path / "none")
    assert (done.code, done.summary["status"]) == (3, "not found")
    done = run("storage_bench", "--directory", tmp_path, "--size-gib", "1e9")
    assert (done.code, done.summary["status"]) == (4, "check failed")
    assert "use a smaller --size-gib" in done.findings[-1]


def test_a_slow_file_system_does_not_pass(tmp_path):
    """The slower of both directions counts."""
    done = run("storage_bench", "--directory", tmp_path, *SMALL, "--pass-mb-s", "1e9")
    assert done.code == 4
    assert any(each.startswith("error throughput: ") for each in done.findings)


@pytest.mark.parametrize("words", [["--size-gib", "0"], ["--processes", "-1"]])
def test_wrong_options_exit_with_2(tmp_path, words):
    """Sizes and counts are above zero."""
    assert run("storage_bench", "--directory", tmp_path, *words).code == 2


def wait_for(condition) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
