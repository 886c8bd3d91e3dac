"""Processes of this machine."""

import contextlib
from collections.abc import Iterable
from pathlib import Path


def alive(pids: Iterable[int]) -> list[int]:
    """Return which processes still run; one that only waits to be reaped does not."""
    found = []
    for pid in pids:
        status = Path(f"/proc/{pid}/status")
        if status.exists() and "State:\tZ" not in status.read_text():
            found.append(pid)
    return found


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    found = []
    # By thread, because a kubelet starts each pod's from a thread of its own.
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in file.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found
