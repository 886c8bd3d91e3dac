"""The files of a job's record: DIR/START/rank-00000.log, and when they go.

A rank is a pod. START counts up from 0001: ranks that start together meet in one folder. Of long
output the beginning and the newest lines stay, in files named by the place of their first byte. A
start that nobody writes to for KEEP_DAYS is removed by the next start of any job.
"""

import os
import queue
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_QUEUE_CHUNKS = 256
_AGAIN_SECONDS = 30.0
_FINISH_SECONDS = 5.0
# A file's time is that of its rank's last sign of life.
_ALIVE_SECONDS = 60.0
# Ranks of one start come within this, or wait for each other and show that they live.
_TOGETHER_SECONDS = 600.0
# A rank keeps its first part and so many of the newest.
_PART_BYTES = 8 * 2**20
_NEWEST_PARTS = 3
_DAY_SECONDS = 24 * 3600

OBJECTS = "objects-*.json"
"""What job_objects keeps beside the starts of a job."""
VARIABLE = "MEGATRON_EKS_RECORD"
"""Tells a program in which DIR its record is."""
# On the pod's own volume, which outlives its containers.
_STATE = Path(os.environ.get("TMPDIR", "/tmp")) / "record-start"  # noqa: S108 -- as above


class Record(threading.Thread):
    """Appends chunks to a rank's files; drops them when it cannot keep up, or they take none."""

    def __init__(self, directory: Path, rank: int, keep_days: int) -> None:
        super().__init__(daemon=True)
        self._directory, self._rank, self._keep_days = directory, rank, keep_days
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_QUEUE_CHUNKS)
        self._dropped = self._written = 0
        self._said, self._head = "", b""
        self.folder: Path | None = None
        """Of this start, once it is known."""

    def run(self) -> None:
        """Write until told to stop; after an error, drop what comes for a while and try again."""
        while True:
            try:
                self._append()
            except OSError as problem:
                self._say(str(problem.strerror))
            else:
                return
            again = time.monotonic() + _AGAIN_SECONDS
            with suppress(queue.Empty):
                while (left := again - time.monotonic()) > 0:
                    if (chunk := self._chunks.get(timeout=left)) is None:
                        return
                    self._dropped += len(chunk)

    def put(self, chunk: bytes) -> None:
        """Hand over a chunk, or count it as dropped."""
        try:
            if chunk:
                self._chunks.put_nowait(chunk)
        except queue.Full:
            self._dropped += len(chunk)

    def finish(self) -> None:
        """Let the thread write what is left, for a while."""
        with suppress(queue.Full):
            self._chunks.put(None, timeout=_FINISH_SECONDS)
            self.join(_FINISH_SECONDS)

    def _append(self) -> None:
        if self.folder is None:
            self.folder = self._join()
        more = True
        while more:
            place = f".{self._written:012}" if self._written else ""
            path = self.folder / f"rank-{self._rank:05}{place}.log"
            with open(path, "ab", buffering=0, opener=_private) as file:
                more = self._fill(path, file.fileno())
            for old in parts(self.folder, self._rank)[1:-_NEWEST_PARTS]:
                old.unlink(missing_ok=True)

    def _fill(self, path: Path, file: int) -> bool:
        """Write a part until it is full; say whether another is to come."""
        room = _PART_BYTES
        while room > 0:
            try:
                chunk = self._chunks.get(timeout=_ALIVE_SECONDS) if not self._head else b""
            except queue.Empty:
                os.utime(path)
                continue
            if chunk is None:
                return False
            note = f"\n[{self._dropped} bytes were not copied]\n" if self._dropped else ""
            text = self._head + note.encode() + chunk
            self._dropped += len(chunk)
            written = os.write(file, text)
            self._head, self._dropped = b"", len(text) - written
            self._written += written
            room -= written
        return True

    def _join(self) -> Path:
        """Return the folder of this start, with a file of this rank that has its first line."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "keep-days").write_text(f"{self._keep_days}\n")
        if self._rank == 0:
            prune(self._directory.parent)
        before = _STATE.read_text() if _STATE.exists() else ""
        last = max(map(int, starts(self._directory)), default=0)
        age = time.time() - newest(self._directory / f"{last:04}") if last else 0
        number = max(1, last + (age > _TOGETHER_SECONDS), int(before or 0) + 1)
        while True:
            start = self._directory / f"{number:04}"
            start.mkdir(0o700, exist_ok=True)
            with suppress(FileExistsError):
                open(start / f"rank-{self._rank:05}.log", "xb", opener=_private).close()
                break
            number += 1
        after = f", after {before} in this pod" if before else ""
        self._head = f"record: start {start.name}, {now()}{after}\n".encode()
        _STATE.write_text(start.name)
        return start

    def _say(self, found: str) -> None:
        message = f"record: {self._directory}: {found} - read the pod's log instead\n"
        if message != self._said:
            self._said = message
            with suppress(OSError):
                os.write(2, message.encode())


def start_of_pod() -> str:
    """Return the name of the newest start of this pod; empty if it has none."""
    with suppress(OSError):
        return _STATE.read_text()
    return ""


def starts(directory: Path) -> list[str]:
    """Return the names of a job's starts, the oldest first."""
    found = [each.name for each in directory.iterdir() if re.fullmatch(r"\d{4,}", each.name)]
    return sorted(found, key=int)


def parts(start: Path, rank: int) -> list[Path]:
    """Return the files of a rank in the order of their lines."""
    return sorted(start.glob(f"rank-{rank:05}.*"), key=place)


def place(part: Path) -> int:
    """Return the place of a file's first byte in all that its rank has written."""
    number = part.name.split(".")[1]
    return int(number) if number.isdecimal() else 0


def telling(lines: Iterable[bytes], pattern: re.Pattern[bytes], last: int) -> Iterator[bytes]:
    """Yield the lines that match, and so many last ones."""
    end: deque[bytes] = deque()
    for line in lines:
        end.append(line)
        if len(end) > last and pattern.search(early := end.popleft()):
            yield early
    yield from end


def prune(logs: Path) -> None:
    """Remove starts and objects that are older than their job's own days, and nothing else.

    Of a start a few lines stay for two months, by which `meks report` tells of a month.
    """
    from megatron_eks.programs import job_starts  # noqa: PLC0415 -- it needs what is here

    for days in logs.glob("*/keep-days"):
        with suppress(OSError, ValueError):
            oldest = time.time() - int(days.read_text()) * _DAY_SECONDS
            for objects in days.parent.glob(OBJECTS):
                if objects.stat().st_mtime < oldest:
                    objects.unlink()
            for start in map(days.parent.joinpath, starts(days.parent)):
                if newest(start) < oldest:
                    with suppress(OSError):
                        job_starts.keep(start)
                    shutil.rmtree(start)
            for told in days.parent.glob("*.told"):
                if told.stat().st_mtime < time.time() - job_starts.KEPT_DAYS * _DAY_SECONDS:
                    told.unlink()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def newest(start: Path) -> float:
    """Return when a rank of a start last gave a sign of life."""
    return max(each.stat().st_mtime for each in (start, *start.iterdir()))


def now() -> str:
    """Return the time as the record has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
