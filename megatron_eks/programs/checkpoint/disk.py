"""What keeps a program from writing to a file system, and what an earlier start left there."""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from megatron_eks.programs.checkpoint import checkpoints

MAKE_ROOM = "remove what is not needed (`meks ckpt prune`)"
_AWAY = (
    "see that FSx is AVAILABLE, and the node's dmesg for its client; start again on another node"
)
_REFUSALS = {
    errno.EROFS: (
        "mounted read-only",
        "see the node's dmesg for errors, mount it for writing, or choose another directory",
    ),
    errno.ESTALE: (
        "replaced or mounted anew while it was open",
        "start the pod again, so that it opens the file system anew",
    ),
    errno.EFBIG: ("a file may not become so large", "raise the limit: ulimit -f"),
    **dict.fromkeys(
        (errno.EIO, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT, errno.ENODEV),
        ("the file system fails", _AWAY),
    ),
}
# What a save and its removal leave, whoever was killed in the middle; nobody ever reads it.
_UNFINISHED = (".saving-*", ".deleting-*", f".{checkpoints.TRACKER}-*")
_PROBE = ".write-check-"
# Another node's probe lives for less than a second.
_OLD_SECONDS = 600.0
_SHARE_THAT_COUNTS = 0.02


def probe(directory: Path) -> OSError | None:
    """Create a directory and write a file in it; return what the system says against it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, prefix=_PROBE) as file:
            # A block: an empty file takes no space on most file systems.
            os.write(file.fileno(), b"x" * 4096)
            os.fsync(file.fileno())
    except OSError as problem:
        return problem
    return None


def system_error(problem: BaseException | None) -> OSError | None:
    """Return the system's own error behind an exception, of whatever rank it is."""
    seen: list[BaseException] = []
    waiting = [problem]
    while waiting:
        each = waiting.pop(0)
        if each is None or each in seen:
            continue
        if isinstance(each, OSError) and each.errno:
            return each
        seen.append(each)
        # torch.distributed.checkpoint.api.CheckpointException: exception and stack by rank.
        failures = getattr(each, "failures", {})
        waiting += [failure[0] for failure in failures.values()]
        waiting += [each.__cause__, each.__context__]
    return None


def explain(directory: Path, problem: OSError, needed: int = 0) -> tuple[str, str]:
    """Return what is wrong and what to do; `needed` are the bytes of the next checkpoint."""
    said = problem.strerror or str(problem)
    takes = f", and the next checkpoint takes about {gigabytes(needed)}" if needed else ""
    if problem.errno == errno.ENOSPC:
        found, remedy = _full(directory, said, needed)
        return found + takes, remedy
    if problem.errno == errno.EDQUOT:
        remedy = f"{MAKE_ROOM}, or raise the quota: lfs quota -u {os.getuid()} {directory}"
        return f"quota used up ({said}){takes}", remedy
    if problem.errno in _REFUSALS:
        found, remedy = _REFUSALS[problem.errno]
        return f"{found} ({said})", remedy
    return said, f"give user {os.getuid()} the right to write, or choose another directory"


def free_leftovers(root: Path) -> Iterator[Path]:
    """Remove what unfinished work of earlier starts left in a run's own directory.

    What has the name of a checkpoint stays: Megatron writes over a save that did not end.
    """
    # What cannot be read is told by the probe that comes next.
    with suppress(OSError):
        for pattern in _UNFINISHED:
            yield from _removed(root.glob(pattern))
        old = time.time() - _OLD_SECONDS
        probes = root.glob(f"{_PROBE}*")
        yield from _removed(path for path in probes if path.stat().st_mtime < old)


def gigabytes(size: int) -> str:
    """Write a size in bytes for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"  # noqa: PLR2004 -- 0.1 GB


def _full(directory: Path, said: str, needed: int) -> tuple[str, str]:
    there = next(path for path in (directory, *directory.parents) if path.exists())
    state = os.statvfs(there)
    free, total = state.f_bavail * state.f_frsize, state.f_blocks * state.f_frsize
    remedy = f"{MAKE_ROOM}, or enlarge the file system"
    if state.f_files and not state.f_favail:
        return f"file system full ({said}): it can hold no more files", remedy
    found = f"file system full ({said}): {gigabytes(free)} free of {gigabytes(total)}"
    if free > max(needed, _SHARE_THAT_COUNTS * total):
        # Lustre fills a file's own storage target, and df shows the sum of all.
        remedy += "; lfs df -h shows whether one storage target alone is full"
    return found, remedy


def _removed(paths: Iterator[Path]) -> Iterator[Path]:
    for path in [*paths]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
        if not path.exists():
            yield path
