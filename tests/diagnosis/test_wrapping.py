"""Logs as collectors hand them over: prefixes, JSON records, times and zones."""

import json

import pytest

from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.diagnose import diagnose

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
DISK = "OSError: [Errno 28] No space left on device: '/shared/x'"
WAITED = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1)"
)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[rank3]: {}", 3),
        ("[default5]:{}", 5),
        ("[default5]:[rank21]: {}", 21),
        ("[ 4] 2026-11-22T10:00:00.123456789Z [rank4]: {}", 4),
        ("[pod/fsdp-worker-1/pytorch] {}", None),
        ("[pod/fsdp-worker-1/pytorch] 2026-11-22T10:00:00Z [rank9]: {}", 9),
        ("fsdp-worker-1 pytorch {}", None),
        ("2026-11-22T10:00:00.123456789Z stderr F [rank2]: {}", 2),
        ("12: {}", 12),
        ("[node-0:3] {}", 3),
        ("[1,6]<stderr>: {}", 6),
        ("(RayTrainWorker pid=771, ip=10.0.1.5) {}", None),
        ("(MegatronPolicyWorker[rank=5] pid=7005, ip=10.7.0.11) {}", 5),
        ("(Worker pid=7, ip=10.7.0.11) {} [repeated 7x across cluster]", None),
        ("worker-1: [rank9]: {}", 9),
        ("[1,mpirank:3,algo-1]<stderr>:{}", 3),
        ("#14 512.7   {}", None),
        ("\x1b[36m[rank1]:\x1b[0m \x1b[31m{}\x1b[0m", 1),
        ("  3%|3         | 3/100\r  4%|4         | 4/100\r[rank7]: {}", 7),
        ("Nov 22 10:00:00 ip-10-0-1-5 kernel: {}", None),
    ],
)
@pytest.mark.parametrize("error", ["ValueError: too many values", OUT_OF_MEMORY])
def test_prefixes_are_taken_off(line: str, rank: int | None, error: str) -> None:
    """The error stands alone at last, and its rank is known where the prefix tells it."""
    found = diagnose([line.format(error)])
    assert (found.code is not None, found.evidence[0].text.strip(), found.rank) == (
        True,
        error,
        rank,
    )


@pytest.mark.parametrize(
    "record",
    [
        {"log": f"[rank3]: {OUT_OF_MEMORY}\n", "stream": "stderr", "time": "2026-11-22T10:00:00Z"},
        {"timestamp": 1795341600000, "message": f"[rank3]: {OUT_OF_MEMORY}"},
        {"message": json.dumps({"level": "error", "msg": f"[rank3]: {OUT_OF_MEMORY}"})},
        {"log": f"first\nsecond\n[rank3]: {OUT_OF_MEMORY}", "kubernetes": {"pod_name": "x-0"}},
    ],
)
def test_records_are_unwrapped(record: dict[str, object]) -> None:
    """CloudWatch's and Docker's, one in the other, and with several lines in one."""
    found = diagnose([json.dumps(record)])
    assert (found.code, found.rank) == (LogCode.CUDA_OUT_OF_MEMORY, 3)


def test_broken_record_is_a_line() -> None:
    """Cut off, and not JSON any more."""
    assert diagnose(['{"log": "CUDA out of memory']).code is LogCode.CUDA_OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("2026-11-22T19:00:01+09:00", "2026-11-22T10:05:00Z"),
        ("2026-11-22T10:00:01Z", "2026-11-22T05:05:00-05:00"),
        ("Nov 22 10:00:01 host", "2026-11-22 10:05:00"),
        ("2026/11/22 10:00:01", "[E1122 10:05:00.000001 x.cpp:1]"),
    ],
)
def test_times_are_compared_in_one_zone(first: str, later: str) -> None:
    """Whichever stands first in the file."""
    early, late = f"[rank1]: {first} {OUT_OF_MEMORY}", f"[rank0]: {later} {DISK}"
    assert diagnose([late, early]).code is LogCode.CUDA_OUT_OF_MEMORY


def test_local_times_are_shifted_as_a_line_with_both_tells() -> None:
    """The kubelet writes UTC, and the program the node's own time."""
    both = "2026-11-22T10:00:00Z [I1122 19:00:00.000000 x.cpp:1] start"
    early = f"2026-11-22T10:01:00Z {OUT_OF_MEMORY}"
    late = f"[E1122 19:02:00.000000 x.cpp:1] {DISK}"
    assert diagnose([both, late, early]).code is LogCode.CUDA_OUT_OF_MEMORY


def test_clocks_a_little_apart_do_not_matter() -> None:
    """What others see is never the cause, also when their clock is ahead."""
    log = [
        f"[rank0]:[E1122 09:59:58.000000 x.cpp:1] {WAITED}",
        f"[rank2]: 2026-11-22 10:00:00 {OUT_OF_MEMORY}",
    ]
    found = diagnose(log)
    assert (found.code, found.rank) == (LogCode.CUDA_OUT_OF_MEMORY, 2)
