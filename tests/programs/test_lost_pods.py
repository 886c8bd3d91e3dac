"""Which pods are taken away: those that are to end, on nodes that nobody hears of."""

import pytest

from megatron_eks.programs.cluster_api import Object
from megatron_eks.programs.lost_pods import LostPods

POD = "/api/v1/namespaces/jobs/pods/rank-1"
ENDED = [("PATCH", f"{POD}/status"), ("DELETE", POD)]


class Server:
    """What is sent to an API server, and what it says to that."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.bodies: list[Object] = []
        self.problem: OSError | None = None

    def send(self, method: str, path: str, body: Object, form: str) -> None:
        """Keep a request."""
        assert form.endswith("json")
        self.sent.append((method, path))
        self.bodies.append(body)
        if self.problem:
            raise self.problem


@pytest.fixture
def server() -> Server:
    """Return one that takes everything."""
    return Server()


@pytest.fixture
def lost(server) -> LostPods:
    """Return one that has seen a pod on a node, which is to end."""
    found = LostPods(server)
    found.changes.put(pod())
    found.changes.put(node("Unknown"))
    return found


def node(ready: str, **more: object) -> Object:
    """Return a node as its Ready condition has it."""
    conditions = [{"type": "DiskPressure", "status": "Unknown"}]
    conditions += [{"type": "Ready", "status": ready}]
    return {"kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": conditions}, **more}


def pod(*, ends: bool = True, phase: str = "Running", on: str | None = "n") -> Object:
    """Return a pod."""
    metadata = {"name": "rank-1", "namespace": "jobs", "uid": "u"}
    metadata |= {"deletionTimestamp": "2026-11-30T00:00:00Z"} if ends else {}
    spec = {"nodeName": on} if on else {}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def test_a_pod_of_a_lost_node_has_failed_and_goes(lost, server):
    """As its Job counts it; no successor of its name goes for it."""
    lost.look(0)
    assert server.sent == ENDED
    failed, gone = server.bodies
    assert failed["status"]["phase"] == "Failed"
    assert failed["metadata"]["uid"] == gone["preconditions"]["uid"] == "u"
    assert gone["gracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    "seen",
    [
        [pod(), node("Unknown"), node("True")],
        # It speaks, and ends its pods itself.
        [pod(), node("False")],
        [pod(ends=False), node("Unknown")],
        [pod(on=None), node("Unknown")],
        [pod(), {**pod(), "gone": True}, node("Unknown")],
        [pod()],
    ],
)
def test_others_stay(server, seen):
    """A node that is back, or only slow; a pod that nobody wants to end, or that is gone."""
    lost = LostPods(server)
    for each in seen:
        lost.changes.put(each)
    lost.look(0)
    assert server.sent == []


def test_one_that_has_ended_keeps_its_end(lost, server):
    """Its kubelet said so before it was lost; a node may be gone from the cluster, too."""
    lost.changes.put(pod(phase="Succeeded"))
    lost.changes.put(node("True", gone=True))
    lost.look(0)
    assert server.sent == ENDED[1:]


@pytest.mark.parametrize(
    ("problem", "again"),
    [(OSError("403"), True), (FileNotFoundError("another uid"), False)],
)
def test_what_the_server_refuses_is_tried_again_later(lost, server, problem, again):
    """Unless it was about a pod that is not there any more."""
    server.problem = problem
    for now in (0, 1, 9):
        lost.look(now)
    assert len(server.sent) == 1
    server.problem = None
    lost.look(10)
    assert server.sent[1:] == (ENDED if again else [])
