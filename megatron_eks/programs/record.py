"""Runs a container's program and keeps a copy of what it prints on the shared file system.

record DIR KEEP_DAYS COMMAND [ARGUMENT...]

Every job's container starts with it, so that the record holds all from the first line on: what the
launcher and the interpreter say too, and how the program ended. The container's log gets every byte
at once; files get them from a thread of its own, so a full or hanging file system costs lines of
the copy and nothing else. Signals go on to the program, whose exit code is this one's.

DIR/START/rank-00000.log is a rank's output, a rank being a pod. START counts up from 0001: ranks
that start together meet in one folder. Of long output the beginning and the newest lines stay, in
files named by the place of their first byte. A start that nobody writes to for KEEP_DAYS is removed
by the next start of any job.
"""

import os
import queue
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_CHUNK_BYTES = 65536
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

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_NO_PROGRAM = 127
_BY_SIGNAL = 128

_LAST_LINES = 500
_LINE_BYTES = 1000
_TELL_BYTES = 2000
# What the pod's status says of its end (Kubernetes, "Determine the Reason for Pod Failure").
_TERMINATION_LOG = Path("/dev/termination-log")
OBJECTS = "objects-*.json"
"""What job_objects keeps beside the starts of a job."""
# On the pod's own volume, which outlives its containers.
_STATE = Path(os.environ.get("TMPDIR", "/tmp")) / "record-start"  # noqa: S108 -- as above
_RANK = rb"(?:\[rank\d+\]: ?)?"
_REASONS = (
    # The programs here name every error so; see findings.py. The first one stops them.
    re.compile(_RANK + rb"(error \S.*: .* - .*)"),
    # The launcher's own exception only says that a rank had one.
    re.compile(_RANK + rb"((?!torch\.distributed\.elastic)[\w.]*(?:Error|Exception)\b(?::.*)?)"),
    re.compile(rb".*?([A-Za-z].*)"),
)


class Record(threading.Thread):
    """Appends chunks to a rank's files; drops them when it cannot keep up, or they take none."""

    def __init__(self, directory: Path, rank: int, keep_days: int) -> None:
        super().__init__(daemon=True)
        self._directory, self._rank, self._keep_days = directory, rank, keep_days
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_QUEUE_CHUNKS)
        self._dropped = 0
        self._written = 0
        self._said = ""
        self._start: Path | None = None
        self._head = b""

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
            while (left := again - time.monotonic()) > 0:
                try:
                    chunk = self._chunks.get(timeout=left)
                except queue.Empty:
                    break
                if chunk is None:
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
        if self._start is None:
            self._start = self._join()
        more = True
        while more:
            place = f".{self._written:012}" if self._written else ""
            path = self._start / f"rank-{self._rank:05}{place}.log"
            with open(path, "ab", buffering=0, opener=_private) as file:
                more = self._fill(path, file.fileno())
            for old in parts(self._start, self._rank)[1:-_NEWEST_PARTS]:
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
        newest = max(map(int, starts(self._directory)), default=0)
        age = time.time() - _newest(self._directory / f"{newest:04}") if newest else 0
        number = max(1, newest + (age > _TOGETHER_SECONDS), int(before or 0) + 1)
        while True:
            start = self._directory / f"{number:04}"
            start.mkdir(0o700, exist_ok=True)
            with suppress(FileExistsError):
                open(start / f"rank-{self._rank:05}.log", "xb", opener=_private).close()
                break
            number += 1
        after = f", after {before} in this pod" if before else ""
        self._head = f"record: start {start.name}, {_now()}{after}\n".encode()
        _STATE.write_text(start.name)
        return start

    def _say(self, found: str) -> None:
        if found != self._said:
            self._said = found
            message = f"record: {self._directory}: {found} - read the pod's log instead\n"
            with suppress(OSError):
                os.write(2, message.encode())


