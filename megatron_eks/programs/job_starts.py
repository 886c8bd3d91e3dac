"""Prints how all jobs' starts went, for a month: of their records, and of what is left of them.

job_starts LOGS [--days N]

LOGS holds a folder for each job. What record_files removes leaves DIR/TIME-START.told: the lines
that tell how the start began, went on, saved and ended, without anything else. Each line is a JSON
object: `job`, `lives` for a start that a rank still writes to, `ranks`, `lines`.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from megatron_eks.programs import program, record_files
from megatron_eks.programs.printable import log_line
from megatron_eks.programs.program import Report

_TELLS = re.compile(rb"(saved|loaded) checkpoint|goes on from step|record: ")
_LAST, _LONGEST_BYTES = 20, 500
_FIRST = re.compile(r"record: start \d+, (\S+Z)")
_BADLY = re.compile(rb"record: (?:ended with exit code [1-9]\d*|was ended by signal \d+), (\S+)Z")
_OVER = re.compile(rb"record: (ended with|was ended by) ")
_ALIVE_SECONDS = 180.0
KEPT_DAYS = 62


def main(argv: Sequence[str], report: Report) -> None:
    """Print them, the oldest first."""
    parser = program.parser(__doc__)
    parser.add_argument("logs", type=Path, metavar="LOGS", help="where the jobs' folders are")
    parser.add_argument("--days", type=int, default=31, help="default %(default)s")
    options = parser.parse_args(argv)
    since, starts = time.time() - options.days * 24 * 3600, 0
    for directory in sorted(filter(Path.is_dir, options.logs.glob("*"))):
        for told in sorted(directory.glob("*.told")):
            if told.stat().st_mtime >= since:
                kept = told.read_text()
                sys.stdout.write(kept)
                starts += kept.endswith("}\n")
        for start in map(directory.joinpath, record_files.starts(directory)):
            if record_files.newest(start) >= since and (found := of(start)):
                sys.stdout.write(f"{json.dumps(found)}\n")
                starts += 1
    report.facts["starts"] = starts


def of(start: Path) -> dict[str, Any] | None:
    """Return what is told of a start; None if no rank has written."""
    ends: dict[int, bytes] = {}
    for file in start.glob("rank-?????.log"):
        rank = int(file.name[5:10])
        ends[rank] = _end(record_files.parts(start, rank)[-1])
    if not ends:
        return None
    # The first rank and the last tell of steps; who ended first, of why.
    badly = [(found[1], rank) for rank in ends if (found := _BADLY.match(ends[rank]))]
    chosen = {0, max(ends)} | ({min(badly)[1]} if badly else set())
    lines = [
        f"[{rank}] {log_line(line)}"
        for rank in sorted(chosen)
        for line in record_files.telling(_lines(start, rank), _TELLS, _LAST)
    ]
    # Who has written its last line lives no more.
    lives = any(not _OVER.match(each) for each in ends.values())
    lives = lives and time.time() - record_files.newest(start) < _ALIVE_SECONDS
    return {"job": start.parent.name, "lives": lives, "ranks": len(ends), "lines": lines}


def keep(start: Path) -> None:
    """Leave what is told of a start that goes."""
    if (found := of(start)) is None:
        return
    begun = next(filter(None, map(_FIRST.search, found["lines"])), None)
    name = re.sub("[^0-9TZ]", "", begun[1]) if begun else "0"
    file = start.with_name(f"{name}-{start.name}.told")
    modified = record_files.newest(start)
    file.write_text(f"{json.dumps(found)}\n")
    os.utime(file, (modified, modified))


def _end(file: Path) -> bytes:
    """Return the last line of a file."""
    with file.open("rb") as lines:
        lines.seek(max(0, file.stat().st_size - _LONGEST_BYTES))
        return lines.read().rstrip(b"\n").rpartition(b"\n")[2]


def _lines(start: Path, rank: int) -> Iterator[bytes]:
    for part in record_files.parts(start, rank):
        with part.open("rb") as lines:
            yield from (line.rstrip(b"\r\n")[:_LONGEST_BYTES] for line in lines)


if __name__ == "__main__":
    sys.exit(program.run("job_starts", main, sys.argv[1:]))
