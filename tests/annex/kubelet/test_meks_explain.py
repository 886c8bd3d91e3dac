"""`meks logs JOB --explain`: the cause of an end, from pods, events and real containers."""

import pytest

from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.jobs import diagnosis, logs
from tests.annex import jobs
from tests.annex.kubelet import runs

pytestmark = pytest.mark.control_plane

WAITED = (
    "[rank0]:[E1120 08:02:11.301 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1) ran for 600020 ms"
)


@pytest.fixture
def explain(cluster):
    """Return a function that explains a job."""

    def call(name, **options):
        return diagnosis.of_job(cluster.client, cluster.plan, name, logs.Options(**options))

    return call


def printing(name, *scripts):
    """Return a job whose ranks run a shell script each."""
    job = runs.job(name, len(scripts), image=runs.SMALL)
    for pod, script in zip(jobs.pod_specs(job), scripts, strict=True):
        pod["containers"][0] |= {"command": ["sh", "-c", script], "args": []}
    return job


def test_the_rank_that_failed_is_told_from_the_one_that_waited(cluster, submit, explain):
    """Also when its container has started again since, and says nothing any more."""
    failing = (
        "file=/shared/cache/explained; [ -e $file ] && sleep 100; echo x > $file; "
        "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1"
    )
    job = printing("explained", f"echo '{WAITED}'; sleep 100", failing)
    submit(job)

    def started_again():
        pods = jobs.pods_of(cluster.client, job)
        states = [pod["status"].get("containerStatuses") or [{}] for pod in pods]
        return any(
            each[0].get("restartCount") and each[0]["state"].get("running") for each in states
        )

    wait_for("the second start", started_again, 120)
    found = explain("explained")
    assert (found.code, found.rank) == (LogCode.CUDA_OUT_OF_MEMORY, 1)
    assert LogCode.COLLECTIVE_TIMED_OUT in [each.code for each in found.cascades]


def test_a_pod_without_a_node_is_explained_by_its_events(submit, explain):
    """There is no log yet."""
    job = printing("homeless", "true")
    jobs.pod_specs(job)[0]["nodeSelector"] = {"no-such": "label"}
    submit(job)
    wait_for("the event", lambda: explain("homeless").code is LogCode.NOT_SCHEDULED, 60)


def test_a_job_that_runs_and_then_succeeds_is_said_to(submit, explain):
    """Its lines show no trouble."""
    submit(printing("healthy", "echo 'step 3/30, loss: 3.1'; sleep 20"))
    wait_for("its step", lambda: explain("healthy").cause.startswith("it runs, step 3: "), 60)
    wait_for("its end", lambda: explain("healthy").cause == "the run ended well, step 3", 90)
