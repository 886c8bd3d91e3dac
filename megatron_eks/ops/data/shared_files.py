"""Files of the shared file system to this machine, through a pod that stays while they come.

Cut off, the same command goes on with the byte where it was; files here are never replaced.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.config.codes import Code
from megatron_eks.kubernetes import execution
from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.kubernetes.execution import Channel, Execution
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import CHECK_FAILED, FAILED, Failure
from megatron_eks.ops.programs import Place
from megatron_eks.programs.fetch.files import RemoteFile, check_names
from megatron_eks.programs.program import StopError
from megatron_eks.programs.progress import Progress

_PROGRAM = "send"
# What is here already of a large file is read there first.
_SILENCE_SECONDS = 300
_READ_BYTES = 2**20
_AGAIN = "what was fetched stays, and the same command goes on"


@dataclass
class Pull:
    """One file, or all below a folder, on its way to a folder here."""

    place: SharedPod
    source: str
    target: Path
    whole: int = 0
    """Files that are here, compared with their checksums."""
    present: int = 0
    """Those that were here before."""
    size: int = 0
    """Bytes of all."""
    left_out: Sequence[Mapping[str, str]] = ()

    def fetch(self, pod: Object) -> None:
        """Take all files from a pod that stays while they come."""
        metadata, (container,) = pod["metadata"], pod["spec"]["containers"]
        place = metadata["namespace"], metadata["name"], container["name"]
        words = ("python3", "-m", f"{PACKAGE}.{_PROGRAM}", self.source)
        begun = execution.start(self.place.access.client, *place, words, stdin=True)
        with contextlib.closing(begun):
            stream = _Stream(begun)
            head = stream.head()
            sizes: dict[str, int] = dict(head["files"])
            self._check(sizes)
            self.left_out, self.size = head["left_out"], sum(sizes.values())
            wanted = {}
            for name in sorted(sizes):
                path = self.target / name
                there = (each.stat().st_size for each in (path, _part(path)) if each.is_file())
                wanted[name] = next((each for each in there if each <= sizes[name]), 0)
            missing = sum(sizes[name] - have for name, have in wanted.items())
            folders = (self.target, *self.target.absolute().parents)
            free = shutil.disk_usage(next(each for each in folders if each.is_dir())).free
            if missing > free:
                self._not_written(f"{free / 1e9:,.1f} GB free, {missing / 1e9:,.1f} GB needed")
            begun.give(json.dumps(wanted).encode() + b"\n")
            progress = Progress(self.size, self.size - missing)
            for name, have in wanted.items():
                self._take(name, have, sizes[name], stream, progress)
            progress.close()

    def _check(self, sizes: Mapping[str, int]) -> None:
        """Refuse, before anything comes, what would be elsewhere or in the place of another."""
        try:
            check_names([RemoteFile(name, size) for name, size in sizes.items()])
        except StopError as error:
            raise Failure(Code.PROGRAM_FAILED, str(error), "rename it at the source") from error
        for name, size in sizes.items():
            path = self.target / name
            if path.is_symlink() or (path.exists() and not path.is_file()):
                self._in_the_way(path, "not a regular file")
            elif path.exists() and path.stat().st_size != size:
                self._in_the_way(path, f"{path.stat().st_size:,} bytes, the source has {size:,}")

    def _take(self, name: str, have: int, size: int, stream: "_Stream", progress: Progress) -> None:
        path, digest = self.target / name, hashlib.sha256()
        was_here = path.exists()
        part = path if was_here else _part(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDONLY if was_here else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            with os.fdopen(os.open(part, flags, 0o644), "rb" if was_here else "r+b") as file:
                if not was_here:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    file.truncate(have)
                while chunk := file.read(_READ_BYTES):
                    digest.update(chunk)
                for chunk in stream.take(size - have):
                    file.write(chunk)
                    digest.update(chunk)
                    progress.add(progress.done + len(chunk))
            if stream.line() == digest.hexdigest():
                part.rename(path)
                self.present += was_here
                self.whole += 1
                return
        except BlockingIOError:
            self._in_the_way(path, "another command is fetching it")
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            self._not_written(f"{error.filename or path}: {error.strerror}", error)
        if was_here:
            self._in_the_way(path, "it has another checksum")
        part.unlink()
        found = f"{path}: its checksum differs from the source"
        raise Failure(Code.PROGRAM_FAILED, found, _AGAIN, exit_code=CHECK_FAILED)

    def _in_the_way(self, path: Path, why: str) -> NoReturn:
        found, remedy = f"{path} already exists: {why}", "move it away, or name another DIR"
        raise Failure(Code.LOCAL_FILE, found, remedy, exit_code=CHECK_FAILED)

    def _not_written(self, why: str, cause: OSError | None = None) -> NoReturn:
        full = cause is None or cause.errno in {errno.ENOSPC, errno.EDQUOT}
        found = f"this machine's disk is full: {why}" if full else why
        remedy = f"free space, or name another DIR; {_AGAIN}"
        raise Failure(Code.LOCAL_DISK, found, remedy) from cause


class _Stream:
    """What the sending program writes: lines and bytes, of which few are here at a time."""

    def __init__(self, begun: Execution) -> None:
        self._begun, self._said, self._buffer = begun, b"", b""

    def _more(self) -> bytes:
        ends = time.monotonic() + _SILENCE_SECONDS
        for channel, data in self._begun.output(ends):
            if channel is Channel.STDOUT:
                return data
            self._said = (self._said + data)[-_READ_BYTES:]
        lines = self._said.decode(errors="replace").split("\n")
        code = self._begun.exit_code or FAILED
        found = next(filter(str.strip, reversed(lines)), f"{_PROGRAM} ended with {code}")
        remedy = f"{_AGAIN}; an image of another version may lack the program: meks build"
        raise Failure(Code.PROGRAM_FAILED, found, remedy, exit_code=code)

    def line(self) -> str:
        """Return the next line."""
        while b"\n" not in self._buffer:
            self._buffer += self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def head(self) -> Object:
        """Return the list of files. Raises Failure where the program has ended instead."""
        found: Object = json.loads(self.line())
        while "files" not in found:
            self._more()
        return found

    def take(self, count: int) -> Iterator[bytes]:
        """Yield so many bytes."""
        while count:
            data = self._buffer or self._more()
            data, self._buffer = data[:count], data[count:]
            count -= len(data)
            yield data


def pull(place: Place, source: str, target: Path) -> Pull:
    """Fetch a file or folder; return what came of it.

    Raises Failure, and UnreachableError where the server is lost.
    """
    assert isinstance(place, SharedPod)  # noqa: S101 -- only where a claim is named
    found = Pull(place, source, target)
    with place.started(_PROGRAM, ["--hold"]) as pod:
        try:
            found.fetch(pod)
        except (UnreachableError, TimeoutError) as error:
            why = str(error) or "no data came for minutes"
            raise UnreachableError(f"{why}; {_AGAIN}") from error
    return found


def _part(path: Path) -> Path:
    """Return where a file is until it is whole."""
    return path.with_name(f".{path.name}.part")
