"""A container's output is kept from its first line to its end, and keeping it costs nothing."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from megatron_eks.programs import record_files
from tests.programs.run_program import command

LINES = "".join(f"line {number}\n" for number in range(20000))
REFUSED = """print('error /shared/x: missing - bring it')
print('torch.distributed.elastic.ChildFailedError: ')
raise SystemExit(4)"""
DAY = 24 * 3600


def words(folder, script, *args):
    """Return the command line that keeps what a Python script prints."""
    own = command("record", folder, 7)
    return [*own, sys.executable, "-c", script, *args]


@pytest.fixture
def keep(tmp_path):
    """Return a function that runs a script in a pod, which has a volume and a rank."""

    def call(script, *args, rank=0, pod="a", folder=None):
        volume = tmp_path / f"pod-{pod}-{rank}"
        volume.mkdir(exist_ok=True)
        return subprocess.run(  # noqa: S603 -- the program under test
            words(folder or tmp_path / "logs" / "job", script, *args),
            env={**os.environ, "TMPDIR": str(volume), "RANK": str(rank)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return call


@pytest.fixture
def kept(tmp_path):
    """Return a function that reads the file of a start and a rank."""
    return lambda start, rank=0: (
        tmp_path / "logs" / "job" / start / f"rank-{rank:05}.log"
    ).read_text()


@pytest.mark.parametrize(
    ("script", "code", "end"),
    [
        ("print('done')", 0, "record: ended with exit code 0, 20"),
        ("import nothing_of_that_name", 1, "ModuleNotFoundError: No module named 'nothing_of"),
        ("import os; os.kill(os.getpid(), 9)", 137, "record: was ended by signal 9, 20"),
        (REFUSED, 4, "Z: error /shared/x: missing - bring it\n"),
    ],
    ids=["success", "Python error", "killed", "refused behind a launcher"],
)
def test_how_it_ended_stands_last(keep, kept, script, code, end):
    """With the exit code as the container's own, and the program's reason, not its launcher's."""
    done = keep(script)
    assert done.returncode == code
    text = kept("0001")
    assert text.startswith("record: start 0001, 20")
    assert end in text.splitlines(keepends=True)[-1]
    assert all(line in text for line in (done.stdout + done.stderr).splitlines())


