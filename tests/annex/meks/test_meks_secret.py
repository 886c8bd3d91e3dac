"""`meks secret` on a real API server: values come in by standard input, and out nowhere."""

import base64
import fcntl
import io
import os
import subprocess
import sys
import termios
import time
from functools import partial

import pytest

from megatron_eks.ops.console import Console, SystemClock
from megatron_eks.ops.data import secrets
from megatron_eks.ops.failure import Failure
from megatron_eks.project import ROOT
from tests.screens import Screen

pytestmark = pytest.mark.control_plane

_NAMESPACE = "megatron-workshop"
_NAME = "hugging-face"
_TOKEN = "hf_" + "aB3" * 12
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.fixture(autouse=True)
def gone(client):
    """Leave no Secret behind."""
    yield
    for name in (_NAME, "another"):
        client.delete("v1", "Secret", name, _NAMESPACE, missing_ok=True)


def console(value=b"", *, yes=False):
    """Return a console with something on its standard input."""
    stdin = io.TextIOWrapper(io.BytesIO(value))
    return Console(stdin, io.StringIO(), io.StringIO(), SystemClock(), yes=yes)


@pytest.fixture
def store(client, loaded):
    """Return a function that sets a value, and gives what was said."""

    def call(value, name=_NAME, key="token"):
        made = console(value)
        assert secrets.set_value(client, loaded, name, key, made) == 0
        assert made.stdout.getvalue() == ""
        return made.stderr.getvalue()

    return call


def held(client, key="token", name=_NAME):
    """Return what the API server holds."""
    data = client.get("v1", "Secret", name, _NAMESPACE)["data"]
    return base64.b64decode(data[key])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (f"{_TOKEN}\n".encode(), _TOKEN.encode()),
        (f"{_TOKEN}\r\n".encode(), _TOKEN.encode()),
        (f"{_TOKEN}\n\n".encode(), f"{_TOKEN}\n".encode()),
        (b"\xff\x00 bytes", b"\xff\x00 bytes"),
    ],
)
def test_one_line_end_is_taken_off(client, store, given, kept):
    """As editors and `echo` leave it; every other byte is the user's."""
    said = store(given)
    assert held(client) == kept
    assert said.splitlines()[0] == f"created Secret {_NAMESPACE}/{_NAME}, key token"
    assert said.splitlines()[1] == "named by the jobs fetch-llama-3-1-8b, fetch-tokenizer"
    assert _TOKEN not in said


def test_a_second_value_changes_one_key(client, store):
    """Other keys stay; so a run that was interrupted is simply run again."""
    store(b"one", key="other")
    assert store(b"two").startswith("changed")
    assert (held(client), held(client, "other")) == (b"two", b"one")


def test_what_kubectl_kept_of_the_old_value_goes(client, store):
    """`kubectl apply` writes the whole object into an annotation, values included."""
    store(b"old")
    path = f"/api/v1/namespaces/{_NAMESPACE}/secrets/{_NAME}"
    old = {"metadata": {"annotations": {_LAST_APPLIED: '{"data":{"token":"b2xk"}}', "mine": "1"}}}
    client.request("PATCH", path, old, None, "application/merge-patch+json")
    # The same value again, too: what is to be taken away is the annotation.
    assert store(b"old").startswith("changed")
    annotations = client.get("v1", "Secret", _NAME, _NAMESPACE)["metadata"]["annotations"]
    assert annotations == {"mine": "1"}


@pytest.mark.parametrize(
    ("name", "key", "value", "said"),
    [
        (_NAME, "token", b"", "the value is empty - give it on standard input"),
        (_NAME, "token", b" \n", "the value is empty"),
        (_NAME, "token", b"x" * (512 * 1024 + 1), "the value is longer than 512 KiB"),
        (_TOKEN, "token", b"x", "NAME is not the name of a Secret"),
        (_NAME, _TOKEN, b"x", "the key is none"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_not_repeated(  # noqa: PLR0917 -- its columns
    client, loaded, name, key, value, said
):
    """A token in the place of a name would stand in every list."""
    with pytest.raises(Failure, match="MEKS-0791") as raised:
        secrets.set_value(client, loaded, name, key, console(value))
    assert said in str(raised.value)
    assert _TOKEN not in str(raised.value)
    assert raised.value.code == 2
    assert client.find("v1", "Secret", _NAME, _NAMESPACE) is None


def test_another_key_than_the_jobs_read_is_said(store):
    """The job's pods would wait for theirs."""
    assert "note: the job fetch-tokenizer reads the key token of it, not tokens" in (
        store(b"x", key="tokens")
    )
    assert "no job file names it; one does with token_secret: another" in (
        store(b"x", name="another")
    )


def test_removing_asks_and_says_who_needs_it(client, loaded, store):
    """Without a terminal nobody can answer; a second time there is nothing."""
    store(b"x")
    with pytest.raises(Failure, match="MEKS-0747 nobody is there to answer: Delete Secret"):
        secrets.remove(client, loaded, _NAME, console())
    assert held(client) == b"x"
    given = console(yes=True)
    assert secrets.remove(client, loaded, _NAME, given) == 0
    assert "named by the jobs fetch-llama-3-1-8b, fetch-tokenizer" in given.stderr.getvalue()
    with pytest.raises(Failure, match=f"MEKS-0792 no Secret {_NAME}") as raised:
        secrets.remove(client, loaded, _NAME, console(yes=True))
    assert raised.value.code == 3


@pytest.fixture
def command(project, control_plane, client):
    """Return the command line of `meks secret` on the shared cluster, and its environment."""
    assert client
    environment = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)}
    start = [sys.executable, "-m", "megatron_eks", "secret"]
    end = ["--cluster", str(project / "cluster.yaml")]
    return lambda *given: {"args": [*start, *given, *end], "env": environment, "cwd": ROOT}


def test_a_value_among_the_arguments_is_not_taken_and_not_shown(client, command):
    """Wherever it stands on the line."""
    for given in ((_NAME, _TOKEN), (_NAME, "--key", "token", _TOKEN), (_NAME, f"--token={_TOKEN}")):
        done = subprocess.run(
            **command("set", *given), stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        assert done.returncode == 2
        assert _TOKEN.encode() not in done.stdout + done.stderr
        assert b"standard input" in done.stderr
    assert client.find("v1", "Secret", _NAME, _NAMESPACE) is None


def typed(start, keys):
    """Run a command on a terminal, type when it asks, and return its exit code and the screen."""
    screen = Screen(
        partial(
            subprocess.Popen,
            **start,
            start_new_session=True,
            # Its own terminal, so that Ctrl-C there is a signal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    )
    screen.shows(r"\(not shown\)")
    # getpass drops what was typed before it switched the echo off.
    time.sleep(0.3)
    screen.type(keys)
    return screen.ends(), screen.text


def test_on_a_terminal_it_is_asked_for_without_echo(client, command):
    """What is typed is not on the screen."""
    code, screen = typed(command("set", _NAME), f"{_TOKEN}\n")
    assert code == 0, screen
    assert "token of hugging-face (not shown):" in screen
    assert _TOKEN not in screen
    assert held(client) == _TOKEN.encode()


def test_ctrl_c_at_the_question_changes_nothing(client, command):
    """The question is left like any other."""
    code, screen = typed(command("set", _NAME), "\x03")
    assert "Traceback" not in screen
    assert client.find("v1", "Secret", _NAME, _NAMESPACE) is None
    assert code == 130
