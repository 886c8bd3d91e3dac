"""A pod waits until policies hold for it, and not for ever."""

import socket
import threading
import time

import pytest
import wait_for_policies

from tests.programs import s3_world


@pytest.fixture
def metadata(monkeypatch):
    """Return a server in the place of the metadata service, which takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(wait_for_policies, "METADATA", server.getsockname())
        yield server


def run(*words):
    """Run the program."""
    return s3_world.call("wait_for_policies", wait_for_policies.main, *words)


def test_a_pod_goes_on_where_the_connection_is_denied(metadata):
    """At once, without a word."""
    metadata.close()
    done = run()
    assert (done.code, done.findings) == (0, [])


def test_a_pod_waits_for_policies_that_come_late(metadata):
    """It sees the connection taken, then denied."""
    threading.Timer(0.5, metadata.close).start()
    done = run("--seconds", "60")
    assert (done.code, done.findings) == (0, [])
    assert 0.4 <= done.summary["waited_seconds"] < 60


def test_without_policies_a_pod_goes_on_with_a_warning(metadata, monkeypatch, tmp_path):
    """The warning stays with the pod's status, where a bundle has it."""
    message = tmp_path / "termination-log"
    message.touch()
    monkeypatch.setattr(wait_for_policies, "_MESSAGE", message)
    done = run("--seconds", "0.3")
    assert metadata.fileno() > 0
    assert done.code == 0
    assert "none is in force for this pod after 0.3 s" in done.findings[0]
    assert "enableNetworkPolicy" in message.read_text()


def test_what_neither_answers_nor_refuses_denies(monkeypatch):
    """Policies drop what they deny: nothing comes back."""
    monkeypatch.setattr(wait_for_policies, "_CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        monkeypatch.setattr(wait_for_policies, "METADATA", full.getsockname())
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.settimeout(0)
            each.connect_ex(full.getsockname())
        time.sleep(0.1)
        done = run("--seconds", "60")
        for each in waiting:
            each.close()
    assert (done.code, done.findings) == (0, [])
