"""What a record tells of pods that are gone: how they ended, and which left nothing."""

from datetime import datetime
from types import SimpleNamespace
from typing import cast

import pytest

from megatron_eks.ops.jobs import ended
from megatron_eks.ops.jobs.diagnosis import said_of_nodes
from megatron_eks.ops.jobs.status import summary
from megatron_eks.ops.kube import pods
from megatron_eks.ops.kube.jobs import Rank, RunningJob
from megatron_eks.plan.jobs.job import JobPlan

AT = "2026-11-22T10:00:00Z"
START = f"record: start 0001, {AT}"
REASON = "error /shared/x: missing - bring it"


@pytest.mark.parametrize(
    ("own", "phase", "reason"),
    [
        ([START, "x", f"record: ended with exit code 0, {AT}"], "Succeeded", ""),
        (
            [START, f"record: ended with exit code 4, {AT}: {REASON}"],
            "Failed",
            f"pytorch: exit code 4: {REASON}",
        ),
        ([START, f"record: was ended by signal 9, {AT}"], "Failed", "pytorch: exit code 137"),
        ([START, "x"], "Failed", f"pytorch: exit code 137 (Killed): {ended._BROKEN_OFF}"),  # noqa: SLF001 -- the text itself
        (
            [START, f"record: ended with exit code 4, {AT}: {REASON}", START, "starts again"],
            "Failed",
            f"pytorch: exit code 4: {REASON}",
        ),
        (
            [
                *(START, f"record: ended with exit code 4, {AT}: {REASON}"),
                *(START, f"record: ended with exit code 143, {AT}"),
            ],
            "Failed",
            f"pytorch: exit code 4: {REASON}",
        ),
    ],
    ids=[
        "success",
        "refused",
        "killed",
        "broken off",
        "given up as it started again",
        "told to end",
    ],
)
def test_a_rank_ends_as_its_record_says(own, phase, reason):
    """Beside it, a rank of which nothing is known stays without a pod."""
    there = [Rank(0, None, None), Rank(1, None, None)]
    known = ended.ranks(None, there, [f"[0] {each}" for each in own])
    assert known[0].pod is not None
    assert (known[0].pod.phase, known[0].pod.reason) == (phase, reason)
    assert known[1].pod is None


def test_what_the_record_says_itself_is_no_line_of_the_program():
    """A diagnosis sees what ranks have printed, and their ends as those of pods."""
    assert ended.printed([f"[ 0] {START}", "[ 0] record of a run", "[10] x"]) == [
        *("[ 0] record of a run", "[10] x"),
    ]


def pod(node, made, phase):
    """Return a pod of a rank as its record keeps it."""
    return {
        "metadata": {"name": "j", "uid": made, "creationTimestamp": f"2026-11-22T{made}:00Z"},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("newest", "before", "around_its_end"),
    [
        (pod("b", "10:00", "Running"), ["a 09:00", "a 10:05", "b 10:05", "b 11:00"], []),
        (pod("b", "10:00", "Failed"), ["a 09:00", "a 10:05"], ["b 10:05", "b 11:00"]),
        (pod("", "10:00", "Pending"), ["a 09:00"], ["a 10:05"]),
        (pod("a", "10:00", "Running"), ["a 09:00", "a 10:05", "a 11:00"], []),
    ],
    ids=["it runs elsewhere", "and fails there", "it waits", "it runs on the same node"],
)
def test_what_was_said_of_the_nodes_of_earlier_pods_is_known(newest, before, around_its_end):
    """An earlier pod's node explains its end, which is before all that the newest pod printed."""
    known = [pod("a", "08:00", "Running"), newest]
    events = [
        {
            "involvedObject": {"kind": "Node", "name": node},
            "reason": "NodeNotReady",
            "lastTimestamp": f"2026-11-22T{at}:00Z",
        }
        for node in "ab"
        for at in ("07:00", "09:00", "10:05", "11:00")
    ]
    said = said_of_nodes(Rank(1, pods.state(newest), newest), known, events)
    lines = [[line.removeprefix("[1] node ") for line in each] for each in said]
    assert lines == [
        [f"{node}: NodeNotReady at {at}:" for node, at in map(str.split, each)]
        for each in (before, around_its_end)
    ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "Job train has failed because it has reached the specified backoff limit.",
            "its ranks failed as often as runtime.gang_restarts allows",
        ),
        ("jobset failed due to exceeding max number of restarts", "its ranks failed as often as"),
        ("Pod of train was deleted", "Pod of train was deleted"),
    ],
)
def test_a_job_that_was_given_up_is_told_in_the_words_of_its_file(said, shown):
    """A controller's limit is a key of the job file; other messages stand as they are."""
    status = {"conditions": [{"type": "Failed", "status": "True", "message": said}]}
    job = RunningJob({"kind": "Job", "metadata": {"name": "train"}, "spec": {}, "status": status})
    assert summary(job, []).startswith(f"train: Failed - {shown}")


_CODE, _TORCHRUN = (
    "record: ended with exit code",
    "elastic.SignalException: Process 5 got signal: 15",
)


@pytest.mark.parametrize(
    ("other", "phase"),
    [
        (
            [_TORCHRUN, "retention: removed x", f"{_CODE} 1, {AT}: retention: removed x"],
            "Cancelled",
        ),
        ([f"record: was ended by signal 15, {AT}"], "Cancelled"),
        ([f"{_CODE} 1, {AT}: ValueError: x"], "Failed"),
        ([_TORCHRUN, START, f"{_CODE} 1, {AT}: ValueError: x"], "Failed"),
        ([f"{_CODE} 0, {AT}"], "Failed"),
        (["breaks off"], "Failed"),
    ],
)
def test_a_job_that_is_gone_was_cancelled_if_all_ranks_were_told_to_end(other, phase):
    """By torchrun's exception too, which ends with exit code 1; one that failed itself counts."""
    first = [START, _TORCHRUN, f"{_CODE} 1, {AT}: {_TORCHRUN}"]
    lines = [
        f"[{rank}] {each}" for rank, own in enumerate((first, [START, *other])) for each in own
    ]
    plan = cast("JobPlan", SimpleNamespace(name="j", nodes=2, args=()))
    found = ended.gone(plan, "n", lines, datetime.fromisoformat(AT))
    assert found.job.ended == phase
    reasons = {rank.pod.reason for rank in found.ranks if rank.pod and phase == "Cancelled"}
    assert reasons <= {
        "pytorch: exit code 1: it was told to end (SIGTERM)",
        "pytorch: exit code 143: it was told to end (SIGTERM)",
    }
