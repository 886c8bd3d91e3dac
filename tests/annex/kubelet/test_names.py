"""The cluster's name server, question by question."""

import socket
import struct

import pytest

from megatron_eks.kubernetes.watch import Change
from megatron_eks.localcloud.kubernetes.kubelet.names import Names

_HEADLESS = {"metadata": {"name": "job", "namespace": "ns"}, "spec": {"clusterIP": "None"}}
_FIXED = {"metadata": {"name": "fixed", "namespace": "ns"}, "spec": {"clusterIP": "172.20.0.9"}}
_SLICE = {
    "metadata": {
        "name": "job-1",
        "namespace": "ns",
        "labels": {"kubernetes.io/service-name": "job"},
    },
    "addressType": "IPv4",
    "endpoints": [
        {"addresses": ["10.0.0.1"], "hostname": "one", "conditions": {"ready": True}},
        {"addresses": ["10.0.0.2"], "conditions": {"ready": True}},
        {"addresses": ["10.0.0.3"], "conditions": {"ready": False}},
    ],
}


@pytest.fixture
def names():
    """Return a server that knows two Services."""
    found = Names()
    for each in (_HEADLESS, _FIXED, _SLICE):
        found.learn(Change(each))
    return found


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("job.ns.svc.cluster.local.", ["10.0.0.1", "10.0.0.2"]),
        ("JOB.ns.svc.cluster.local", ["10.0.0.1", "10.0.0.2"]),
        ("one.job.ns.svc.cluster.local", ["10.0.0.1"]),
        ("fixed.ns.svc.cluster.local", ["172.20.0.9"]),
        ("job.other.svc.cluster.local", []),
        ("example.com", []),
    ],
)
def test_names(names, name, addresses):
    """A headless Service has the addresses of its ready pods, another one its own."""
    assert names.addresses(name) == addresses


def test_a_deleted_object_takes_its_name_along(names):
    """Slices and Services alike."""
    names.learn(Change(_SLICE, deleted=True))
    assert names.addresses("job.ns.svc.cluster.local") == []
    names.learn(Change(_FIXED, deleted=True))
    assert names.addresses("fixed.ns.svc.cluster.local") == []


def _ask(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    question = labels + b"\0" + struct.pack(">HH", kind, 1)
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question


@pytest.mark.parametrize(
    ("name", "kind", "code", "answers"),
    [
        ("fixed.ns.svc.cluster.local", 1, 0, 1),
        ("fixed.ns.svc.cluster.local", 28, 0, 0),
        ("nothing.ns.svc.cluster.local", 1, 3, 0),
    ],
)
def test_answers(names, name, kind, code, answers):
    """A name without an address of the kind exists all the same; an unknown one does not."""
    answer = names.answer(_ask(name, kind))
    number, flags, _, count, _, _ = struct.unpack_from(">HHHHHH", answer)
    assert (number, flags & 0xF, count) == (7, code, answers)
    if answers:
        assert answer[-4:] == socket.inet_aton("172.20.0.9")


def test_a_broken_question_is_called_so(names):
    """Instead of ending the server."""
    assert struct.unpack_from(">HH", names.answer(b"x"))[1] & 0xF == 1
