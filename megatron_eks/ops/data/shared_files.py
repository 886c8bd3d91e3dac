"""Files of the shared file system to this machine, through a pod that stays while they come.

Cut off, it goes on with the byte where it was; files here are never replaced.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from megatron_eks.catalog.program_options import PACKAGE
from megatron_eks.config.codes import Code
from megatron_eks.kubernetes import execution
from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.kubernetes.execution import Channel, Execution
from megatron_eks.ops.console import Console
from megatron_eks.ops.data.shared_pod import SharedPod, check_running
from megatron_eks.ops.failure import CHECK_FAILED, FAILED, Failure
from megatron_eks.ops.programs import Ended, Last, Place, Tell
from megatron_eks.programs.fetch.files import RemoteFile, check_names
from megatron_eks.programs.program import StopError
from megatron_eks.programs.progress import TransferProgress

_PROGRAM = "send"
_SILENCE_SECONDS = 60
_READ_BYTES = 2**20
# Cuts one after another between which nothing came.
_FRUITLESS = 5
_DAMAGED = 2
_AGAIN = "what was fetched stays, and the same command goes on"


@contextlib.contextmanager
def held(place: Place) -> Iterator["HeldPod"]:
    """Keep a pod on the file system for as long as files come from it."""
    assert isinstance(place, SharedPod)  # noqa: S101 -- only where a claim is named
    with place.started(_PROGRAM, ["--hold"]) as pod:
        yield HeldPod(place, pod)


@dataclass(frozen=True)
class HeldPod:
    """A pod on the shared file system in which one command after another runs."""

    place: SharedPod
    pod: Object

    name = SharedPod.name

    def run(self, program: str, args: Sequence[str], tell: Tell) -> Ended:
        """Run a program to its end."""
        last = Last(program, tell)
        with contextlib.closing(self.begin(program, args, stdin=False)) as begun:
            for line in b"".join(data for _, data in begun.output()).splitlines():
                last.take(line.decode(errors="replace"))
        return last.ended(begun.exit_code or 0)

    def begin(self, program: str, args: Sequence[str], *, stdin: bool = True) -> Execution:
        """Start one of our programs."""
        metadata, (container,) = self.pod["metadata"], self.pod["spec"]["containers"]
        place = metadata["namespace"], metadata["name"], container["name"]
        words = ("python3", "-m", f"{PACKAGE}.{program}", *args)
        return execution.start(self.place.access.client, *place, words, stdin=stdin)


@dataclass
class Pull:
    """One file, or all below a folder, on its way to a folder here."""

    pod: HeldPod
    source: str
    target: Path
    console: Console
    whole: set[str] = field(default_factory=set)
    """Names of files that are here, compared with their checksums."""
    present: int = 0
    """Those that were here before."""
    size: int = 0
    """Bytes of all."""
    left_out: Sequence[Mapping[str, str]] = ()
    _came: int = 0
    _damaged: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Fetch all files. Raises Failure, and UnreachableError once a lost server stays away."""
        before, fruitless = -1, 0
        while True:
            try:
                self._once()
            except (UnreachableError, TimeoutError) as error:
                fruitless = fruitless + 1 if self._came == before else 0
                before = self._came
                if fruitless == _FRUITLESS:
                    raise UnreachableError(f"{error}; {_AGAIN}") from error
                why = str(error) or "nothing came for a minute"
                self.console.say(f"{why}; it goes on where it was")
                check_running(self.pod.place.access.client, self.pod.pod, self.console)
            else:
                return

    def _once(self) -> None:
        with contextlib.closing(self.pod.begin(_PROGRAM, [self.source])) as begun:
            stream = _Stream(begun)
            head = stream.json()
            sizes: dict[str, int] = dict(head["files"])
            self._check(sizes)
            self.left_out, self.size = head["left_out"], sum(sizes.values())
            wanted = {name: self._have(name, sizes[name]) for name in sizes.keys() - self.whole}
            missing = sum(sizes[name] - have for name, have in wanted.items())
            if missing > (free := shutil.disk_usage(_nearest(self.target)).free):
                self._no_space(f"{free / 1e9:,.1f} GB free, {missing / 1e9:,.1f} GB needed")
            begun.give(json.dumps(dict(sorted(wanted.items()))).encode() + b"\n")
            progress = TransferProgress(self.size, self.size - missing)
            for name in sorted(wanted):
                self._take(name, wanted[name], stream, progress)
            progress.close()

    def _check(self, sizes: Mapping[str, int]) -> None:
        """Refuse, before anything comes, what would be elsewhere or in the place of another."""
        try:
            check_names([RemoteFile(name, size) for name, size in sizes.items()])
        except StopError as error:
            found, remedy = f"{error.finding.subject}: {error.finding.found}", "rename it there"
            raise Failure(Code.PROGRAM_FAILED, found, remedy) from error
        for name, size in sizes.items():
            path = self.target / name
            if path.is_symlink() or (path.exists() and not path.is_file()):
                self._in_the_way(path, "no plain file")
            elif path.exists() and path.stat().st_size != size:
                self._in_the_way(path, f"{path.stat().st_size:,} bytes, and {size:,} there")

    def _have(self, name: str, size: int) -> int:
        """Return how many bytes of a file are here."""
        path = self.target / name
        for each in (path, _part(path)):
            if each.is_file() and each.stat().st_size <= size:
                return each.stat().st_size
        return 0

    def _take(self, name: str, have: int, stream: "_Stream", progress: TransferProgress) -> None:
        path = self.target / name
        count, was_here = stream.json()["bytes"], path.exists()
        part = path if was_here else _part(path)
        digest = hashlib.sha256()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDONLY if was_here else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            with os.fdopen(os.open(part, flags, 0o644), "rb" if was_here else "r+b") as file:
                if not was_here:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    file.truncate(have)
                while chunk := file.read(_READ_BYTES):
                    digest.update(chunk)
                for chunk in stream.take(count):
                    file.write(chunk)
                    digest.update(chunk)
                    self._came += len(chunk)
                    progress.add(progress.done + len(chunk), 0, 0)
            if stream.line() == digest.hexdigest():
                part.rename(path)
                self.present += was_here
                self.whole.add(name)
            elif was_here:
                self._in_the_way(path, "another checksum")
            else:
                part.unlink()
                self._again(path)
        except BlockingIOError:
            self._in_the_way(path, "another command fetches it now")
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            self._no_space(f"{error.filename or path}: {error.strerror}", error)

    def _again(self, path: Path) -> NoReturn:
        """Fetch a file anew: what was here of it was of another, or it changes."""
        name = str(path)
        self._damaged[name] = self._damaged.get(name, 0) + 1
        found = f"{name}: its bytes are not those whose checksum came"
        if self._damaged[name] == _DAMAGED:
            raise Failure(Code.PROGRAM_FAILED, f"{found}, twice", _AGAIN, exit_code=CHECK_FAILED)
        raise UnreachableError(found)

    def _in_the_way(self, path: Path, why: str) -> NoReturn:
        found, remedy = f"{path} is here already: {why}", "move it away, or name another DIR"
        raise Failure(Code.LOCAL_FILE, found, remedy, exit_code=CHECK_FAILED)

    def _no_space(self, why: str, cause: OSError | None = None) -> NoReturn:
        full = cause is None or cause.errno in {errno.ENOSPC, errno.EDQUOT}
        found = f"this machine's disk is full: {why}" if full else why
        remedy = f"free space, or name another DIR; {_AGAIN}"
        raise Failure(Code.LOCAL_DISK, found, remedy, exit_code=FAILED) from cause


