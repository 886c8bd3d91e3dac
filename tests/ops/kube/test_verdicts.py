"""What the end and the log of a check on the hardware mean."""

import json

import pytest

from megatron_eks.ops.jobs.verdicts import Ended, verdict

_SMI = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:10:1C.0 Off |                    0 |
"""


def summary(program, *findings, status="done", **facts):
    """Return a log that ends as programs of ours do."""
    line = json.dumps({"program": program, "status": status, **facts, "findings": list(findings)})
    return f"      size (B)    time (us)\n{line}\n"


def all_reduce(busbw, *findings, mark=None):
    """Return the log of an all-reduce."""
    numbers = {"best_busbw_gb_s": busbw, "best_bytes": 2**31, "ranks": 16}
    return summary("allreduce_bench", *findings, **numbers, pass_busbw_gb_s=mark)


def steps(*losses):
    """Return the log of a training run."""
    return "".join(
        f"step {number}/{len(losses)} | loss {loss} | grad norm 1.0\n"
        for number, loss in enumerate(losses, start=1)
    )


_SLOW = "error busbw: 8.40 GB/s at 2147483648 bytes, the mark is 60 - below 10 GB/s NCCL uses TCP"
_NO_EFA = "error EFA devices: 3 EFA devices are usable in this pod, 4 expected - compare them"
# Each with its log, how it ended, the verdict, and what is told.
_CASES = {
    "a driver that answers": (_SMI, "Succeeded", "passed", []),
    "a GPU that answers with errors, where nvidia-smi ends with 0": (
        *(_SMI + "| ERR!   ERR! ERR!  ERR! / ERR! |", "Succeeded", "failed"),
        ["error MEKS-0861 nvidia-smi prints 'ERR!'"],
    ),
    "an all-reduce at its mark": (all_reduce(78.3, mark=60), "Succeeded", "passed", []),
    "one below its mark is told once, in the program's own words": (
        *(all_reduce(8.4, _SLOW, mark=60), "Failed", "failed"),
        ["error MEKS-0860 busbw: 8.40 GB/s at 2147483648 bytes, the mark is 60"],
    ),
    "a type without a published number": (
        *(all_reduce(700.0), "Succeeded", "warning"),
        ["warning MEKS-0860 700.0 GB/s, and there is no published mark for this type"],
    ),
    "missing EFA devices": (
        *(summary("efa_check", _NO_EFA, devices=3, expected=4), "Failed", "failed"),
        ["error MEKS-0861 EFA devices: 3 EFA devices are usable in this pod, 4 expected"],
    ),
    "a loss that falls": (steps(5.6, 4.1, 2.2), "Succeeded", "passed", []),
    "a loss that rises": (
        *(steps(5.6, 5.7), "Succeeded", "failed"),
        ["error MEKS-0860 the loss went from 5.6 to 5.7 in twenty steps"],
    ),
    "a loss that is no number": (
        *(steps(5.6, "nan"), "Succeeded", "failed"),
        ["error MEKS-0860 the loss went from 5.6 to nan in twenty steps"],
    ),
    "a failure without a word has the controller's": (
        *("", "Failed", "failed"),
        ["error MEKS-0861 the controller's words"],
    ),
    "a check that has not ended": (
        *("", "", "failed"),
        ["error MEKS-0862 the controller's words"],
    ),
    "a success whose log was lost": (
        *("hello\n{broken\n", "Succeeded", "failed"),
        ["error MEKS-0862 it succeeded, and its log holds no result"],
    ),
}


@pytest.mark.parametrize(("log", "phase", "state", "told"), _CASES.values(), ids=_CASES)
def test_verdict(log, phase, state, told):
    """Of the end of a check and of its log."""
    found = verdict(Ended("check-p4d", phase, "the controller's words", log))
    assert found.verdict == state
    assert [f"{each.level} {each.code} {each.found}" for each in found.findings] == told


def test_the_remedy_is_the_programs():
    """Where it says one."""
    (finding,) = verdict(Ended("x", "Failed", "", all_reduce(8.4, _SLOW, mark=60))).findings
    assert finding.remedy == "below 10 GB/s NCCL uses TCP"


@pytest.mark.parametrize(
    ("log", "measured"),
    [
        (_SMI, {"driver": "580.95.05", "cuda": "13.0"}),
        (steps(5.6, 2.2), {"steps": 2, "first_loss": 5.6, "last_loss": 2.2}),
    ],
)
def test_what_was_measured(log, measured):
    """The driver's version, first and last loss."""
    assert verdict(Ended("x", "Succeeded", "", log)).measured == measured
