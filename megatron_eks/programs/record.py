"""Runs a container's program and keeps a copy of what it prints on the shared file system.

record DIR KEEP_DAYS COMMAND [ARGUMENT...]

Every job's container starts with it, so that the record holds all from the first line on: what the
launcher and the interpreter say too, and how the program ended. The container's log gets every byte
at once; files get them from a thread of its own, so a full or hanging file system costs lines of
the copy and nothing else. Signals go on to the program, whose exit code is this one's.

record_files.py says what is in DIR, and what KEEP_DAYS is for.
"""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from megatron_eks.programs.exporter import run as exporter
from megatron_eks.programs.exporter.run import Exporter
from megatron_eks.programs.record_files import VARIABLE, Record, now

_CHUNK_BYTES = 65536
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_NO_PROGRAM = 127
_BY_SIGNAL = 128

_TRY_SECONDS, _MOST_SECONDS = 2.0, 600.0
_LAST_LINES = 500
_LINE_BYTES = 1000
_TELL_BYTES = 2000
# What the pod's status says of its end (Kubernetes, "Determine the Reason for Pod Failure").
_TERMINATION_LOG = Path("/dev/termination-log")
_RANK = rb"(?:\[rank\d+\]: ?)?"
_REASONS = (
    # The programs here name every error so; see program.py. The first one stops them.
    re.compile(_RANK + rb"(error \S.*: .* - .*)"),
    # The launcher's own exception only says that a rank had one.
    re.compile(_RANK + rb"((?!torch\.distributed\.elastic)[\w.]*(?:Error|Exception)\b(?::.*)?)"),
    re.compile(rb".*?([A-Za-z].*)"),
)


class Copy:
    """Takes a program's output to the container's log and to its record, and knows its end."""

    def __init__(self, record: Record, told: Exporter | None) -> None:
        self._record, self._told = record, told
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
        if self._told is not None:
            self._told.see(text)

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


def main(argv: Sequence[str]) -> int:
    """Run the program to its end; return the exit code."""
    directory, keep_days, *command = argv
    node = rank_of(os.environ)
    record = Record(Path(directory), node, int(keep_days))
    record.start()
    told = exporter.of_pod(os.environ, node, lambda: record.folder)
    copy = Copy(record, told)
    os.environ[VARIABLE] = directory
    if node and (place := meeting_place(command, os.environ)):
        wait_for_host(place)
    code = _run(command, copy)
    reason = copy.reason() if code else ""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    copy.say_own(f"record: {how}, {now()}{': ' if reason else ''}{reason}")
    if code:
        copy.tell(reason)
    if told is not None:
        told.finish(well=not code)
    record.finish()
    return exit_code(code)


def forward_signals(process: "subprocess.Popen[bytes]") -> None:
    """Send on what asks this process to end."""
    for number in _FORWARDED:
        signal.signal(number, lambda received, _: process.send_signal(received))


def exit_code(code: int) -> int:
    """Return the exit code of a program as a shell has it: above 128 it is a signal's."""
    return _BY_SIGNAL - code if code < 0 else code


def meeting_place(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, int] | None:
    """Return where ranks meet: by torchrun's options, or the operator's variables for them."""
    options = dict(word.partition("=")[::2] for word in command if word.startswith("--master-"))
    address = options.get("--master-addr", environment.get("PET_MASTER_ADDR"))
    port = options.get("--master-port", environment.get("PET_MASTER_PORT", ""))
    return (address, int(port)) if address and port.isdecimal() else None


def wait_for_host(place: tuple[str, int], seconds: float = _TRY_SECONDS) -> None:
    """Return when a host answers there, if only that nobody listens yet; or after ten minutes.

    Ranks that have lost node 0 start again at once, while its name still leads to a host that
    answers nothing. torch asks for the address once and tries that one for as long as the kernel
    does, 127 s (net.ipv4.tcp_syn_retries is 6), though the name leads to another pod by then.
    """
    # The first process of a container ignores what it does not handle.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    deadline = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(place, seconds).close()
        except TimeoutError:
            sys.stderr.write(f"{place[0]}: no answer yet\n")
            continue
        except OSError:
            pass
        return


def rank_of(environment: Mapping[str, str]) -> int:
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
    forward_signals(process)
    assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 -- pipes
    ended, tell = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(tell)

    threading.Thread(target=wait, daemon=True).start()
    copy.run({process.stdout.fileno(): 1, process.stderr.fileno(): 2}, ended)
    return process.wait()


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