class _Stream:
    """What the sending program writes: lines and bytes, of which few are here at a time."""

    def __init__(self, begun: Execution) -> None:
        self._begun, self._said = begun, b""
        self._next, self._buffer = self._pieces(), b""

    def _pieces(self) -> Iterator[bytes]:
        output = self._begun.output
        while True:
            pieces = output(time.monotonic() + _SILENCE_SECONDS)
            channel, data = next(pieces, (None, b""))
            if channel is None:
                return
            if channel is Channel.STDOUT:
                yield data
            else:
                self._said = (self._said + data)[-_READ_BYTES:]

    def _more(self) -> bytes:
        if data := next(self._next, b""):
            return data
        lines = [each for each in self._said.decode(errors="replace").splitlines() if each.strip()]
        found = lines[-1] if lines else f"{_PROGRAM} ended with {self._begun.exit_code}"
        remedy = f"{_AGAIN}; an image of another version may lack the program: meks build"
        raise Failure(Code.PROGRAM_FAILED, found, remedy, exit_code=self._begun.exit_code or FAILED)

    def line(self) -> str:
        """Return the next line."""
        while b"\n" not in self._buffer:
            self._buffer += self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def json(self) -> Object:
        """Return the object of the next line; one that says how it ended is no other."""
        found: Object = json.loads(self.line())
        if found.get("program") == _PROGRAM:
            for _ in self._next:
                pass
            self._more()
        return found

    def take(self, count: int) -> Iterator[bytes]:
        """Yield so many bytes."""
        while count:
            data = self._buffer or self._more()
            data, self._buffer = data[:count], data[count:]
            count -= len(data)
            yield data


def _part(path: Path) -> Path:
    """Return where a file is until it is whole."""
    return path.with_name(f".{path.name}.part")


def _nearest(path: Path) -> Path:
    """Return the folder that is there of a path."""
    return next(each for each in (path, *path.absolute().parents) if each.is_dir())
