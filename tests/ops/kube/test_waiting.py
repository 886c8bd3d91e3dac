"""What ranks wait for, by the words of kubelet, scheduler and API server, and what to do."""

from datetime import timedelta

import pytest

from megatron_eks.ops.jobs.waiting import Around, waits
from megatron_eks.ops.kube import jobs
from tests.ops.kube import looks
from tests.ops.kube.looks import NOW, stamp


def pending(rank, *, waiting=None, condition=None):
    """Return a pod that does not run."""
    pod = looks.pod(rank, born=NOW - timedelta(minutes=12))
    pod["spec"]["nodeName"] = "" if condition else f"node-{rank}"
    pod["status"] = {"phase": "Pending"}
    if waiting:
        pod["status"]["containerStatuses"] = [
            {"name": "pytorch", "restartCount": 0, "state": {"waiting": waiting}}
        ]
    if condition:
        scheduled = {"type": "PodScheduled", "status": "False", "message": condition}
        pod["status"]["conditions"] = [scheduled]
    return pod


def event(uid, reason, message, kind="Warning"):
    """Return an event about an object."""
    return {
        "involvedObject": {"uid": uid},
        "reason": reason,
        "message": message,
        "type": kind,
        "lastTimestamp": stamp(NOW),
    }


def found(pods, events=(), job=None, **around):
    """Return the waits of a job with such pods."""
    job = job or looks.running_job()
    return waits(job, jobs.ranks(job, pods, events), events, Around(now=NOW, **around))


_CREATING = {"reason": "ContainerCreating"}


@pytest.mark.parametrize(
    ("kind", "waiting", "condition", "told"),
    [
        ("resources", None, "0/4 nodes are available: 4 Insufficient nvidia.com/gpu.", None),
        (
            "resources",
            None,
            "0/1 nodes are available: 1 node(s) had untolerated taint {a: b}",
            None,
        ),
        ("mount", None, "persistentvolumeclaim not found: unbound PersistentVolumeClaims", None),
        (
            "image",
            {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'},
            None,
            None,
        ),
        ("image", {"reason": "InvalidImageName"}, None, None),
        ("crash", {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}, None, None),
        ("config", {"reason": "CreateContainerConfigError", "message": "no key"}, None, None),
        ("mount", _CREATING, None, ("FailedMount", 'MountVolume.SetUp failed for volume "fsx"')),
        ("mount", _CREATING, None, ("FailedAttachVolume", "timed out")),
        ("image", _CREATING, None, ("Pulling", 'Pulling image "a@sha256:0"')),
        ("starting", _CREATING, None, None),
    ],
)
def test_ranks_with_a_pod(kind, waiting, condition, told):
    """Each with the words as they came, and since when."""
    pods = [pending(rank, waiting=waiting, condition=condition) for rank in range(2)]
    level = "Normal" if told and told[0] == "Pulling" else "Warning"
    events = [event(f"p{rank}", told[0], told[1], level) for rank in range(2)] if told else []
    (wait,) = found(pods, events)
    assert (wait.kind, wait.ranks, wait.seconds) == (kind, (0, 1), 720)
    assert "(for 12 min)" in wait.line
    for words in (condition, (waiting or {}).get("message"), told and told[1]):
        if words and kind != "crash":
            assert words in wait.why


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("quota", 'pods "a" is forbidden: exceeded quota: training, requested: nvidia.com/gpu=8'),
        ("pod_security", 'pods "a" is forbidden: violates PodSecurity "restricted:latest": x'),
        ("priority_class", 'pods "a" is forbidden: no PriorityClass with name gold was found'),
        ("webhook", 'Internal error occurred: failed calling webhook "v": connection refused'),
        ("webhook", 'admission webhook "validator" denied the request: no'),
    ],
)
def test_ranks_without_a_pod(kind, message):
    """What the controller was told when it wanted to make them."""
    (wait,) = found([], [event("u", "FailedCreatePod", message)])
    assert (wait.kind, wait.ranks, wait.seconds) == (kind, (0, 1), None)
    assert wait.why == f"no pod: {message}"
    assert wait.remedy


def test_events_of_others_explain_nothing():
    """Those of a job with a common prefix, of an earlier one, of another pod."""
    events = [
        event("u-2", "FailedCreatePod", "exceeded quota: training"),
        event("p7", "FailedMount", "MountVolume.SetUp failed"),
    ]
    (wait,) = found([pending(0, waiting=_CREATING)], events, job=looks.running_job(ranks=1 + 1))[1:]
    assert (wait.kind, wait.ranks, wait.why) == ("starting", (1,), "no pod yet")


def test_ranks_of_one_reason_are_said_together():
    """With ranges, as people count."""
    job = looks.running_job(ranks=8)
    pods = [looks.pod(rank) for rank in (1, 5)]
    pods += [pending(rank, condition="no room") for rank in (0, 2, 3, 4)]
    lines = [str(each) for each in found(pods, job=job)]
    assert lines == ["ranks 0, 2-4: waits for a node: no room", "ranks 6-7: no pod yet"]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (
            {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting"},
            "node node-1 is not ready: Kubelet stopped posting",
        ),
        (
            {"type": "NetworkingReady", "status": "False", "reason": "InterfaceNotUp"},
            "node node-1 is not healthy (NetworkingReady): InterfaceNotUp",
        ),
        ({"type": "DiskPressure", "status": "True"}, "node node-1 has DiskPressure"),
    ],
)
def test_a_rank_on_a_bad_node(condition, words):
    """Its pod may still be called running."""
    nodes = {
        "node-0": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        "node-1": {"status": {"conditions": [condition]}},
    }
    (wait,) = found([looks.pod(0), looks.pod(1)], nodes=nodes)
    assert (wait.kind, wait.ranks, wait.why) == ("node", (1,), words)
    assert wait.remedy == "meks nodes"


def test_nothing_to_wait_for():
    """Ranks that run or have ended, on nodes that nobody knows more about."""
    done = looks.pod(1)
    done["status"]["phase"] = "Succeeded"
    assert found([looks.pod(0), done]) == []
