"""The processes of this node's ranks, as Linux shows them: who they are, what they use, their end.

Fields of /proc/PID/stat and /proc/PID/status: proc(5).
"""

import contextlib
import os
import select
import signal
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM, _STARTED, _EXIT_CODE = 1, 11, 12, 19, 49
# What torch's own threads use in a process that waits is a tenth of this.
_LEAST_CPU = 0.01
_DUMP_SECONDS = 0.5


class Rank:
    """The rank that started the watcher."""

    def __init__(self, pid: int) -> None:
        """Raise ProcessLookupError if it is gone already."""
        self.pid = pid
        self.agent = _starter(pid)
        self._descriptor = os.pidfd_open(pid)

    def wait(self, seconds: float) -> bool:
        """Return whether it ended, as soon as it does."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        return bool(ready)

    def exit_code(self) -> int | None:
        """Return how it ended, as os.waitpid does; None if its parent has taken that already."""
        fields = _stat(self.pid)
        return int(fields[_EXIT_CODE]) if fields and fields[0] in "ZX" else None

    def siblings(self) -> list[int]:
        """Return all ranks of the node: what the same torchrun has started."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return [self.pid]
        every = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        mine = [each for each in every if _starter(each) == self.agent]
        return sorted(each for each in mine if _is_rank(each) and not _is_nsys(each))


class Progress:
    """Whether a process computes: the CPU time that it used within a window."""

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._marks: dict[int, tuple[float, float]] = {}

    def is_blocked(self, rank: int, used: float, now: float) -> bool:
        """Take a rank's CPU time and the time, both in seconds."""
        since, had = self._marks.setdefault(rank, (now, used))
        if used - had >= _LEAST_CPU * self._window:
            self._marks[rank] = (now, used)
            return False
        return now - since >= self._window


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for yet does not."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def cpu_seconds(pid: int) -> float | None:
    """Return what a process and all its threads have computed so far; None if it is gone."""
    fields = _stat(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS if fields else None


def started(pid: int) -> float | None:
    """Return when a process started, in seconds of the system's clock; None if it is gone."""
    fields = _stat(pid)
    if not fields:
        return None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_STARTED]) / _TICKS
    return time.time() - age


def end(pids: list[int]) -> None:
    """Kill ranks, after the stacks of those that can show them.

    Not by a signal that a rank may answer with a checkpoint and exit code 0: the job would count as
    done.
    """
    shown = [pid for pid in pids if _catches(pid, signal.SIGUSR1)]
    _send(shown, signal.SIGUSR1)
    time.sleep(_DUMP_SECONDS if shown else 0)
    _send(pids, signal.SIGKILL)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _catches(pid: int, number: signal.Signals) -> bool:
    caught = _read(pid, "status").partition(b"SigCgt:")[2].split()[:1]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in caught)


def _stat(pid: int) -> list[str]:
    """Return the fields from the third, the state, on; the second may hold spaces."""
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[_PARENT]) if fields else None


def _starter(pid: int) -> int | None:
    """Return what has started a process: torchrun, also where nsys stands between the two."""
    parent = _parent(pid)
    while parent and _is_nsys(parent):
        parent = _parent(parent)
    return parent


def _is_nsys(pid: int) -> bool:
    return _read(pid, "comm").startswith(b"nsys")


def _is_rank(pid: int) -> bool:
    return any(each.startswith(b"LOCAL_RANK=") for each in _read(pid, "environ").split(b"\0"))
