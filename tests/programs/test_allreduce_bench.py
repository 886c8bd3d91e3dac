"""The all-reduce measurement: its arithmetic, its mark, and a run on two ranks."""

import argparse

import pytest

from megatron_eks.programs import allreduce_bench
from megatron_eks.programs.allreduce_bench import Row
from megatron_eks.programs.program import Report
from tests.programs.run_program import run, torchrun

GIB = 2**30


def judged(rows: list[Row], *, mark: float | None = None, most: int = 16 * GIB) -> Report:
    """Hold rows against a mark."""
    report = Report()
    options = argparse.Namespace(min_bytes=8, max_bytes=most, pass_busbw_gb_s=mark)
    allreduce_bench.judge(rows, options, report)
    return report


def row(size: int, busbw: float, wrong: int = 0) -> Row:
    """Return a row of the table."""
    return Row(size, 0.1, busbw / 2, busbw, wrong)


@pytest.mark.parametrize(
    ("ranks", "seconds", "algbw", "busbw"),
    [
        # https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md, AllReduce
        (2, 0.5, 2.0, 2.0),
        (16, 0.01, 100.0, 187.5),
        (1, 0.01, 100.0, 0.0),
    ],
)
def test_bandwidths_are_those_of_nccl_tests(ranks, seconds, algbw, busbw):
    """Busbw is algbw times 2(n-1)/n, in units of 10^9 bytes a second."""
    assert allreduce_bench.bandwidths(10**9, seconds, ranks) == pytest.approx((algbw, busbw))


def test_mark_is_for_messages_of_one_gib_and_more():
    """A fast small message does not make a slow network pass."""
    rows = [row(GIB // 2, 90), row(GIB, 50), row(2 * GIB, 59), row(4 * GIB, 58)]
    report = judged(rows, mark=60, most=4 * GIB)
    assert report.exit_code == 4
    assert (report.facts["best_busbw_gb_s"], report.facts["best_bytes"]) == (59, 2 * GIB)
    assert "59.00 GB/s at 2147483648 bytes, the mark is 60" in str(report.findings[0])
    assert judged(rows, mark=59, most=4 * GIB).exit_code == 0


def test_largest_message_counts_where_all_are_small():
    """A quick run is judged by the message that comes closest."""
    rows = [row(2**20, 90), row(2**21, 20)]
    assert judged(rows, most=2**21).facts["best_busbw_gb_s"] == 20


def test_wrong_sum_fails_whatever_the_speed():
    """A fast wrong answer is the worst result of all."""
    report = judged([row(GIB, 500), row(2 * GIB, 500, wrong=3)], mark=1, most=2 * GIB)
    assert report.exit_code == 4
    assert "error 2147483648 bytes: 3 elements are not the sum" in str(report.findings[0])


def test_size_that_does_not_fit_is_said():
    """The table ends before the wanted size, and the judgement stands on what was measured."""
    report = judged([row(GIB, 100)], mark=60)
    assert report.exit_code == 0
    assert "2147483648 bytes do not fit into every rank's memory" in str(report.findings[0])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--min-bytes", "2", "--max-bytes", "8"], "'2' is no multiple of 4 bytes"),
        (["--min-bytes", "8", "--max-bytes", "1T"], "'1T' is no multiple of 4 bytes"),
        (["--min-bytes", "1G", "--max-bytes", "1M"], "--max-bytes is less than --min-bytes"),
        (["--min-bytes", "8", "--max-bytes", "8"], "start it with torchrun"),
    ],
)
def test_wrong_options_exit_with_2(words, found):
    """A wrong command line is found without torch."""
    done = run("allreduce_bench", *words)
    assert (done.code, done.summary["status"]) == (2, "usage")
    assert found in done.stderr


@pytest.mark.programs
def test_two_ranks_measure_and_agree():
    """Real sums between two processes are right at every size, and one JSON line says it."""
    done = torchrun(2, "allreduce_bench", "--min-bytes", "8", "--max-bytes", "1M")
    assert done.code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    summary = done.summary
    assert (summary["ranks"], summary["device"], summary["findings"]) == (2, "cpu", [])
    rows = summary["rows"]
    assert isinstance(rows, list)
    assert [each["bytes"] for each in rows] == [8 * 2**step for step in range(18)]
    assert all(each["wrong"] == 0 and each["busbw_gb_s"] > 0 for each in rows)


@pytest.mark.programs
def test_message_larger_than_memory_is_refused():
    """No rank allocates what the machine does not have."""
    done = torchrun(2, "allreduce_bench", "--min-bytes", "4096G", "--max-bytes", "4096G")
    assert done.summary["findings"] == [
        "error memory: 4398046511104 bytes do not fit - use a smaller --min-bytes"
    ]
