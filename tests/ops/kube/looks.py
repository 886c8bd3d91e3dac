"""Jobs as `meks status` reads them, made of a log and a time."""

from datetime import UTC, datetime, timedelta

from megatron_eks.ops.jobs.look import Logs, Look
from megatron_eks.ops.kube import jobs
from megatron_eks.programs import run_log

NOW = datetime(2026, 11, 22, 13, 0, tzinfo=UTC)
BEGUN = NOW - timedelta(hours=2)


def stamp(at):
    """Write a time as the kubelet does."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def line(step, at, *, steps=10_000, seconds=40.0, loss="lm loss: 2.5E+00 |", tflops=130.0):
    """Return a line of Megatron's."""
    return (
        f"{stamp(at)}  iteration {step:8d}/{steps:8d} | consumed samples: 1 |"
        f" elapsed time per iteration (ms): {seconds * 1000:.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | global batch size:   512 | {loss}"
    )


def saved(step, at):
    """Return what Megatron prints of a whole checkpoint."""
    return f"{stamp(at)}  successfully saved checkpoint from iteration {step:7d} to /c [ t 1/1 ]"


def loaded(step, at):
    """Return what Megatron prints of one that it has read."""
    return f"{stamp(at)}  successfully loaded checkpoint from /c [ t 1/1 ] at iteration {step}"


def running_job(name="train", ranks=2, args=("--seq-length", "4096"), **spec):
    """Return a PyTorchJob."""
    pod = {"containers": [{"name": "pytorch", "args": [*args]}], "nodeSelector": {}}
    roles = {"Master": 1, "Worker": ranks - 1}
    return jobs.RunningJob(
        {
            "kind": "PyTorchJob",
            "metadata": {"name": name, "namespace": "n", "uid": "u"},
            "spec": {
                "runPolicy": {"backoffLimit": 6},
                "pytorchReplicaSpecs": {
                    role: {"replicas": count, "template": {"spec": pod}}
                    for role, count in roles.items()
                },
                **spec,
            },
        }
    )


def pod(rank, *, restarts=0, begun=BEGUN, born=BEGUN, before=None):
    """Return a pod that runs, whose container began at a time, and the one before it too."""
    role, index = ("master", 0) if rank == 0 else ("worker", rank - 1)
    labels = {
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": str(index),
    }
    ended = {"terminated": {"startedAt": stamp(before), "exitCode": 1}} if before else {}
    container = {
        "name": "pytorch",
        "restartCount": restarts,
        "state": {"running": {"startedAt": stamp(begun)}},
        "lastState": ended,
    }
    return {
        "metadata": {
            "name": f"p{rank}",
            "uid": f"p{rank}",
            "labels": labels,
            "creationTimestamp": stamp(born),
            "ownerReferences": [{"uid": "u"}],
        },
        "spec": {"containers": [], "nodeName": f"node-{rank}"},
        "status": {"phase": "Running", "containerStatuses": [container]},
    }


def look(end, *, begin=None, before=(), before_begin=(), job=None, pods=None, now=NOW):
    """Return a look at a job that printed some lines."""
    job = job or running_job()
    pods = [pod(0), pod(1)] if pods is None else pods
    first = [f"{stamp(BEGUN)} starting"] if begin is None else begin
    return Look(
        job=job,
        ranks=jobs.ranks(job, pods),
        events=[],
        nodes={},
        logs=Logs(run_log.read(end), run_log.read(first)),
        before=Logs(run_log.read(before), run_log.read(before_begin)),
        now=now,
    )