def test_a_program_that_is_not_there_is_named(kept, tmp_path):
    """Not even the launcher of an image of one's own may be."""
    own = command("record", tmp_path / "logs" / "job", 7)
    done = subprocess.run(  # noqa: S603 -- the program under test
        [*own, "torchrun-9"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 127
    assert "error torchrun-9: No such file or directory" in done.stderr
    assert "error torchrun-9: No such file or directory" in kept("0001")


def test_streams_stay_apart_and_a_line_without_end_is_kept(keep, kept):
    """A progress bar writes no newline for hours, and a crash leaves half a line."""
    done = keep("import sys; sys.stderr.write('a warning\\n'); print(sys.argv[1])", "x" * 9)
    assert (done.stdout, done.stderr) == ("x" * 9 + "\n", "a warning\n")
    done = keep("import sys; sys.stdout.write('\\rstep' * 50000)")
    assert done.stdout.count("step") == kept("0002").count("step") == 50000


def test_ranks_of_one_start_meet_and_restarts_count_up(keep, kept, tmp_path):
    """The next job of the name goes on counting; only a pod's own restart comes `after` another."""
    for rank in (0, 1, 1, 0):
        keep("print('here')", rank=rank)
    assert all(", after 0001 in this pod\n" in kept("0002", rank) for rank in (0, 1))
    keep("print('here')", rank=1, pod="b")
    assert kept("0003", 1).count("after") == 0
    # Long after a start a rank belongs to another one, though it has no file there.
    for each in (start := tmp_path / "logs" / "job" / "0003", *start.iterdir()):
        os.utime(each, (0, time.time() - 3600))
    keep("print('here')", rank=0, pod="b")
    assert "here" in kept("0004", 0)


def test_the_owner_alone_reads_it(keep, tmp_path):
    """Logs hold data and paths of others."""
    keep("print('here')")
    start = tmp_path / "logs" / "job" / "0001"
    modes = [each.stat().st_mode & 0o777 for each in (start, start / "rank-00000.log")]
    assert modes == [0o700, 0o600]


def test_starts_go_with_the_days_of_their_own_job(keep, tmp_path):
    """Not those of a job that keeps longer, and nothing else in a job's folder."""
    logs = tmp_path / "logs"
    for job, days, age in (("old", 2, 3), ("kept", 5, 3), ("foreign", None, 99)):
        (start := logs / job / "0001").mkdir(parents=True)
        (start / "rank-00000.log").write_text("x")
        (logs / job / "tensorboard").mkdir()
        if days:
            (logs / job / "keep-days").write_text(f"{days}\n")
        for each in (start / "rank-00000.log", start):
            os.utime(each, (0, time.time() - age * DAY))
    keep("print('here')")
    left = {each.parent.name for each in logs.glob("*/0001")}
    assert left == {"kept", "foreign", "job"}
    assert (logs / "old" / "tensorboard").is_dir()


def test_a_start_that_goes_leaves_what_a_month_is_told_by(tmp_path):
    """Steps in the middle go with traces and all else; after two months that goes too."""
    start = tmp_path / "job" / "0001"
    (start / "profile").mkdir(parents=True)
    (start / "profile" / "rank-00000.steps-5-6.json.gz").touch()
    lines = [
        "record: start 0001, 2026-11-01T08:00:00Z",
        *(f"step {n}/900 | loss 2.0 | 1.000 s" for n in range(1, 101)),
        "saved checkpoint of step 100 to /c in 1 s",
        *(f"step {n}/900 | loss 2.0 | 1.000 s" for n in range(101, 151)),
    ]
    end = "record: ended with exit code 1, 2026-11-01T09:00:0{}Z: last words"
    for rank in range(4):
        words = [*lines, "torch.OutOfMemoryError: CUDA"] if rank == 2 else lines
        # Rank 2 ends first, the others with it.
        text = "\n".join([*words, end.format(1 if rank == 2 else 2)])
        (start / f"rank-{rank:05}.log").write_text(f"{text}\n")
    (tmp_path / "job" / "keep-days").write_text("7")
    for each in (*start.iterdir(), start):
        os.utime(each, (0, time.time() - 9 * DAY))
    record_files.prune(tmp_path)
    (told,) = [each for each in (tmp_path / "job").iterdir() if each.name != "keep-days"]
    assert told.name == "20261101T080000Z-0001.told"
    assert time.time() - told.stat().st_mtime > 8 * DAY
    found = json.loads(told.read_text())
    assert (found["job"], found["ranks"], found["lives"]) == ("job", 4, False)
    assert {line[:3] for line in found["lines"]} == {"[0]", "[2]", "[3]"}
    of_two = [line for line in found["lines"] if line.startswith("[2]")]
    assert of_two[:2] == [f"[2] {lines[0]}", "[2] saved checkpoint of step 100 to /c in 1 s"]
    assert (len(of_two), of_two[-2:]) == (
        22,
        ["[2] torch.OutOfMemoryError: CUDA", f"[2] {end.format(1)}"],
    )
    os.utime(told, (0, time.time() - 70 * DAY))
    record_files.prune(tmp_path)
    assert not told.exists()


def test_of_long_output_beginning_and_end_stay(tmp_path, monkeypatch):
    """In files named by the place of their first byte, so that what is missing can be counted."""
    monkeypatch.setattr(record_files, "_PART_BYTES", 1000)
    monkeypatch.setattr(record_files, "_STATE", tmp_path / "state")
    kept = record_files.Record(tmp_path / "job", 0, 7)
    kept.start()
    for number in range(1000):
        while kept._chunks.qsize() > 200:  # noqa: SLF001 -- a disk that keeps up
            time.sleep(0.001)
        kept.put(b"line %03d\n" % number)
    kept.finish()
    first, *newest = record_files.parts(tmp_path / "job" / "0001", 0)
    assert first.read_text().split("\n")[1] == "line 000"
    assert len(newest) == 3
    assert newest[-1].read_text().endswith("line 999\n")
    begin = [record_files.place(each) for each in newest]
    assert begin[1] - begin[0] == newest[0].stat().st_size


def test_signals_reach_the_program(tmp_path):
    """Kubernetes tells the first process to end; what a program leaves behind delays nothing."""
    script = (
        "import signal, subprocess, sys, time\n"
        "subprocess.Popen(['sleep', '60'])\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit('saved'))\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen(  # noqa: S603 -- the program under test
        words(tmp_path / "job", script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1
    assert "saved\n" in (tmp_path / "job" / "0001" / "rank-00000.log").read_text()


def test_a_file_system_that_takes_nothing_costs_the_copy_alone(keep, tmp_path):
    """The container's log gets every byte, and one line says why the record has none."""
    (tmp_path / "file").write_text("")
    done = keep("import sys; print(sys.argv[1])", "x" * 99, folder=tmp_path / "file" / "job")
    assert (done.returncode, done.stdout) == (0, "x" * 99 + "\n")
    assert done.stderr.count("Not a directory - read the pod's log instead\n") == 1


def test_a_full_disk_that_has_room_again_says_what_is_missing(tmp_path, monkeypatch):
    """The lines of that while are lost, and counted."""
    monkeypatch.setattr(record_files, "_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(record_files, "_STATE", tmp_path / "state")
    (tmp_path / "job").write_text("a file where the directory should be")
    kept = record_files.Record(tmp_path / "job", 0, 7)
    kept.put(b"lost\n")
    kept.start()
    while not kept._dropped:  # noqa: SLF001 -- what it is about
        time.sleep(0.01)
    (tmp_path / "job").unlink()
    file = tmp_path / "job" / "0001" / "rank-00000.log"
    while not file.exists():
        time.sleep(0.01)
    kept.put(b"kept\n")
    kept.finish()
    text = file.read_text()
    assert "\n[5 bytes were not copied]\n" in text
    assert text.endswith("kept\n")


def test_a_hanging_file_system_costs_the_copy_alone(keep, tmp_path):
    """Opening a pipe that nobody reads blocks for ever, as a dead file server does."""
    (tmp_path / "logs" / "job").mkdir(parents=True)
    os.mkfifo(tmp_path / "logs" / "job" / "keep-days")
    script = "import sys; sys.stdout.write(open(sys.argv[1]).read() * 100)"
    (tmp_path / "lines").write_text(LINES)
    assert keep(script, str(tmp_path / "lines")).stdout == LINES * 100
