"""What runs beside a training: it starts again when it dies, and holds up nobody's GPUs."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from megatron_eks.programs.start import gang
from tests.programs import saved
from tests.programs.megatron_files import errors, write_checkpoint
from tests.programs.run_program import PROGRAMS, ROOT, command
from tests.programs.s3_world import BUCKET, URI
from tests.programs.test_sync_watch import wait_for
from tests.programs.trainer_files import Run

ABSENT = "s3://not-there/run"
HANGS = f"copies to {URI}: missing: the last checkpoint is in "

# A trainer whose patience with S3 is shorter than in life.
IMPATIENT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from megatron_eks.programs.start import companions
companions._STALLED_SECONDS = 4.0
import runpy
runpy.run_module("megatron_eks.programs.train_megatron", run_name="__main__")
"""


def until(happened: Callable[[], object], what: str) -> None:
    """Wait until something has happened."""
    deadline = time.monotonic() + 400
    while not happened():
        assert time.monotonic() < deadline, f"no {what} in 400 s"
        time.sleep(0.05)


def processes(program: str, *words: object) -> list[int]:
    """Return the processes of a program with some words on its command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if f"{PROGRAMS}.{program}\0" in line and all(str(word) in line for word in words):
            found.append(int(entry.name))
    return found


@pytest.fixture
def silent():
    """Return the address of a server that takes requests and answers none."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("program", ["checkpoint.retention", "checkpoint_sync"])
def test_a_companion_that_dies_starts_again(s3, job, program):
    """Its death is told, the training goes on, and its work is done in the end."""
    environment = job.environment(**s3.environment)
    for iteration in (100, 200, 300):
        write_checkpoint(job.save, iteration)
    (job.save / "latest_checkpointed_iteration.txt").write_text("300")
    process = job.popen("--wait-for-signal", own=["--s3-uri", URI], environment=environment)
    until(lambda: processes(program, job.root), program)
    wait_for(s3, "iter_0000300")
    (first,) = processes(program, job.root)
    os.kill(first, signal.SIGKILL)
    until(lambda: set(processes(program, job.root)) - {first}, "second start")
    write_checkpoint(job.save, 400)
    (job.save / "latest_checkpointed_iteration.txt").write_text("400")
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "failing: its program was ended by SIGKILL - training goes on, it starts again" in err
    assert "saved after SIGTERM" in out
    assert s3.json("latest")["name"] == "iter_0000400"


def test_megatron_waits_for_the_last_copy(s3, job):
    """The container ends with the rank, and with it whatever still sends."""
    write_checkpoint(job.save, 100)
    (job.save / "latest_checkpointed_iteration.txt").write_text("100")
    s3.before("PUT .*distcp", lambda: time.sleep(3))
    environment = job.environment(**s3.environment)
    done = job.run(own=["--s3-uri", URI], environment=environment)
    assert done.returncode == 0, done.stderr
    assert s3.json("latest")["name"] == "iter_0000100"
    assert f"copies to {URI}: whole: all that was saved last is there" in done.stderr


def test_s3_that_hangs_at_the_end_is_given_up(s3, job, silent, tmp_path):
    """The job ends by itself, finished, and names the command that sends what is missing."""
    program = tmp_path / "impatient.py"
    program.write_text(IMPATIENT)
    write_checkpoint(job.save, 100)
    (job.save / "latest_checkpointed_iteration.txt").write_text("100")
    words = [sys.executable, str(program)]
    words += ["--keep-last=2", "--s3-uri", URI, "--", *job.words()]
    done = subprocess.run(  # noqa: S603 -- the program under test
        words,
        env=job.environment(**s3.environment | {"AWS_ENDPOINT_URL_S3": silent}),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    # At the start, at once as it waits, and at the end.
    assert f"copies to {URI}: failing: Read timeout on endpoint URL" in done.stderr
    assert f"copies to {URI}: waiting: for the last checkpoint" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(HANGS)]
    assert line.endswith("it is given up - meks ckpt push JOB sends it")
    assert processes("checkpoint_sync", job.root) == []


def test_a_wrong_bucket_is_found_before_gpus_work(s3, job):
    """An error where nothing is saved yet; a run that has begun goes on, and says so."""
    environment = job.environment(**s3.environment)
    done = job.run(own=["--s3-uri", ABSENT], environment=environment)
    assert done.returncode == 4
    assert errors(done.stderr) == [f"error {ABSENT}/: no such bucket - correct the URI"]
    write_checkpoint(job.save, 100)
    (job.save / "latest_checkpointed_iteration.txt").write_text("100")
    done = job.run(own=["--s3-uri", ABSENT], environment=environment)
    assert done.returncode == 0
    assert f"copies to {ABSENT}: failing: no such bucket - correct the URI" in done.stderr
    assert f"copies to {ABSENT}: missing: " in done.stderr


