"""Prints what record has kept of a job's ranks, each line with its rank.

job_logs DIR [--rank N] [--tail N] [--since SECONDS] [--before] [--both] [--all] [--match REGEX]
            [--most-bytes N] [--objects]

DIR holds a folder for each start of the job. Of each rank its newest output is printed; what it
printed before its container started again instead of that, or as well, or of all starts. Before all
that, --objects prints what job_objects has kept of the job: itself, its pods and its events, a line
for each. With --match only lines that match are printed, and of each start the last --tail ones.

Most lines have no time of their own: --since begins with the first one in which the program wrote a
later time, and leaves out ranks that have not lived since. At most --most-bytes are printed in all,
the last ones of each rank; what other ranks leave of that is for the last one and the first.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 no such logs, 130 interrupted.
"""

import argparse
import json
import re
import sys
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import dropwhile
from pathlib import Path
from typing import Any

from megatron_eks.programs import program, record_files
from megatron_eks.programs.printable import log_line
from megatron_eks.programs.program import Report, StopError

_NAME = re.compile(r"rank-(\d+)\.log")
_AFTER = re.compile(rb"record: start .*, after (\d+)")
# What Megatron and our programs write at the beginning of lines.
_TIME = re.compile(rb"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)")
_HEAD_BYTES = 200
# The kubelet keeps 10 MiB of a container's log, with 50 bytes of its own in each line.
_MOST_BYTES = 6 * 2**20
_LONGEST_BYTES = 64 * 1024


