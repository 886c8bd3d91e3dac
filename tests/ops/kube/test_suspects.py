"""Which nodes the ends of ranks, events and conditions speak against, and which not."""

from collections import Counter

import pytest

from megatron_eks.ops.jobs.suspects import failures
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


def against(*pods, nodes=(), events=()):
    """Return the nodes that are spoken against, each with how often."""
    found = failures(nodes, [(job(), pod) for pod in pods], events)
    return Counter(each.node for each in found)


def event(message, kind="Node", reason="NvidiaXID", type_="Warning"):
    """Return an event about node-1."""
    return {
        "type": type_,
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-11-22T10:00:00Z",
        "involvedObject": {"kind": kind, "name": "node-1"},
    }


def test_a_lost_gpu_is_found_whoever_ended_first():
    """The line says what the order does not; and the ranks that waited for it are not to blame."""
    lost, waited = ended(1, (2, 9, 1, XID)), ended(2, (12, 0, 1, TIMEOUT))
    assert against(ended(0, (2, 0, 1, "")), lost, waited) == {"node-1": 1}


def test_each_of_its_last_two_ends_counts():
    """The one before the restart, too."""
    assert against(ended(2, (2, 0, 1, XID), (30, 0, 1, XID))) == {"node-2": 2}


@pytest.mark.parametrize(
    ("code", "message"),
    [(1, OUT_OF_MEMORY), (1, "ModuleNotFoundError: No module named 'x'"), (134, ""), (143, "")],
)
def test_what_may_be_the_programs_fault_is_nobodys_node(code, message):
    """However often: rank 0 is on the same node every time."""
    assert against(ended(0, (2, 0, code, message), (30, 0, code, message))) == {}


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
    assert against(nodes=nodes) == {"node-1": 1}


def test_events_of_the_hardware_count():
    """Those of the agent that are fatal; others not at all."""
    assert against(events=[event(XID)]) == {"node-1": 1}
    efa = event("EFA rdma_write_wr_err rose", reason="EFAErrorMetric")
    others = [efa, event("disk pressure", reason="Evicted")]
    others += [event(XID, type_="Normal"), event(XID, kind="Pod")]
    assert against(events=others) == {}
