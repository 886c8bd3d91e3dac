"""The log of a pod for shared files comes whole and once, however often its stream is cut."""

import ssl

import pytest

from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.kubernetes.connection import Connection, Credentials
from megatron_eks.ops.data.shared_pod import lines
from megatron_eks.ops.failure import Failure
from tests.consoles import console, said
from tests.kubernetes.answers import say, stream

_KINDS = say(200, {"resources": [{"name": "pods", "namespaced": True, "kind": "Pod"}]})
_POD: Object = {
    "metadata": {"name": "shared-files-1", "namespace": "jobs", "uid": "1"},
    "spec": {"containers": [{"name": "pytorch"}]},
}


def pod(phase, **metadata):
    """Answer with the pod in a phase."""
    found = {**_POD, "metadata": {**_POD["metadata"], **metadata}}
    return say(200, {**found, "status": {"phase": phase}})


@pytest.fixture
def read(api):
    """Return a function that reads all lines, given what the server answers."""

    def call(*answers):
        api.answers = [_KINDS, *answers]
        tls = ssl.create_default_context(cafile=str(api.authority))
        client = Client(Connection(api.url, tls, Credentials("1"), timeout=1.0))
        told = console()
        try:
            return list(lines(client, _POD, told)), said(told)
        finally:
            client.close()

    return call


def test_a_cut_stream_goes_on_after_the_last_whole_line(read):
    """Half a line comes again, whole; the last one needs no end."""
    found, _ = read(
        pod("Running"),
        stream(b"one\n", b"tw", cut=True),
        pod("Running"),
        stream(b"one\n", b"two\n", cut=True),
        pod("Succeeded"),
        stream(b"one\n", b"two\n", b"three"),
    )
    assert found == ["one", "two", "three"]


def test_a_pod_that_is_being_deleted_is_lost(read):
    """Its node was lost, or somebody removed it: what came so far is not the end."""
    with pytest.raises(Failure, match="MEKS-0881"):
        read(
            pod("Running"),
            stream(b"one\n"),
            pod("Running", deletionTimestamp="2026-01-01T00:00:00Z"),
        )