def main(argv: Sequence[str], report: Report) -> None:
    """Print the lines, and in the end how many there were and their checksum."""
    parser = program.parser(__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="a job's logs")
    parser.add_argument("--rank", type=int, help="of this rank alone")
    parser.add_argument("--tail", type=int, help="the last lines of each rank")
    parser.add_argument("--since", type=int, metavar="SECONDS", help="from so long ago on")
    parser.add_argument("--before", action="store_true", help="before its last restart")
    parser.add_argument("--both", action="store_true", help="before and after it")
    parser.add_argument("--objects", action="store_true", help="what Kubernetes said, too")
    parser.add_argument("--all", action="store_true", help="from its first start on")
    parser.add_argument("--match", type=_pattern, metavar="REGEX", help="see above")
    parser.add_argument("--most-bytes", type=int, default=_MOST_BYTES, help="default %(default)s")
    options = parser.parse_args(argv)
    kept = _kept(options.directory)
    objects = [kept["job"], *kept["pods"].values(), *kept["events"].values()] if kept else []
    lines = [f"[object] {json.dumps(each)}" for each in objects if options.objects]
    found = _chosen(options.directory, options.rank, kept, needed=not lines, deep=options.all)
    since = time.time() - options.since if options.since else None
    cut, left = 0, options.most_bytes
    told: dict[int, list[bytes]] = {}
    # The first rank and the last tell of steps, so they have what the others leave.
    for more, rank in enumerate(sorted(found, key=lambda each: (each in {0, max(found)}, each))):
        folders = found[rank]
        # The container before the last one, all in their order, or the last one.
        both = options.both or options.all
        of = folders[1:] if options.before else folders[::-1] if both else folders[:1]
        parts = [part for folder in of for part in record_files.parts(folder, rank)]
        if not parts or (since and parts[-1].stat().st_mtime < since):
            continue
        said, tail = _lines(parts, since), options.tail
        if options.match:
            # Of each start the lines that match, and its last ones.
            ends = [_lines(record_files.parts(folder, rank), None) for folder in of]
            tell, tail = (options.match, tail or 0), None
            said = (line for each in ends for line in record_files.telling(each, *tell))
        told[rank], dropped = _last(said, tail, left // (len(found) - more))
        left -= sum(len(line) + 1 for line in told[rank])
        cut += dropped
    width = len(str(max(found, default=0)))
    lines += [f"[{rank:{width}}] {log_line(line)}" for rank in sorted(told) for line in told[rank]]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    report.facts.update(directory=str(options.directory), ranks=list(found), lines=len(lines))
    report.facts.update(crc32=zlib.crc32("".join(lines).encode()), left_out=cut)
    if cut:
        what = f"{cut} earlier lines are left out, so that the rest comes whole"
        report.warning(options.directory, what, "choose a --rank, or copy the files: meks shell")


def _kept(directory: Path) -> dict[str, Any]:
    """Return what is kept of the newest job of the name, unless it has started after that."""
    files = {each.stat().st_mtime: each for each in directory.glob(record_files.OBJECTS)}
    newest = max(files, default=0)
    begun = 0.0
    for start in record_files.starts(directory)[-1:] if files else ():
        for first in sorted((directory / start).glob("rank-?????.log"))[:1]:
            begun = _moment(_first(first)) or 0
    return {**json.loads(files[newest].read_text())} if files and newest >= begun else {}


def _chosen(
    directory: Path, wanted: int | None, kept: dict[str, Any], *, needed: bool, deep: bool
) -> dict[int, list[Path]]:
    """Return the folders of each rank: that of its newest output, and of the container before.

    With `deep` of all containers before that, as far as they are of the same job.

    The newest start may lack ranks that had failed for good. They are in the one before it, if that
    was of the same pods, or began when the job was there; else it is of an earlier job of the name.
    """
    names = record_files.starts(directory) if directory.is_dir() else []
    job = kept.get("job") or {}
    born = job.get("metadata", {}).get("creationTimestamp", "9999-12-31T00:00:00Z")
    since = datetime.fromisoformat(born).timestamp()
    folders = [directory / each for each in reversed(names) if _ranks(directory / each)]

    def chain(folder: Path, rank: int) -> list[Path]:
        linked = [folder]
        while (before := _before(linked[-1], rank, since)) and (deep or len(linked) == 1):
            linked += before
        return linked

    found: dict[int, list[Path]] = {}
    for newest in folders[:1]:
        found = {rank: chain(newest, rank) for rank in _ranks(newest)}
    linked = {folder for each in found.values() for folder in each[1:]}
    for folder in sorted(linked, reverse=True):
        for rank in _ranks(folder):
            found.setdefault(rank, chain(folder, rank))
    chosen = {rank: found[rank] for rank in sorted(found) if wanted in (None, rank)}
    if needed and not chosen:
        there = f"no rank {wanted}, ranks are 0 to {max(found)}" if found else "no record of a job"
        remedy = "see that name and rank are right, and that the job started within its keep_days"
        raise StopError(program.EXIT_NOT_FOUND, directory, there, remedy)
    return chosen


def _ranks(folder: Path) -> list[int]:
    return [int(match[1]) for each in folder.iterdir() if (match := _NAME.fullmatch(each.name))]


def _before(folder: Path, rank: int, since: float) -> list[Path]:
    """Return the folder of the container before, of which the first line tells.

    Where each start has new pods nobody tells them: it is the last one that began since a time.
    """
    name = f"rank-{rank:05}.log"
    if after := _AFTER.match(_first(folder / name)):
        before = folder.with_name(after[1].decode())
        return [before] if (before / name).exists() else []
    earlier = (each for each in folder.parent.glob(f"*/{name}") if each.parent.name < folder.name)
    last = max(earlier, default=None)
    return [last.parent] if last and (_moment(_first(last)) or 0) >= since else []


def _first(file: Path) -> bytes:
    with file.open("rb") as lines:
        return lines.readline()


def _lines(parts: Sequence[Path], since: float | None) -> Iterator[bytes]:
    """Yield the lines of files; with `since` from the first later time on, if they have times."""
    lines = _whole(parts)
    if since is not None and any(_moment(line) is not None for line in _whole(parts)):
        lines = dropwhile(lambda line: (_moment(line) or 0) < since, lines)
    for line in lines:
        yield line.rstrip(b"\r\n")[:_LONGEST_BYTES]


def _whole(parts: Sequence[Path]) -> Iterator[bytes]:
    """Yield the lines of files, and how much is no longer between them."""
    end = 0
    for part in parts:
        begin = record_files.place(part)
        if begin > end:
            yield f"record: {begin - end} bytes are left out here".encode()
        with part.open("rb") as file:
            yield from file
            end = begin + file.tell()


def _moment(line: bytes) -> float | None:
    with suppress(ValueError):
        if found := _TIME.search(line[:_HEAD_BYTES]):
            # Containers have UTC.
            moment = datetime.fromisoformat(f"{found[1].decode()}T{found[2].decode()}Z")
            return moment.timestamp()
    return None


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


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


if __name__ == "__main__":
    sys.exit(program.run("job_logs", main, sys.argv[1:]))
