"""Measures a shared file system as checkpoints and data loading use it, and checks the content.

storage_bench --directory DIR [--size-gib G] [--processes N] [--pass-mb-s X]

Several processes write a file each with O_DIRECT where the file system has it (else through the
page cache), sync it, read it back past the cache and compare it. Throughput is the sum over the
processes, in MB/s of 10^6 bytes. What was written is removed, whatever ends the program.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 no such directory, 4 below the mark,
content that is not what was written, or too little space.
"""

import argparse
import mmap
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.program import Report

_PREFIX = ".storage-bench-"
_SHARED = ("lustre", "nfs", "fuse")
# No run takes that long, so what is older was left by one that was killed.
_LEFTOVER_SECONDS = 24 * 3600.0
# O_DIRECT wants lengths and memory on block boundaries; mmap gives whole pages. Lustre's own
# stripes are 1 MiB and more.
_BLOCK = 8 * 2**20
# Every block starts with its number, so that a block in the wrong place is found.
_MARK_BYTES = 8


@dataclass(frozen=True)
class FileResult:
    """One large file."""

    number: int
    bytes: int
    write: tuple[float, float]
    read: tuple[float, float]
    """When it began and ended, by the clock that all processes share."""
    same: bool
    """Every byte that was read is the one that was written."""
    direct: bool


def transfer(directory: Path, number: int, size: int) -> FileResult:
    """Write a file of whole blocks, sync it, read it back and compare."""
    # Nobody else removes its files.
    program.end_with_parent()
    blocks = max(1, size // _BLOCK)
    path = directory / f"file-{number}"
    # Random, because file systems compress, and different in every file.
    content = random.Random(number).randbytes(_BLOCK - _MARK_BYTES)  # noqa: S311 -- no secret
    with mmap.mmap(-1, _BLOCK) as buffer:
        direct = _has_direct(path)
        buffer[_MARK_BYTES:] = content
        write = _write(path, buffer, blocks, direct=direct)
        buffer[:] = bytes(_BLOCK)
        start = time.monotonic()
        same = _read(path, buffer, content, blocks, direct=direct)
        read = start, time.monotonic()
    path.unlink()
    return FileResult(number, blocks * _BLOCK, write, read, same, direct)


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
    size = sum(result.bytes for result in results)
    spans = ([result.write for result in results], [result.read for result in results])
    write, read = (max(end for _, end in each) - min(begin for begin, _ in each) for each in spans)
    return size / write / 1e6, size / read / 1e6


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
    """Hold the throughput against the mark, and the content against what was written."""
    write, read = throughput(results)
    program.say(f"write {write:,.0f} MB/s, read {read:,.0f} MB/s, {len(results)} processes")
    report.facts.update(
        write_mb_s=round(write, 1), read_mb_s=round(read, 1), direct=results[0].direct
    )
    for result in results:
        if not result.same:
            report.error(
                f"file {result.number}",
                "what was read is not what was written",
                "do not train on this file system; run it again, then ask AWS support",
            )
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
        raise program.StopError(
            program.EXIT_NOT_FOUND, directory, "no such directory", "mount the file system there"
        )
    point, kind = mount_of(directory)
    free = shutil.disk_usage(directory).free
    report.facts.update(mount_point=point, mount_type=kind, free_gib=round(free / 2**30, 1))
    program.say(f"{directory}: {kind} mounted at {point}, {free / 2**30:,.1f} GiB free")
    if not kind.startswith(_SHARED):
        report.warning(
            directory, f"{kind} is no shared file system", "check the volume's mount path"
        )
    if free < 1.05 * size_gib * 2**30:
        report.error(directory, f"{free / 2**30:.1f} GiB free", "use a smaller --size-gib")


def main(argv: Sequence[str], report: Report) -> None:
    """Measure in a directory that is gone afterwards."""
    parser = program.parser(__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="on the file system")
    parser.add_argument("--size-gib", type=_positive, default=8.0, help="in all (default 8)")
    parser.add_argument("--processes", type=_processes, default=8, help="at once (default 8)")
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


def _write(path: Path, buffer: mmap.mmap, blocks: int, *, direct: bool) -> tuple[float, float]:
    start = time.monotonic()
    descriptor = _open(path, os.O_WRONLY | os.O_CREAT, direct=direct)
    try:
        for block in range(blocks):
            buffer[:_MARK_BYTES] = block.to_bytes(_MARK_BYTES, "little")
            if os.write(descriptor, buffer) != _BLOCK:
                raise OSError(None, "only a part of a block was written", str(path))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return start, time.monotonic()


def _read(path: Path, buffer: mmap.mmap, content: bytes, blocks: int, *, direct: bool) -> bool:
    """Read a file and compare: a checksum would be slower than a fast file system."""
    same = True
    descriptor = _open(path, os.O_RDONLY, direct=direct)
    try:
        # Without O_DIRECT: at least ask for the cache to be dropped.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        for block in range(blocks):
            mark = block.to_bytes(_MARK_BYTES, "little")
            same &= os.readv(descriptor, [buffer]) == _BLOCK
            same &= buffer[:_MARK_BYTES] == mark and buffer[_MARK_BYTES:] == content
    finally:
        os.close(descriptor)
    return same


def _has_direct(path: Path) -> bool:
    """Tell whether the file system takes O_DIRECT; tmpfs and some FUSE file systems refuse it."""
    try:
        os.close(_open(path, os.O_WRONLY | os.O_CREAT, direct=True))
    except OSError:
        return False
    return True


def _open(path: Path, flags: int, *, direct: bool) -> int:
    return os.open(path, flags | (os.O_DIRECT if direct else 0), 0o644)


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _processes(text: str) -> int:
    return int(_positive(text))


if __name__ == "__main__":
    sys.exit(program.run("storage_bench", main, sys.argv[1:]))
