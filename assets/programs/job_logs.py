"""Prints what log_copy.py has kept of a job's ranks, each line with its rank.

job_logs.py DIR [--rank N] [--tail N] [--since SECONDS] [--most-bytes N]

DIR holds rank-00000.log and so on, one a process of torchrun, with all starts of the job one after
another. The lines have no time of their own: --since begins with the first one in which the program
wrote a later time, and leaves out files that nobody has written to since. At most --most-bytes are
printed in all, the last ones of each rank.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 no such logs, 130 interrupted.
"""

import argparse
import re
import sys
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import program
from findings import Report, warning
from printable import log_line
from program import StopError

_NAME = re.compile(r"rank-(\d+)\.log")
# What Megatron and our programs write at the beginning of lines.
_TIME = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")
_HEAD_BYTES = 200
# The kubelet keeps 10 MiB of a container's log, with 50 bytes of its own in each line.
_MOST_BYTES = 6 * 2**20
_LONGEST_BYTES = 64 * 1024


def main(argv: Sequence[str], report: Report) -> None:
    """Print the lines, and in the end how many there were and their checksum."""
    options = _parser().parse_args(argv)
    files = _files(options.directory, options.rank)
    share = options.most_bytes // len(files)
    since = time.time() - options.since if options.since else None
    lines = checksum = cut = 0
    width = len(str(max(files)))
    for rank, path in files.items():
        if since and path.stat().st_mtime < since:
            continue
        kept, dropped = _last(_lines(path, since), options.tail, share)
        cut += dropped
        for line in kept:
            shown = f"[{rank:{width}}] {log_line(line)}"
            sys.stdout.write(f"{shown}\n")
            lines, checksum = lines + 1, zlib.crc32(shown.encode(), checksum)
    report.facts.update(directory=str(options.directory), ranks=len(files), lines=lines)
    report.facts.update(crc32=checksum, left_out=cut)
    if cut:
        report.findings.append(
            warning(
                options.directory,
                f"{cut} earlier lines are left out, so that the rest comes whole",
                "choose a --rank, or copy the files: meks shell",
            )
        )


def _files(directory: Path, wanted: int | None) -> dict[int, Path]:
    try:
        names = {path: _NAME.fullmatch(path.name) for path in directory.iterdir()}
    except FileNotFoundError:
        names = {}
    found = {int(match[1]): path for path, match in names.items() if match}
    chosen = {rank: path for rank, path in found.items() if wanted in (None, rank)}
    if not chosen:
        there = f"ranks 0 to {max(found)}" if found else "no rank-*.log"
        lacking = there if wanted is None or not found else f"{there}, and no rank {wanted}"
        remedy = "Megatron's jobs are copied there; see that the name is right"
        raise StopError(program.EXIT_NOT_FOUND, directory, lacking, remedy)
    return dict(sorted(chosen.items()))


def _lines(path: Path, since: float | None) -> Iterator[bytes]:
    """Yield the lines of a file; with `since` from the first later time on, if it has times."""
    with path.open("rb") as file:
        if since is not None and _has_times(path):
            for line in file:
                if (moment := _moment(line)) is not None and moment >= since:
                    yield line.rstrip(b"\r\n")[:_LONGEST_BYTES]
                    break
        for line in file:
            yield line.rstrip(b"\r\n")[:_LONGEST_BYTES]


def _has_times(path: Path) -> bool:
    with path.open("rb") as file:
        return any(_moment(line) is not None for line in file)


def _moment(line: bytes) -> float | None:
    found = _TIME.search(line[:_HEAD_BYTES])
    if found is None:
        return None
    try:
        # Containers have UTC.
        moment = datetime.fromisoformat(f"{found[1].decode()}T{found[2].decode()}")
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC).timestamp()


def _last(lines: Iterator[bytes], tail: int | None, most: int) -> tuple[list[bytes], int]:
    """Return the last lines within a number and a size, and how many the size left out."""
    kept: deque[bytes] = deque(maxlen=tail)
    size = cut = 0
    for line in lines:
        if kept and len(kept) == tail:
            size -= len(kept[0]) + 1
        kept.append(line)
        size += len(line) + 1
        while size > most and len(kept) > 1:
            size -= len(kept.popleft()) + 1
            cut += 1
    return list(kept) if tail != 0 else [], cut


def _parser() -> argparse.ArgumentParser:
    parser = program.parser(__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="a job's logs")
    parser.add_argument("--rank", type=int, help="of this rank alone")
    parser.add_argument("--tail", type=int, help="the last lines of each rank")
    parser.add_argument("--since", type=int, metavar="SECONDS", help="from so long ago on")
    parser.add_argument("--most-bytes", type=int, default=_MOST_BYTES, help="default %(default)s")
    return parser


if __name__ == "__main__":
    sys.exit(program.run("job_logs", main, sys.argv[1:]))
