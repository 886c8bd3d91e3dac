"""What is read from traces: of a GPU, made by hand so that each share is known, and of none."""

import gzip
import json
import sqlite3
from contextlib import closing

import pytest

from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import profile, trace
from megatron_eks.programs.profile_request import steps
from tests.ops.test_report import _Reader

GEMM, SUM = "sm90_xmma_gemm_bf16_<script>", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
# Milliseconds: communication is hidden by the second product for 10 of its 40.
EVENTS = [
    ("kernel", GEMM, 0, 30, 7),
    ("kernel", GEMM, 40, 20, 7),
    ("kernel", SUM, 50, 40, 20),
    ("gpu_memcpy", "Memcpy HtoD", 95, 5, 7),
    ("cpu_op", "aten::mm", 0, 900, 1),
]


def written(folder, rank=0, events=EVENTS):
    """Write a trace as Kineto does; return its file."""
    found = [
        {"ph": "X", "cat": cat, "name": name, "ts": ts * 1e3, "dur": dur * 1e3, "tid": tid}
        for cat, name, ts, dur, tid in events
    ]
    file = folder / f"rank-{rank:05}.steps-10-12.json.gz"
    with gzip.open(file, "wt") as packed:
        json.dump({"traceEvents": [{"ph": "M", "name": "process_name"}, *found]}, packed)
    return file


def exported(folder, events=EVENTS, rank=0):
    """Write the same as nsys exports it, in its documented tables; return the file.

    Columns that the reader has no use for are left out.
    """
    file = folder / f"rank-{rank:05}.steps-10-12.sqlite"
    tables = {"kernel": "KERNEL", "gpu_memcpy": "MEMCPY"}
    with closing(sqlite3.connect(file)) as report, report:
        report.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        report.execute("CREATE TABLE NVTX_EVENTS (start INT, end INT, text TEXT, textId INT)")
        report.execute("INSERT INTO NVTX_EVENTS VALUES (0, 900000000, 'step', NULL)")
        for cat, name, ts, dur, stream in events:
            if cat not in tables:
                continue
            table, column = f"CUPTI_ACTIVITY_KIND_{tables[cat]}", "demangledName"
            report.execute("INSERT INTO StringIds (value) VALUES (?)", (name,))
            (value,) = report.execute("SELECT max(id) FROM StringIds").fetchone()
            if cat == "gpu_memcpy":
                column, value = "copyKind", 1
            columns = f"start INT, end INT, deviceId INT, streamId INT, {column} INT"
            report.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            # Its clock begins with the session.
            begin = 5_000_000_000 + ts * 1_000_000
            row = begin, begin + dur * 1_000_000, 0, stream, value
            report.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?)", row)  # noqa: S608 -- names above
    return file


@pytest.fixture
def traces(tmp_path):
    """Return what two ranks' traces say, of which the second computes all the time."""
    busy = [("kernel", GEMM, 0, 100, 7)]
    return [trace.read(written(tmp_path)), trace.read(written(tmp_path, 1, busy))]


def test_communication_counts_where_nothing_hides_it(traces):
    """Kernels and copies alone, whatever the CPU did meanwhile."""
    found, _ = traces
    assert (found.rank, found.first, found.last, found.on_gpu) == (0, 10, 12, True)
    whole = found.seconds, found.computing, found.communicating, found.waiting, found.idle
    assert whole == pytest.approx((0.1, 0.055, 0.04, 0.03, 0.015))
    assert [(use.name, use.calls) for use in found.uses][:2] == [(GEMM, 2), (SUM, 1)]


def test_a_report_of_nsys_says_the_same(tmp_path):
    """As a trace of PyTorch's profiler, down to the names of copies."""
    assert trace.read(exported(tmp_path)) == trace.read(written(tmp_path))


def test_an_operator_counts_without_those_that_it_calls(tmp_path):
    """And what waits for Gloo's threads is no computing."""
    events = [
        ("cpu_op", "aten::linear", 0, 100, 1),
        ("cpu_op", "aten::mm", 10, 60, 1),
        ("cpu_op", "c10d::allreduce_", 100, 50, 1),
        ("user_annotation", "gloo:all_reduce", 105, 40, 2),
    ]
    found = trace.read(written(tmp_path, events=events))
    assert {use.name: round(use.seconds, 4) for use in found.uses} == {
        "aten::mm": 0.06,
        "aten::linear": 0.04,
        "gloo:all_reduce": 0.04,
    }
    assert [found.waiting, found.idle] == pytest.approx([0.04, 0.005])


def test_the_page_begins_with_the_rank_that_waits_most(traces, tmp_path):
    """And a kernel's name is text."""
    page = profile.page("job", traces, tmp_path)
    reader = _Reader()
    reader.feed(page)
    text = " ".join(reader.words)
    for said in ("Rank 0 computes 55% of its time", "30% of it waits", "15% of it has nothing"):
        assert said in text, said
    assert "script" not in reader.tags
    assert text.index("50.00 ms") < text.index("40.00 ms")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"traceEvents": []}', b"\x1f\x8b\x08"])
def test_what_is_no_trace_is_refused(tmp_path, content):
    """With its file, and what to do."""
    file = tmp_path / "rank-00000.steps-3-4.json.gz"
    file.write_bytes(content if content.startswith(b"\x1f") else gzip.compress(content))
    with pytest.raises(Failure, match="cannot be read as a trace"):
        trace.read(file)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"<html>"])
def test_what_nsys_has_not_finished_is_refused(tmp_path, content):
    """Likewise: an empty database, one that ends early, and none."""
    file = tmp_path / "rank-00000.steps-3-4.sqlite"
    file.write_bytes(content)
    with pytest.raises(Failure, match="cannot be read as a trace"):
        trace.read(file)


def test_a_trace_that_is_too_large_is_refused(tmp_path, monkeypatch):
    """Before this machine's memory is full."""
    monkeypatch.setattr(trace, "_MOST_BYTES", 2**20)
    file = tmp_path / "rank-00000.steps-3-4.json.gz"
    file.write_bytes(gzip.compress(b" " * (2**20 + 1)))
    with pytest.raises(Failure, match="more than 1 MiB"):
        trace.read(file)


@pytest.mark.parametrize("text", ["10", "2:4", "12:10", "10:20", "a:b", "-3:5", "3:"])
def test_steps_that_cannot_be_are_refused(text):
    """With what they may be."""
    with pytest.raises(ValueError, match=r"such as 10:12|at most 10 steps, from step 3 on"):
        steps(text)
    assert steps("10:19") == (10, 19)
