"""Copies a training process's output to a file on the shared file system, and never holds it up.

`train_megatron.py` puts it between its process and the container's log. The container's log gets
every byte at once; the file gets them from a thread of its own, so a full or hanging file system
costs lines of the copy and nothing else.
"""

import argparse
import os
import queue
import selectors
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_CHUNK_BYTES = 65536
_QUEUE_CHUNKS = 256
_FLUSH_SECONDS = 2.0
_AGAIN_SECONDS = 30.0


class FileCopy(threading.Thread):
    """Appends chunks to a file; drops them when it cannot keep up, or the file takes none."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.chunks: queue.Queue[bytes | None] = queue.Queue(_QUEUE_CHUNKS)
        self.dropped = 0
        self._said = ""

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
            while time.monotonic() < again:
                try:
                    chunk = self.chunks.get(timeout=_FLUSH_SECONDS)
                except queue.Empty:
                    continue
                if chunk is None:
                    return
                self.dropped += len(chunk)

    def _append(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:
            while (chunk := self.chunks.get()) is not None:
                if self.dropped:
                    file.write(f"\n[{self.dropped} bytes were not copied]\n".encode())
                    self.dropped = 0
                try:
                    written = file.write(chunk)
                except OSError:
                    self.dropped += len(chunk)
                    raise
                self.dropped += len(chunk) - (written or 0)

    def _say(self, found: str) -> None:
        if found != self._said:
            self._said = found
            message = f"log copy: {self.path}: {found} - read the pod's log instead\n"
            with suppress(OSError):
                os.write(2, message.encode())

    def put(self, chunk: bytes) -> None:
        """Hand over a chunk, or count it as dropped."""
        try:
            if chunk:
                self.chunks.put_nowait(chunk)
        except queue.Full:
            self.dropped += len(chunk)

    def finish(self) -> None:
        """Let the thread write what is left, for a while."""
        try:
            self.chunks.put(None, timeout=_FLUSH_SECONDS)
        except queue.Full:
            return
        self.join(_FLUSH_SECONDS)


def copy(sources: dict[int, int], file: FileCopy) -> None:
    """Copy each source descriptor to its destination, and to the file, until all have ended."""
    # In the file the streams meet, so it gets whole lines.
    tails = dict.fromkeys(sources, b"")
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    selector.unregister(key.fd)
                    file.put(tails[key.fd])
                    continue
                _write_all(sources[key.fd], chunk)
                lines, newline, tail = (tails[key.fd] + chunk).rpartition(b"\n")
                if len(tail) > _CHUNK_BYTES:
                    newline, tail = newline + tail, b""
                tails[key.fd] = tail
                file.put(lines + newline)


def main() -> None:
    """Copy until the training process and all its children have closed their output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="where the copy goes")
    parser.add_argument("--stdout", type=int, required=True, help="descriptor to read")
    parser.add_argument("--stderr", type=int, required=True, help="descriptor to read")
    options = parser.parse_args()
    file = FileCopy(options.file)
    file.start()
    copy({options.stdout: 1, options.stderr: 2}, file)
    file.finish()
    sys.stdout.flush()
    # A thread that hangs in the file system must not keep this process.
    os._exit(0)


def _write_all(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except OSError:
            # Nobody reads the container's log any more; the training must not notice.
            return


if __name__ == "__main__":
    main()
