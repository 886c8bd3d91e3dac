"""Which nodes the ends of ranks, events and conditions speak against, and which not."""

import pytest

from megatron_eks.ops.jobs.suspects import failures, suspects
from megatron_eks.ops.kube.jobs import RunningJob

XID = "NVRM: Xid (PCI:0000:10:1c): 79, pid=4711, GPU has fallen off the bus."
TIMEOUT = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE,"
    " NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before timing out."
)
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def job(name="train", ranks=4):
    """Return a job of so many pods."""
    metadata = {"name": name, "namespace": "ns", "uid": name}
    return RunningJob(
        {"kind": "Job", "metadata": metadata, "spec": {"parallelism": ranks, "template": {}}}
    )


def ended(rank, *ends, node=None):
    """Return a pod whose container ended: (minute, second, exit code, message), the last two."""
    states = [
        {
            "terminated": {
                "exitCode": code,
                "reason": "Error",
                "finishedAt": f"2026-11-22T10:{minute:02}:{second:02}Z",
                "message": message,
            }
        }
        for minute, second, code, message in ends
    ]
    last, now = ({}, *states)[-2:]
    return {
        "metadata": {
            "name": f"pod-{rank}",
            "labels": {"batch.kubernetes.io/job-completion-index": str(rank)},
        },
        "spec": {"nodeName": node or f"node-{rank}"},
        "status": {
            "containerStatuses": [
                {"name": "pytorch", "state": now, "lastState": last, "restartCount": len(ends) - 1}
            ]
        },
    }


def against(*pods, nodes=(), events=(), of=None):
    """Return the nodes that are spoken against, each with how often."""
    mine = of or job()
    found = failures(nodes, [(mine, pod) for pod in pods], events)
    counts: dict[str, int] = {}
    for each in found:
        counts[each.node] = counts.get(each.node, 0) + 1
    return counts, sorted(suspects(found))


def event(message, kind="Node", count=1, reason="NvidiaXID", type_="Warning"):
    """Return an event about node-1."""
    return {
        "type": type_,
        "reason": reason,
        "message": message,
        "count": count,
        "lastTimestamp": "2026-11-22T10:00:00Z",
        "involvedObject": {"kind": kind, "name": "node-1"},
    }


def test_a_lost_gpu_is_enough():
    """And the ranks that waited for it are not to blame."""
    found = against(
        ended(0, (12, 0, 1, TIMEOUT)), ended(1, (2, 0, 1, XID)), ended(2, (12, 0, 1, TIMEOUT))
    )
    assert found == ({"node-1": 1}, ["node-1"])


def test_a_lost_gpu_is_found_although_another_rank_ended_first():
    """The line says what the order does not."""
    found = against(ended(0, (2, 0, 1, "")), ended(1, (2, 9, 1, XID)))
    assert found == ({"node-1": 1}, ["node-1"])


def test_one_failure_that_nobody_can_explain_is_not_enough():
    """It is counted, and shown in the table."""
    assert against(ended(0, (2, 0, 1, TIMEOUT)), ended(1, (3, 0, 1, ""))) == ({"node-0": 1}, [])


def test_the_second_time_it_is():
    """The same rank failed first, before and after a restart."""
    first = ended(2, (2, 0, 134, ""), (30, 0, 134, ""))
    later = ended(1, (3, 0, 1, TIMEOUT), (31, 0, 1, TIMEOUT))
    assert against(first, later) == ({"node-2": 2}, ["node-2"])


def test_failures_of_several_jobs_add_up():
    """They met on one node."""
    pods = [(job(name), ended(0, (minute, 0, 139, ""), node="bad")) for minute, name in
            ((2, "one"), (40, "two"))]  # fmt: skip
    found = failures([], pods, [])
    assert {each.job for each in found} == {"one", "two"}
    assert [*suspects(found)] == ["bad"]


@pytest.mark.parametrize("message", [OUT_OF_MEMORY, "ModuleNotFoundError: No module named 'x'"])
def test_a_programs_own_mistake_is_nobodys_node(message):
    """However often: rank 0 is on the same node every time."""
    assert against(ended(0, (2, 0, 1, message), (30, 0, 1, message))) == ({}, [])


def test_ends_at_the_same_time_tell_nothing():
    """The API counts whole seconds."""
    assert against(ended(0, (2, 0, 1, "")), ended(1, (2, 0, 1, ""))) == ({}, [])


def test_a_rank_that_was_told_to_end_is_not_the_first():
    """Of a cancelled job nothing is learned."""
    assert against(ended(0, (2, 0, 143, ""))) == ({}, [])


def test_the_monitoring_agents_condition_is_enough():
    """As EKS replaces nodes by it."""
    ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    wrong = {
        "type": "AcceleratedHardwareReady",
        "status": "False",
        "reason": "NvidiaXID79Error",
        "lastTransitionTime": "2026-11-22T10:00:00Z",
    }
    nodes = [
        {"metadata": {"name": name}, "status": {"conditions": conditions}}
        for name, conditions in (("node-1", [wrong]), ("node-2", [ready]))
    ]
    assert against(nodes=nodes) == ({"node-1": 1}, ["node-1"])


def test_events_of_the_hardware_count():
    """Fatal ones at once, EFA's counters when they come again, others not at all."""
    assert against(events=[event(XID)]) == ({"node-1": 1}, ["node-1"])
    efa = event("EFA rdma_write_wr_err rose", reason="EFAErrorMetric")
    assert against(events=[efa]) == ({"node-1": 1}, [])
    assert against(events=[{**efa, "count": 9}]) == ({"node-1": 2}, ["node-1"])
    assert against(events=[event("disk pressure", reason="Evicted")]) == ({}, [])
    assert against(events=[event(XID, type_="Normal"), event(XID, kind="Pod")]) == ({}, [])
