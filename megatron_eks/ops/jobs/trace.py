"""What a trace of PyTorch's profiler says: where a rank's time went in a few steps.

The file is Chrome's "Trace Event Format" as Kineto writes it: complete events (`ph: X`) with begin
and duration in microseconds. On a GPU kernels and copies count; without one, operators on the CPU,
each without those that it calls, and Gloo's own threads.

Or the file is SQLite's, as Nsight Systems exports a report: times in nanoseconds, names as numbers
of StringIds, and a table only where there is something for it (Nsight Systems documentation,
"SQLite Export Schema Reference").
"""

import gzip
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from megatron_eks.config.codes import Code
from megatron_eks.ops.failure import CHECK_FAILED, Failure

_MOST_BYTES = 2**29
_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
_GLOO = "gloo:"
# NCCL's kernels are ncclDevKernel_*, older ones ncclKernel_*.
_COMMUNICATES = re.compile(rf"nccl|{_GLOO}", re.IGNORECASE)
# On a CPU they wait for Gloo's threads, which have events of their own.
_WAITS = re.compile(r"_?c10d(_functional)?::")
READABLE = (".json.gz", ".sqlite")
"""How names of files end that are read here."""
_FILE = re.compile(r"rank-(\d+)\.steps-(\d+)-(\d+)\.(json\.gz|sqlite)")
_MICRO = 1e-6
_NANO = 1e3  # in a microsecond
# CUPTI, CUpti_ActivityMemcpyKind.
_COPIES = {1: "Memcpy HtoD", 2: "Memcpy DtoH", 8: "Memcpy DtoD", 10: "Memcpy PtoP"}
_BROKEN = (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class Use:
    """What one kernel, or operator, took in all."""

    name: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class Trace:
    """One rank's time."""

    rank: int
    first: int
    last: int
    """The steps of it."""
    on_gpu: bool
    seconds: float
    """From the first kernel to the end of the last."""
    computing: float
    communicating: float
    waiting: float
    """Seconds of communication beside which nothing was computed."""
    idle: float
    uses: tuple[Use, ...]
    """The longest first."""


@dataclass(frozen=True)
class _Span:
    name: str
    begin: float
    end: float


def read(file: Path) -> Trace:
    """Read a trace. Raises Failure where it is none, or too large to be read here."""
    named = _FILE.fullmatch(file.name)
    try:
        assert named is not None  # noqa: S101 -- as `profile_request` names them
        *of, form = named.groups()
        spans, on_gpu = ([*_of_nsys(file)], True) if form == "sqlite" else _of_kineto(file)
        found = _of(spans, *map(int, of), on_gpu=on_gpu)
    except (*_BROKEN, sqlite3.Error) as problem:
        said = f"{file}: cannot be read as a trace: {problem}"
        remedy = "ask for fewer steps, and remove the file: meks profile JOB --steps FIRST:LAST"
        raise Failure(Code.BAD_TRACE, said, remedy, exit_code=CHECK_FAILED) from problem
    return found


def _of_kineto(file: Path) -> tuple[Sequence[_Span], bool]:
    """Return what counts of a trace, and whether it is of a GPU."""
    with gzip.open(file) as packed:
        text = packed.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
    events = [each for each in json.loads(text)["traceEvents"] if each.get("ph") == "X"]
    device = [_span(each) for each in events if each.get("cat") in _DEVICE]
    return device or [*_on_cpu(events)], bool(device)


def _of(found: Iterable[_Span], rank: int, first: int, last: int, *, on_gpu: bool) -> Trace:
    spans = sorted(found, key=attrgetter("begin"))
    if not spans:
        raise ValueError("it has no kernel and no operator")
    sent = [each for each in spans if _COMMUNICATES.search(each.name)]
    done = [each for each in spans if not _COMMUNICATES.search(each.name)]
    whole = max(each.end for each in spans) - spans[0].begin
    computing, busy = _length(done), _length(spans)
    uses: dict[str, list[float]] = defaultdict(list)
    for each in spans:
        uses[each.name].append(each.end - each.begin)
    told = [Use(name, len(took), sum(took) * _MICRO) for name, took in uses.items()]
    return Trace(
        *(rank, first, last, on_gpu, whole * _MICRO, computing * _MICRO),
        communicating=_length(sent) * _MICRO,
        waiting=(busy - computing) * _MICRO,
        idle=(whole - busy) * _MICRO,
        uses=tuple(sorted(told, key=attrgetter("seconds"), reverse=True)),
    )


def _span(event: Any) -> _Span:  # noqa: ANN401 -- JSON
    begin = float(event["ts"])
    return _Span(str(event["name"]), begin, begin + float(event.get("dur", 0)))


def _of_nsys(file: Path) -> Iterator[_Span]:
    names = "SELECT start, end, value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds"
    with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as report:
        tables = {name for (name,) in report.execute("SELECT name FROM sqlite_master")}
        for table, query in (
            ("KERNEL", f"{names} ON StringIds.id = demangledName"),
            ("MEMCPY", "SELECT start, end, copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY"),
            ("MEMSET", "SELECT start, end, 'Memset' FROM CUPTI_ACTIVITY_KIND_MEMSET"),
        ):
            if f"CUPTI_ACTIVITY_KIND_{table}" in tables:
                for begin, end, name in report.execute(query):
                    said = name if isinstance(name, str) else _COPIES.get(name, "Memcpy")
                    yield _Span(said, begin / _NANO, end / _NANO)


def _on_cpu(events: Sequence[Any]) -> Iterator[_Span]:
    threads: dict[Any, list[_Span]] = defaultdict(list)
    for each in events:
        if each.get("cat") == "cpu_op":
            threads[each.get("tid")].append(_span(each))
        elif str(each["name"]).startswith(_GLOO):
            yield _span(each)
    for spans in threads.values():
        yield from (each for each in _own(spans) if not _WAITS.match(each.name))


def _own(spans: list[_Span]) -> Iterator[_Span]:
    """Yield the parts of a thread's operators in which none of those ran that they call."""
    open_: list[_Span] = []
    at = 0.0
    for each in (*sorted(spans, key=lambda x: (x.begin, -x.end)), None):
        while open_ and (each is None or open_[-1].end <= each.begin):
            inner = open_.pop()
            if inner.end > at:
                yield _Span(inner.name, at, inner.end)
                at = inner.end
        if each is not None:
            if open_ and each.begin > at:
                yield _Span(open_[-1].name, at, each.begin)
            at = max(at, each.begin)
            open_.append(each)


def _length(spans: Sequence[_Span]) -> float:
    """Return how long at least one of them ran."""
    total, end = 0.0, float("-inf")
    for each in spans:
        total += max(0.0, each.end - max(each.begin, end))
        end = max(end, each.end)
    return total