@pytest.mark.programs
@pytest.mark.parametrize(
    "program", ["train_fsdp", pytest.param("train_ddp", marks=pytest.mark.long)]
)
def test_a_denial_is_found_before_gpus_work(s3, programs_python, tmp_path, program):
    """A role that may not write loses every copy: that costs no GPU hour."""
    s3.fail("PUT", "403")
    trainer = Run(tmp_path, programs_python, program)
    trainer.config["checkpoint"]["s3_uri"] = URI
    done = trainer.alone()
    assert done.returncode == 4
    (line,) = errors(done.stderr)
    assert line.startswith(f"error {URI}/.write-check: S3 refuses: ")
    assert not trainer.checkpoints.exists() or trainer.saved() == []


@pytest.mark.long
@pytest.mark.programs
def test_a_job_whose_copies_are_missing_says_so(s3, programs_python, tmp_path):
    """The training is whole, so its exit code is; its summary and its log tell the rest."""
    trainer = Run(tmp_path, programs_python)
    trainer.config["checkpoint"]["s3_uri"] = URI
    s3.before("PUT .*distcp", lambda: s3.fail(".", "403"))
    done = trainer.run(1)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "finished"
    assert told["copies"]["state"] == "missing"
    assert "S3 refuses" in told["copies"]["text"]
    assert f"copies to {URI}: failing: {URI}/" in done.stderr


@pytest.mark.parametrize(
    ("pattern", "uri", "code"),
    [
        (None, URI, 0),
        (None, ABSENT, 3),
        (None, "s3://no*bucket/x", 2),
        ("GET .*list-type", URI, 1),
        ("PUT", URI, 1),
        ("GET .*run/.write-check", URI, 1),
        ("DELETE", URI, 0),
    ],
)
def test_check_does_what_copies_need(sync, s3, pattern, uri, code):
    """List, write, read; that nothing can be removed is a warning."""
    if pattern:
        s3.fail(pattern, "403")
    done = sync("check", "-", uri)
    assert done.code == code, done.stderr
    assert len(done.findings) == int(bool(code) or pattern == "DELETE")
    left = s3.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    assert bool(left) == (pattern in {"DELETE", "GET .*run/.write-check"})


def test_watcher_says_what_is_there_and_what_fails(s3, tmp_path):
    """Each state is a line that `meks status` reads, and the exit code is the last one's."""
    near = tmp_path / "near"
    saved.megatron(near, 100)
    words = command("checkpoint_sync", "push", near, URI, "--watch", "--interval", "0.2")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:  # noqa: S603 -- the program under test
        until(lambda: "latest" in s3.names(), "copy")
        s3.fail(".", "403")
        saved.megatron(near, 200)
        until(lambda: s3.proxy.seen(".*iter_0000200"), "trouble")
        it.send_signal(signal.SIGTERM)
        _, err = it.communicate(timeout=60)
    assert it.returncode == 1
    told = [line for line in err.splitlines() if line.startswith("copies to ")]
    assert told[0] == f"copies to {URI}: whole: up to iter_0000100"
    assert told[1].startswith(f"copies to {URI}: failing: {URI}/")


def test_a_rank_that_waits_for_s3_is_not_ended(tmp_path):
    """The watcher leaves when it is told that the training is over, and the others hear of it."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as rank:
        words = [f"--rank={rank.pid}", "--node=0", "--nodes=2", f"--heartbeats={tmp_path}"]
        words += ["--idle-seconds=1", "--round-seconds=0.1"]
        with subprocess.Popen(command("start.watch", *words)) as watcher:  # noqa: S603 -- as above
            until(lambda: gang.read(gang.path_of(tmp_path, 0)), "sign of life")
            watcher.terminate()
            assert watcher.wait(60) == 0
        record = gang.read(gang.path_of(tmp_path, 0))
        assert record is not None
        assert record.state == "finished"
        time.sleep(1.5)
        assert rank.poll() is None
        rank.kill()


def test_a_watcher_that_dies_ends_no_node(job, tmp_path):
    """It starts again as the same one: the other nodes see a pause, not another start."""
    heartbeats = tmp_path / "heartbeats"
    path = gang.path_of(heartbeats, 1)
    environment = job.environment(GROUP_RANK="1", GROUP_WORLD_SIZE="2")
    own = ["--heartbeats", str(heartbeats)]
    process = job.popen("--wait-for-signal", own=own, environment=environment)
    until(lambda: gang.read(path), "sign of life")
    peer = gang.Peer(1, patience=30)
    assert peer.look(gang.read(path)) is None
    (first,) = processes("start.watch", heartbeats)
    os.kill(first, signal.SIGKILL)
    killed = gang.read(path)
    until(lambda: gang.read(path) != killed, "second sign of life")
    assert peer.look(gang.read(path)) is None
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "watch: failing: its program was ended by SIGKILL - training goes on" in err
