"""Measures a shared file system as checkpoints and data loading use it.

storage_bench --directory DIR [--size-gib G] [--processes N] [--pass-mb-s X]

Several processes write a file each with O_DIRECT where the file system has it (else through the
page cache), sync it, and read it back past the cache. Throughput is the sum over the processes, in
MB/s of 10^6 bytes. What was written is removed, whatever ends the program.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 no such directory, 4 below the mark,
or too little space.
"""

import argparse
import mmap
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.program import Report, StopError

_PREFIX = ".storage-bench-"
_SHARED = ("lustre", "nfs", "fuse")
# No run takes that long, so what is older was left by one that was killed.
_LEFTOVER_SECONDS = 24 * 3600.0
# O_DIRECT wants lengths and memory on block boundaries; mmap gives whole pages. Lustre's own
# stripes are 1 MiB and more.
_BLOCK = 8 * 2**20


@dataclass(frozen=True)
class FileResult:
    """One large file."""

    bytes: int
    write: tuple[float, float]
    read: tuple[float, float]
    """When it began and ended, by the clock that all processes share."""
    direct: bool
    """Past the page cache."""


def transfer(directory: Path, number: int, size: int) -> FileResult:
    """Write a file of whole blocks, sync it and read it back."""
    # Nobody else removes its files.
    program.end_with_parent()
    blocks = max(1, size // _BLOCK)
    path = directory / f"file-{number}"
    flag = _direct(path)
    with mmap.mmap(-1, _BLOCK) as buffer:
        # Random, because file systems compress, and different in every file.
        buffer[:] = random.Random(number).randbytes(_BLOCK)  # noqa: S311 -- no secret
        begin = time.monotonic()
        with _opened(path, flag | os.O_WRONLY) as descriptor:
            done = sum(os.write(descriptor, buffer) for _ in range(blocks))
            os.fsync(descriptor)
        write = begin, time.monotonic()
        begin = time.monotonic()
        with _opened(path, flag | os.O_RDONLY) as descriptor:
            # Without O_DIRECT: at least ask for the cache to be dropped.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            back = sum(os.readv(descriptor, [buffer]) for _ in range(blocks))
        read = begin, time.monotonic()
    if {done, back} != {blocks * _BLOCK}:
        raise OSError(None, "only a part was written or read", str(path))
    path.unlink()
    return FileResult(done, write, read, bool(flag))


def mount_of(directory: Path) -> tuple[str, str]:
    """Return mount point and type of the file system that holds a directory."""
    target = directory.resolve()
    found = ("/", "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind = line.split()[:3]
        place = Path(point.replace("\\040", " "))
        # The last line wins where a mount hides another.
        if target.is_relative_to(place) and len(str(place)) >= len(found[0]):
            found = (str(place), kind)
    return found


def throughput(results: Sequence[FileResult]) -> tuple[float, float]:
    """Return write and read throughput in MB/s, from the first start to the last end."""

    def rate(spans: Sequence[tuple[float, float]]) -> float:
        seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)
        return sum(result.bytes for result in results) / seconds / 1e6

    return rate([result.write for result in results]), rate([result.read for result in results])


def measure(directory: Path, options: argparse.Namespace, report: Report) -> None:
    """Measure in a directory of our own, and put the numbers into the report."""
    size = int(options.size_gib * 2**30 / options.processes)
    # A forked child would inherit the signal handlers and a half-written stdout.
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        try:
            jobs = [pool.submit(transfer, directory, n, size) for n in range(options.processes)]
            results = [job.result() for job in jobs]
        except BaseException:
            # The pool waits for its processes, and one may have gigabytes before it.
            for child in active_children():
                child.kill()
            raise
    judge(results, options.pass_mb_s, report)


def judge(results: Sequence[FileResult], mark: float | None, report: Report) -> None:
    """Hold the throughput against the mark."""
    write, read = throughput(results)
    program.say(f"write {write:,.0f} MB/s, read {read:,.0f} MB/s, {len(results)} processes")
    report.facts.update(write_mb_s=round(write, 1), read_mb_s=round(read, 1))
    report.facts.update(direct=results[0].direct)
    slowest = min(write, read)
    if mark is not None and slowest < mark:
        found = f"{slowest:.0f} MB/s, the mark is {mark:g}"
        remedy = "see that no other job uses the file system, then raise its throughput or size"
        report.error("throughput", found, remedy)
    if not results[0].direct:
        report.warning("O_DIRECT", "not supported here", "read numbers may be the page cache's")


def check_directory(directory: Path, size_gib: float, report: Report) -> None:
    """Say what file system this is, and refuse what cannot hold the files.

    Raises StopError if the directory is missing.
    """
    if not directory.is_dir():
        found, remedy = "no such directory", "mount the file system there"
        raise StopError(program.EXIT_NOT_FOUND, directory, found, remedy)
    point, kind = mount_of(directory)
    free = shutil.disk_usage(directory).free
    report.facts.update(mount_point=point, mount_type=kind, free_gib=round(free / 2**30, 1))
    program.say(f"{directory}: {kind} mounted at {point}, {free / 2**30:,.1f} GiB free")
    if not kind.startswith(_SHARED):
        found = f"{kind} is no shared file system"
        report.warning(directory, found, "check the volume's mount path")
    if free < 1.05 * size_gib * 2**30:
        report.error(directory, f"{free / 2**30:.1f} GiB free", "use a smaller --size-gib")


def main(argv: Sequence[str], report: Report) -> None:
    """Measure in a directory that is gone afterwards."""
    parser = program.parser(__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="on the file system")
    parser.add_argument("--size-gib", type=_positive, default=8.0, help="in all (default 8)")
    parser.add_argument(
        "--processes", type=program.at_least(1), default=8, help="at once (default 8)"
    )
    parser.add_argument("--pass-mb-s", type=_positive, help="least rate that passes")
    options = parser.parse_args(argv)
    directory: Path = options.directory
    report.facts.update(directory=str(directory), processes=options.processes)
    check_directory(directory, options.size_gib, report)
    if report.exit_code:
        return
    remove_leftovers(directory)
    place = Path(tempfile.mkdtemp(dir=directory, prefix=_PREFIX))
    try:
        measure(place, options, report)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def remove_leftovers(directory: Path) -> None:
    """Remove what runs left that were killed outright."""
    for path in directory.glob(f"{_PREFIX}*"):
        if time.time() - path.stat().st_mtime > _LEFTOVER_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _direct(path: Path) -> int:
    """Make a file; return O_DIRECT where it takes it: tmpfs and some FUSE file systems do not."""
    path.touch()
    with suppress(OSError), _opened(path, os.O_WRONLY | os.O_DIRECT):
        return os.O_DIRECT
    return 0


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


if __name__ == "__main__":
    sys.exit(program.run("storage_bench", main, sys.argv[1:]))
