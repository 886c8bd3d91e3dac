"""The copy of the log is whole when the file system is well, and costs nothing when it is not."""

import os
import queue
import subprocess
import sys
import time
from pathlib import Path

import log_copy
import pytest

from tests.programs.megatron_files import PROGRAMS

LINES = b"".join(b"line %d\n" % number for number in range(20000))


def run(file: Path, out: bytes, err: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Feed the program both streams and wait for its end."""
    (out_reader, out_writer), (err_reader, err_writer) = os.pipe(), os.pipe()
    process = subprocess.Popen(  # noqa: S603 -- the program under test
        [
            *(sys.executable, str(PROGRAMS / "log_copy.py")),
            *(f"--stdout={out_reader}", f"--stderr={err_reader}", str(file)),
        ],
        pass_fds=(out_reader, err_reader),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(out_reader)
    os.close(err_reader)
    feeder = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"],
        stdin=subprocess.PIPE,
        stdout=out_writer,
    )
    os.close(out_writer)
    os.write(err_writer, err)
    os.close(err_writer)
    assert feeder.stdin is not None
    feeder.stdin.write(out)
    feeder.stdin.close()
    out_seen, err_seen = process.communicate(timeout=60)
    feeder.wait(timeout=20)
    return subprocess.CompletedProcess(process.args, process.returncode, out_seen, err_seen)


def test_both_streams_reach_their_place_and_the_file(tmp_path):
    """The container's log keeps the streams apart; the file has the bytes of both."""
    done = run(tmp_path / "logs" / "rank-00000.log", LINES, b"a warning\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, LINES, b"a warning\n")
    copied = (tmp_path / "logs" / "rank-00000.log").read_bytes()
    assert len(copied) == len(LINES) + len(b"a warning\n")
    assert copied.replace(b"a warning\n", b"") == LINES


def test_a_line_without_end_is_copied_too(tmp_path):
    """A progress bar writes no newline for hours, and a crash leaves half a line."""
    bar = b"\rstep" * 50000
    run(tmp_path / "log", bar)
    assert (tmp_path / "log").read_bytes() == bar


def test_a_restart_appends(tmp_path):
    """The log of the attempt that failed is the one people want to read."""
    file = tmp_path / "rank-00000.log"
    run(file, b"first\n")
    run(file, b"second\n")
    assert file.read_bytes() == b"first\nsecond\n"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("/dev/full", "No space left on device"), ("directory", "Is a directory")],
)
def test_a_full_file_system_costs_the_copy_alone(tmp_path, name, reason):
    """The container's log gets every byte, and one line says why the copy has none."""
    (tmp_path / "directory").mkdir()
    done = run(tmp_path / name, LINES)
    assert (done.returncode, done.stdout) == (0, LINES)
    assert done.stderr.decode().count(f"{reason} - read the pod's log instead\n") == 1


def test_a_hanging_file_system_costs_the_copy_alone(tmp_path):
    """Opening a pipe that nobody reads blocks for ever, as a dead file server does."""
    file = tmp_path / "hangs"
    os.mkfifo(file)
    begin = time.monotonic()
    done = run(file, LINES * 100)
    assert done.stdout == LINES * 100
    assert time.monotonic() - begin < 30


def test_dropped_bytes_are_counted_in_the_file(tmp_path):
    """A copy with a hole says how large it is."""
    file = log_copy.FileCopy(tmp_path / "log")
    file.chunks = queue.Queue(1)
    file.put(b"kept\n")
    file.put(b"lost\n")
    file.start()
    while not file.chunks.empty():
        time.sleep(0.01)
    file.put(b"again\n")
    file.finish()
    text = (tmp_path / "log").read_text()
    assert "\n[5 bytes were not copied]\n" in text
    assert text.startswith(("kept\n", "\n[5 bytes"))
    assert text.endswith("again\n")
