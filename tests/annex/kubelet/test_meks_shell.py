"""`meks shell` as a process: in a terminal, without one, interrupted, and where nothing runs."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.project import ROOT
from tests import hostile
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.screens import Screen

pytestmark = pytest.mark.control_plane

JOB = "looked-into"
SECONDS = 60


@pytest.fixture(scope="module")
def running(cluster):
    """Run a job of two ranks that wait."""
    job = runs.job(JOB, 2, image=runs.SMALL)
    for pod in jobs.pod_specs(job):
        (container,) = pod["containers"]
        script = "trap exit TERM; while :; do sleep 0.2; done"
        container |= {"command": ["sh", "-c", script], "args": []}
    cluster.client.apply(job)

    def ready():
        found = jobs.pods_of(cluster.client, job)
        return len(found) == 2 and all(each["status"]["phase"] == "Running" for each in found)

    wait_for("both ranks", ready, SECONDS)
    yield job
    jobs.delete(cluster.client, job)


@pytest.fixture
def begin(cluster, project):
    """Return a function that starts `meks` in the project."""

    def start(*arguments, **options):
        return subprocess.Popen(  # noqa: S603 -- our own command
            [sys.executable, "-m", "megatron_eks", *arguments],
            cwd=project,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "KUBECONFIG": str(cluster.plane.kubeconfig),
                "TERM": "xterm",
            },
            **options,
        )

    return start


@pytest.fixture
def shell(begin, running):  # noqa: ARG001 -- the job runs
    """Return a function that runs `meks shell` without a terminal."""

    def call(*arguments, given=b""):
        pipe = subprocess.PIPE
        process = begin("shell", JOB, *arguments, stdin=pipe, stdout=pipe, stderr=pipe)
        out, said = process.communicate(given, SECONDS)
        return process.returncode, out, said.decode()

    return call


def test_a_command_in_a_rank(shell):
    """Output, errors and exit code as the command's, by default in rank 0."""
    code, out, said = shell("--", "sh", "-c", "echo out; echo err >&2; hostname; exit 5")
    assert (code, out, said) == (5, f"out\n{JOB}-master-0\n".encode(), "err\n")
    assert shell("--rank", "1", "--", "hostname")[1] == f"{JOB}-worker-0\n".encode()


def test_a_command_may_hold_dashes_of_its_own(shell):
    """Only the first `--` is ours."""
    assert shell("--", "echo", "--", "-o", "json", "--rank")[1] == b"-- -o json --rank\n"


def test_files_go_both_ways(shell):
    """Through standard input and output, byte by byte."""
    data = os.urandom(300_000)
    code, _, said = shell("--", "sh", "-c", "cat > /tmp/sent", given=data)
    assert (code, said) == (0, "")
    assert shell("--", "cat", "/tmp/sent")[1] == data  # noqa: S108 -- the container's


def test_a_terminal_on_which_nobody_types_is_shown_text(begin, running):  # noqa: ARG001
    """A file of somebody else's acts on it in no rank; in a file it is what it was."""
    octal = "".join(f"\\{byte:03o}" for byte in f"{hostile.ALL}\n".encode())
    command = ("--", "printf", octal)
    for where in ("--rank=1", "--all-ranks"):
        mine, theirs = pty.openpty()
        process = begin("shell", JOB, where, *command, stdin=subprocess.DEVNULL, stdout=theirs)
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):
            while data := os.read(mine, 4096):
                shown += data
        os.close(mine)
        assert process.wait(SECONDS) == 0
        assert rb"gpj.\u202egnp.exe" in shown
        assert hostile.acting(shown.decode()) == []


def test_a_shell_without_a_terminal_runs_a_script(shell):
    """Plain in, plain out."""
    assert shell(given=b"echo $RANK-$((6*7))\nexit 3\n")[:2] == (3, b"0-42\n")


def test_a_shell_in_a_terminal(begin, running):  # noqa: ARG001
    """Keys, the size of the screen, Ctrl-C for the program, and the shell's exit code."""
    screen = Screen(partial(begin, "shell", JOB))
    screen.type("echo is-$((1+1))\n")
    screen.shows("is-2")
    screen.type("sleep 1000\n")
    time.sleep(1)
    screen.type("\x03")
    screen.type("test -t 0 && echo tty-$((1+2)); exit 6\n")
    screen.shows("tty-3")
    assert screen.ends() == 6


def test_every_rank_says_its_own(shell):
    """Each line with its rank, and 1 if one failed."""
    code, out, said = shell("--all-ranks", "--", "sh", "-c", "echo a; echo b $RANK")
    assert code == 0
    assert sorted(out.decode().splitlines()) == ["[0] a", "[0] b 0", "[1] a", "[1] b 1"]
    code, out, said = shell("--all-ranks", "--", "sh", "-c", "printf half; exit $RANK")
    assert code == 1
    assert sorted(out.decode().splitlines()) == ["[0] half", "[1] half"]
    assert said.splitlines() == ["rank 1: exit code 1", "failed in 1 of 2 ranks"]


def test_what_cannot_start_says_so(shell):
    """In words, with a code, and without a traceback."""
    code, _, said = shell("--", "no-such-program")
    assert code == 127
    assert "no-such-program" in said
    code, _, said = shell("--all-ranks", "--", "no-such-program")
    assert code == 1
    assert said.startswith("rank 0: MEKS-0864 `no-such-program` did not start in rank 0")
    code, _, said = shell("--rank", "7", "--", "true")
    assert code == 3
    assert said == f"error: MEKS-0734 {JOB} has no rank 7 - ranks are 0 to 1\n"
    code, _, said = shell("--all-ranks")
    assert code == 2
    assert "--all-ranks needs a command" in said


def test_a_job_that_does_not_run(begin, submit, cluster):
    """It says what to do instead."""
    job = runs.job("not-there", 1, image=runs.SMALL)
    (spec,) = jobs.pod_specs(job)[:1]
    spec["nodeSelector"] = {"no": "such-node"}
    submit(job)
    wait_for("the pod", lambda: jobs.pods_of(cluster.client, job), SECONDS)
    process = begin("shell", "not-there", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.communicate(timeout=SECONDS)[1].decode()
    assert process.returncode == 3
    assert said.startswith("error: MEKS-0863 rank 0 of not-there does not run: ")
    assert "see why: meks status not-there; what it printed: meks logs not-there" in said


@pytest.mark.parametrize("where", [["--rank", "1"], ["--all-ranks"]])
def test_ctrl_c_lets_go_and_says_so(begin, running, where):  # noqa: ARG001
    """The command may go on: how to look is in the last line."""
    script = "echo begun; sleep 30"
    process = begin(
        *("shell", JOB, *where, "--", "sh", "-c", script),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert b"begun" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert (
        said.decode() == f"\nthe command may go on: meks shell {JOB} {' '.join(where)} -- ps ax\n"
    )


def test_a_reader_that_goes_away(begin, running):  # noqa: ARG001
    """As with `| head -1`: no traceback, and it ends."""
    process = begin(
        *("shell", JOB, "--", "sh", "-c", "while :; do echo line; done"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_input_that_is_closed(begin, running):  # noqa: ARG001
    """As under a scheduler that gives a command no standard input at all."""
    process = begin(
        *("shell", JOB, "--", "echo", "fine"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.close(0),
    )
    assert process.communicate(timeout=SECONDS)[0] == b"fine\n"
    assert process.returncode == 0
