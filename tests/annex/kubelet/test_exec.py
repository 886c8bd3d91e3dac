"""Commands in containers that run, through the real API server to a kubelet and back."""

import contextlib
import os
import ssl
import threading
import time

import pytest

from megatron_eks.kubernetes import execution
from megatron_eks.kubernetes.client import ApiError, Client, wait_for
from megatron_eks.kubernetes.connection import Connection, Credentials, UnreachableError
from megatron_eks.localcloud.kubernetes.processes import free_port
from tests.annex.acting import acting_as

pytestmark = pytest.mark.control_plane

_SLEEP = "trap exit TERM; while :; do sleep 1; done"


@pytest.fixture
def pod(run_pod, state):
    """Return the name of a pod that runs."""
    made = run_pod(
        _SLEEP,
        container={
            "env": [{"name": "COLOUR", "value": "green and blue"}],
            "workingDir": "/srv/work",
            "securityContext": {"runAsUser": 1234, "runAsGroup": 4321},
        },
    )
    state(made, "running")
    return made["metadata"]["name"]


@pytest.fixture
def run(cluster, pod):
    """Return a function that runs a command in the pod."""

    def call(*command, **options):
        return execution.run(cluster.client, "default", pod, "main", command, **options)

    return call


@pytest.fixture
def start(cluster, pod):
    """Return a function that starts a command in the pod, which is let go after the test."""
    with contextlib.ExitStack() as stack:

        def call(*command, **options):
            begun = execution.start(cluster.client, "default", pod, "main", command, **options)
            return stack.enter_context(contextlib.closing(begun))

        yield call


def read(started, until=None, seconds=30):
    """Return what a command writes, to its end or to a word."""
    found = b""
    for _, data in started.output(time.monotonic() + seconds):
        found += data
        if until is not None and until in found:
            break
    return found


def test_a_command_sees_the_container(run, pod):
    """Its environment, directory, user, host name, processes and files are the container's."""
    script = 'echo "$COLOUR"; pwd; id -u; id -g; hostname; cat /proc/1/cmdline | tr "\\0" " "'
    result = run("sh", "-c", script)
    assert result.exit_code == 0
    *said, program = result.text.splitlines()
    assert said == ["green and blue", "/srv/work", "1234", "4321", pod]
    assert _SLEEP in program


def test_output_errors_and_exit_code_come_apart(run):
    """As the program gave them."""
    result = run("sh", "-c", "echo out; echo err >&2; exit 7")
    assert result == execution.Result(7, b"out\n", b"err\n")


def test_a_command_that_a_signal_ended(run):
    """It has the code that a shell would give it."""
    assert run("sh", "-c", "kill -9 $$").exit_code == 137


def test_much_of_both_output_and_input(run):
    """Ten megabytes there and back, byte by byte the same."""
    data = os.urandom(10_000_000)
    assert run("cat", stdin=data).stdout == data


def test_input_that_nobody_reads(run):
    """The command ends when it ends."""
    result = run("sh", "-c", "exit 3", stdin=b"x" * 1_000_000)
    assert (result.exit_code, result.stderr) == (3, b"")


def test_input_that_does_not_end_holds_nothing_up(start):
    """Neither does it keep the command's end from the caller."""
    started = start("sh", "-c", "read line; echo got $line; exit 4", stdin=True)
    started.write(b"one\nand more")
    assert read(started) == b"got one\n"
    assert started.exit_code == 4


def test_input_comes_as_it_is_written(start):
    """A conversation, and then its end."""
    started = start("cat", stdin=True)
    for word in (b"first\n", b"second\n"):
        started.write(word)
        assert read(started, until=word) == word
    started.end_input()
    assert read(started) == b""
    assert started.exit_code == 0


def test_a_terminal(start):
    """A shell with a prompt, a size that changes, and a code in the end."""
    started = start("sh", stdin=True, tty=True)
    started.resize(100, 40)
    started.write(b"stty size; tty; echo $TERM; test -t 0 && echo tty-$((6*7))\n")
    shown = read(started, until=b"tty-42").decode()
    assert "40 100" in shown
    assert "/dev/pts/0" in shown
    assert "xterm" in shown
    started.resize(60, 20)
    started.write(b"stty size; exit 9\n")
    assert "20 60" in read(started).decode()
    assert started.exit_code == 9


