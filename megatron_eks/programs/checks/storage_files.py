"""What one process of the storage measurement does: a large file, then many small ones."""

import mmap
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from megatron_eks.programs import program

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


def small_files(directory: Path, number: int, seconds: float) -> dict[str, float]:
    """Create, look up and remove empty files, a third of the time each; return rates a second."""
    place = directory / f"small-{number}"
    place.mkdir()
    count = 0
    start = time.monotonic()
    while time.monotonic() - start < seconds / 3:
        (place / f"{count}").touch()
        count += 1
    rates = {"create": count / (time.monotonic() - start)}
    start = time.monotonic()
    for each in range(count):
        (place / f"{each}").stat()
    rates["stat"] = count / (time.monotonic() - start)
    start = time.monotonic()
    for each in range(count):
        (place / f"{each}").unlink()
    rates["unlink"] = count / (time.monotonic() - start)
    place.rmdir()
    return rates


def _write(path: Path, buffer: mmap.mmap, blocks: int, *, direct: bool) -> tuple[float, float]:
    start = time.monotonic()
    descriptor = _open(path, os.O_WRONLY | os.O_CREAT, direct=direct)
    try:
        for block in range(blocks):
            buffer[:_MARK_BYTES] = block.to_bytes(_MARK_BYTES, "little")
            _write_all(descriptor, buffer)
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
            same &= _read_all(descriptor, buffer)
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


def _write_all(descriptor: int, buffer: mmap.mmap) -> None:
    view = memoryview(buffer)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_all(descriptor: int, buffer: mmap.mmap) -> bool:
    """Fill the buffer; False if the file ends before."""
    view = memoryview(buffer)
    while view:
        count = os.readv(descriptor, [view])
        if not count:
            return False
        view = view[count:]
    return True