class Copy:
    """Takes a program's output to the container's log and to its record, and knows its end."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)
        self._at_line = True

    def run(self, sources: dict[int, int], ended: int) -> None:
        """Copy each source to its destination until all are closed, or `ended` can be read.

        What a program leaves behind holds its output open, and ends with the container.
        """
        # In the file the streams meet, so it gets whole lines.
        tails = dict.fromkeys(sources, b"")
        with selectors.DefaultSelector() as selector:
            for source in (*sources, ended):
                selector.register(source, selectors.EVENT_READ)
            is_over = False
            while len(selector.get_map()) > 1 and not is_over:
                ready = {key.fd for key, _ in selector.select()}
                # Only when it has nothing more to say.
                is_over = ready == {ended}
                for source in ready - {ended}:
                    chunk = os.read(source, _CHUNK_BYTES)
                    if not chunk:
                        selector.unregister(source)
                    _write_all(sources[source], chunk)
                    tails[source] = self._whole_lines(tails[source] + chunk)
        for tail in filter(None, tails.values()):
            self.say(tail)

    def say_own(self, text: str) -> None:
        """Put a line of this program into the record."""
        self.say((b"" if self._at_line else b"\n") + f"{text}\n".encode())

    def say(self, text: bytes) -> None:
        """Put lines into the record."""
        self._at_line = text.endswith(b"\n") if text else self._at_line
        self._last.extend(line[:_LINE_BYTES] for line in text.splitlines() if line.strip())
        self._record.put(text)

    def _whole_lines(self, text: bytes) -> bytes:
        lines, newline, tail = text.rpartition(b"\n")
        if len(tail) > _CHUNK_BYTES:
            lines, newline, tail = text, b"", b""
        self.say(lines + newline)
        return tail

    def reason(self) -> str:
        """Return the line that says best why the program ended."""
        first, *others = _REASONS
        order = [(first, self._last), *((each, reversed(self._last)) for each in others)]
        for pattern, lines in order:
            if found := next(filter(None, map(pattern.fullmatch, lines)), None):
                return found[1].decode(errors="replace")
        return ""

    def tell(self, reason: str) -> None:
        """Say in the pod's status how it ended, where the program has not done so itself."""
        text = b"\n".join(self._last)[-_TELL_BYTES:] + f"\n{reason}\n".encode()
        with suppress(OSError):
            if not _TERMINATION_LOG.read_bytes():
                _TERMINATION_LOG.write_bytes(text)


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


def prune(logs: Path) -> None:
    """Remove starts and objects that are older than their job's own days, and nothing else."""
    for days in logs.glob("*/keep-days"):
        with suppress(OSError, ValueError):
            oldest = time.time() - int(days.read_text()) * _DAY_SECONDS
            for objects in days.parent.glob(OBJECTS):
                if objects.stat().st_mtime < oldest:
                    objects.unlink()
            for start in map(days.parent.joinpath, starts(days.parent)):
                if _newest(start) < oldest:
                    for file in start.iterdir():
                        file.unlink()
                    start.rmdir()


def main(argv: Sequence[str]) -> int:
    """Run the program to its end; return the exit code."""
    directory, keep_days, *command = argv
    record = Record(Path(directory), rank_of(os.environ), int(keep_days))
    record.start()
    copy = Copy(record)
    code = _run(command, copy)
    reason = copy.reason() if code else ""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    copy.say_own(f"record: {how}, {_now()}{': ' if reason else ''}{reason}")
    if code:
        copy.tell(reason)
    record.finish()
    return _BY_SIGNAL - code if code < 0 else code


def rank_of(environment: "os._Environ[str] | dict[str, str]") -> int:
    """Return the number of this pod: the operator's, that of an Indexed Job, or its name's."""
    name = environment.get("HOSTNAME", "").rpartition("-worker-")
    for found in (environment.get("RANK"), environment.get("JOB_COMPLETION_INDEX"), name[2]):
        if found and found.isdecimal():
            return int(found)
    return 0


def _run(command: Sequence[str], copy: Copy) -> int:
    """Run a command with its output copied; a negative code is a signal's."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603 -- what the container is for
    except OSError as problem:
        message = f"error {command[0]}: {problem.strerror} - it has to be in the image\n".encode()
        _write_all(2, message)
        copy.say(message)
        return _NO_PROGRAM
    for number in _FORWARDED:
        signal.signal(number, lambda received, _: process.send_signal(received))
    assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 -- pipes
    ended, tell = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(tell)

    threading.Thread(target=wait, daemon=True).start()
    copy.run({process.stdout.fileno(): 1, process.stderr.fileno(): 2}, ended)
    return process.wait()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _newest(start: Path) -> float:
    return max(each.stat().st_mtime for each in (start, *start.iterdir()))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _write_all(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except OSError:
            # Nobody reads the container's log any more; the training must not notice.
            return


if __name__ == "__main__":
    ended_with = main(sys.argv[1:])
    sys.stdout.flush()
    # A thread that hangs in the file system must not keep this process.
    os._exit(ended_with)
