"""What the end and the log of a check on the hardware mean."""

import json

import pytest

from megatron_eks.ops.jobs.verdicts import Ended, measured, verdict

_SMI = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:10:1C.0 Off |                    0 |
"""


def summary(program, *findings, status="done", **facts):
    """Return a log that ends as programs of ours do."""
    line = json.dumps({"program": program, "status": status, **facts, "findings": list(findings)})
    return f"      size (B)    time (us)\n{line}\n"


def judged(log, phase="Succeeded", mark=None, message=""):
    """Return the verdict and what is told."""
    found = verdict(Ended("check-p4d", phase, message, log), mark)
    return found.verdict, [f"{each.level} {each.code} {each.found}" for each in found.findings]


def all_reduce(busbw, *findings, **facts):
    """Return the log of an all-reduce."""
    numbers = {"best_busbw_gb_s": busbw, "best_bytes": 2**31, "ranks": 16}
    return summary("allreduce_bench", *findings, **numbers, **facts)


def test_a_driver_that_answers_passes():
    """Its version is what was measured."""
    assert judged(_SMI) == ("passed", [])
    assert measured(_SMI) == {"driver": "580.95.05", "cuda": "13.0"}


def test_a_gpu_that_answers_with_errors_fails_although_the_pod_succeeded():
    """nvidia-smi ends with 0 where a value is ERR!."""
    assert judged(_SMI + "| ERR!   ERR! ERR!  ERR! / ERR! |") == (
        "failed",
        ["error MEKS-0861 nvidia-smi prints 'ERR!'"],
    )


def test_an_all_reduce_at_its_mark_passes():
    """The mark is the catalogue's."""
    assert judged(all_reduce(78.3), mark=60) == ("passed", [])


def test_an_all_reduce_below_its_mark_is_told_once():
    """The program's own words, with its remedy."""
    told = (
        "error busbw: 8.40 GB/s at 2147483648 bytes, the mark is 60 - below 10 GB/s NCCL uses TCP"
    )
    found = verdict(
        Ended("all-reduce-p4d", "Failed", "BackoffLimitExceeded", all_reduce(8.4, told)), 60
    )
    (finding,) = found.findings
    assert str(finding.code) == "MEKS-0860"
    assert finding.found == "busbw: 8.40 GB/s at 2147483648 bytes, the mark is 60"
    assert finding.remedy == "below 10 GB/s NCCL uses TCP"


def test_a_number_below_the_mark_fails_whatever_the_program_says():
    """An older image may know no mark."""
    assert judged(all_reduce(8.4), mark=60) == (
        "failed",
        ["error MEKS-0860 busbw: 8.4 GB/s, the mark is 60"],
    )


def test_a_type_without_a_published_number_is_a_warning():
    """What was measured is worth comparing with another pair."""
    state, (line,) = judged(all_reduce(700.0))
    assert state == "warning"
    assert line == "warning MEKS-0860 700 GB/s, and there is no published mark for this type"


@pytest.mark.parametrize(("write", "read"), [(200, 900), (900, 200)])
def test_storage_is_as_slow_as_its_slower_direction(write, read):
    """Checkpoints write, data loading reads."""
    log = summary("storage_bench", write_mb_s=write, read_mb_s=read)
    assert judged(log, mark=439) == (
        "failed",
        ["error MEKS-0860 throughput: 200 MB/s, the mark is 439"],
    )


def test_missing_efa_devices_are_told_as_the_program_tells_them():
    """With what to do about it."""
    told = "error EFA devices: 3 EFA devices are usable in this pod, 4 expected - compare them"
    log = summary("efa_check", told, status="check failed", devices=3, expected=4)
    assert judged(log, "Failed") == (
        "failed",
        ["error MEKS-0861 EFA devices: 3 EFA devices are usable in this pod, 4 expected"],
    )


def steps(*losses):
    """Return the log of a training run."""
    return "".join(
        f"step {number}/{len(losses)} | loss {loss} | grad norm 1.0\n"
        for number, loss in enumerate(losses, start=1)
    )


def test_a_loss_that_falls_passes():
    """First and last are what was measured."""
    assert judged(steps(5.6, 4.1, 2.2)) == ("passed", [])
    assert measured(steps(5.6, 2.2)) == {"steps": 2, "first_loss": 5.6, "last_loss": 2.2}


@pytest.mark.parametrize("last", ["5.7", "nan"])
def test_a_loss_that_does_not_fall_fails(last):
    """The sample can be learned by heart."""
    state, (line,) = judged(steps(5.6, last))
    assert state == "failed"
    assert line == f"error MEKS-0860 the loss went from 5.6 to {last} in twenty steps"


def test_a_failure_without_a_word_has_the_controllers():
    """An image that cannot be pulled prints nothing."""
    assert judged("", "Failed", message="DeadlineExceeded") == (
        "failed",
        ["error MEKS-0861 DeadlineExceeded"],
    )


def test_a_check_that_has_not_ended_is_no_result():
    """What it waits for is the finding."""
    state, (line,) = judged("", "", message="not at its end after 30 min; waits for a node")
    assert state == "failed"
    assert line == "error MEKS-0862 not at its end after 30 min; waits for a node"


def test_a_success_without_a_result_is_none():
    """A log that was lost proves nothing."""
    assert judged("hello\n{broken\n") == (
        "failed",
        ["error MEKS-0862 it succeeded, and its log holds no result"],
    )