def test_a_key_ends_a_command_on_a_terminal(start):
    """Ctrl-C reaches the program and not the shell around it."""
    started = start("sh", stdin=True, tty=True)
    started.write(b"trap 'echo caught-$((1+1))' INT; sleep 100\n")
    read(started, until=b"100\r\n")
    time.sleep(0.5)
    started.write(b"\x03")
    read(started, until=b"caught-2")
    started.write(b"\x04")
    read(started)
    assert started.exit_code is not None


def test_a_shell_ends_when_its_terminal_is_gone(start, run):
    """Closing the connection hangs up."""
    script = "trap 'touch /tmp/hung-up; exit' HUP; echo here; while :; do sleep 0.1; done"
    started = start("sh", "-c", script, stdin=True, tty=True)
    read(started, until=b"here")
    started.close()
    wait_for("the end", lambda: run("test", "-e", "/tmp/hung-up").exit_code == 0 or None, 30)  # noqa: S108 -- the container's


def test_a_command_without_a_terminal_goes_on(start, run):
    """As on a real node: whoever lets go of it is told so."""
    started = start("sh", "-c", "echo here; sleep 2; touch /tmp/went-on")
    read(started, until=b"here")
    started.close()
    wait_for("the file", lambda: run("test", "-e", "/tmp/went-on").exit_code == 0 or None, 30)  # noqa: S108 -- the container's


def test_a_command_that_does_not_end_in_time(run):
    """The error says that it may go on."""
    late = r"`sleep 60` in pod .* did not end within 0\.5 s, and may go on there"
    with pytest.raises(TimeoutError, match=late):
        run("sleep", "60", timeout=0.5)


def test_a_program_that_is_not_there(run):
    """The container runtime's own words, as an error and not as an exit code."""
    with pytest.raises(ApiError, match="no-such-program: No such file or directory"):
        run("no-such-program")


def test_a_pod_that_is_not_there(cluster):
    """The API server says so."""
    with pytest.raises(ApiError, match='pods "nowhere" not found') as raised:
        execution.run(cluster.client, "default", "nowhere", "main", ["true"])
    assert raised.value.status == 404


def test_a_container_that_is_not_there(cluster, pod):
    """The API server knows the pod's containers."""
    with pytest.raises(ApiError, match="container other is not valid for pod"):
        execution.run(cluster.client, "default", pod, "other", ["true"])


def test_a_container_that_has_ended(cluster, run_pod, ended):
    """The kubelet says so."""
    done = ended(run_pod("exit 0"))
    with pytest.raises(ApiError, match=r'container not found \("main"\)'):
        execution.run(cluster.client, "default", done["metadata"]["name"], "main", ["true"])


def test_a_pod_that_no_node_has(cluster, run_pod):
    """There is nobody to ask."""
    waiting = run_pod("exit 0", nodeSelector={"no": "such-node"})
    with pytest.raises(ApiError, match="does not have a host assigned"):
        execution.run(cluster.client, "default", waiting["metadata"]["name"], "main", ["true"])


def test_somebody_who_may_not(cluster, pod):
    """Forbidden, with what would be needed."""
    nobody = acting_as(cluster.client, "nobody")
    with pytest.raises(ApiError, match="pods/exec") as raised:
        execution.run(nobody, "default", pod, "main", ["true"])
    assert raised.value.status == 403


def test_a_container_that_ends_meanwhile(cluster, start, pod):
    """Its end is the command's end too."""
    started = start("sh", "-c", "echo here; sleep 100")
    read(started, until=b"here")
    cluster.client.delete("v1", "Pod", pod, "default")
    read(started)
    assert started.exit_code == 137


def test_an_api_server_that_is_away():
    """One error for it, as everywhere."""
    tls = ssl.create_default_context()
    away = Client(Connection(f"https://127.0.0.1:{free_port()}", tls, Credentials("1")))
    with pytest.raises(UnreachableError, match="Connection refused"):
        execution.run(away, "default", "any", "main", ["true"])


def test_many_at_once(run):
    """Each has its own."""
    codes: dict[int, int] = {}

    def one(number):
        codes[number] = run("sh", "-c", f"exit {number}").exit_code

    threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert codes == {number: number for number in range(16)}
