"""A pod waits until policies hold for it, and not for ever."""

import socket
import subprocess
import sys
import threading

import pytest

from megatron_eks.charts.training.policy_wait import script


@pytest.fixture
def metadata():
    """Return a server in the place of the metadata service, which takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def run(address, seconds):
    """Run the program as a pod does, and return what it says."""
    words = [sys.executable, "-c", script(address, seconds)]
    ended = subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603 -- ours
    assert not ended.stderr
    return ended.stdout


def test_a_pod_goes_on_where_the_connection_is_denied(metadata):
    """Without a word."""
    address = metadata.getsockname()
    metadata.close()
    assert run(address, 60) == ""


def test_a_pod_waits_for_policies_that_come_late(metadata):
    """It sees the connection taken, then denied."""
    taken = []

    def attach():
        taken.append(metadata.accept()[0])
        metadata.close()

    thread = threading.Thread(target=attach)
    thread.start()
    assert run(metadata.getsockname(), 60) == ""
    thread.join()
    taken[0].close()


def test_without_policies_a_pod_goes_on_with_a_warning(metadata):
    """A cluster that enforces none runs its jobs as before."""
    said = run(metadata.getsockname(), 0.5)
    assert said.startswith("no network policy is in force for this pod after 0.5 s")
    assert "enableNetworkPolicy" in said


def test_what_neither_answers_nor_refuses_denies():
    """Policies drop what they deny: nothing comes back."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.settimeout(0)
            each.connect_ex(full.getsockname())
        said = run(full.getsockname(), 60)
        for each in waiting:
            each.close()
    assert said == ""
