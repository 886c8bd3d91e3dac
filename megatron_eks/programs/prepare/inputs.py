"""Where the lines come from: local files and S3 objects, by name, pattern or folder."""

import fnmatch
import glob
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from megatron_eks.programs.prepare.job import PrepareError, failure, usage
from megatron_eks.programs.s3_store import GoneError, RaceError, Store, Stored, check_uri

CHUNK_BYTES = 4 << 20
RANGE_BYTES = 16 << 20
"""Of one request to S3: large enough that waiting for the first byte costs little."""
LINE_FILES = (".jsonl", ".ndjson", ".json")
PACKED = (".gz", ".zst")

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
# A zstd block of four bytes can stand for 128 KiB, so small pieces keep the memory bounded.
_PIECE_BYTES = {"gzip": 64 << 10, "zstd": 4 << 10}


@dataclass(frozen=True)
class Source:
    """One input, as it is stored."""

    name: str
    """The name that findings use."""
    size: int
    """Bytes as stored, compressed or not."""
    identity: str
    """What changes when the content does: an entity tag, or the time of the last change."""
    read: Callable[[int, int], bytes] = field(compare=False)
    """Returns the stored bytes from a place on to another."""
    at_once: int
    """Bytes to read at a time."""

    @property
    def is_local(self) -> bool:
        """Whether it is a file that this machine can open."""
        return not self.name.startswith("s3://")

    def raw(self, start: int, end: int) -> Iterator[bytes]:
        """Read the stored bytes of a range, a chunk at a time."""
        for place in range(start, end, self.at_once):
            yield self.read(place, min(place + self.at_once, end))


def local_file(path: str) -> Source:
    """Look at a file without reading it."""
    state, read = Path(path).stat(), partial(read_range, path)
    return Source(path, state.st_size, f"mtime:{state.st_mtime_ns}", read, CHUNK_BYTES)


def read_range(path: str, start: int, end: int) -> bytes:
    """Read a part of a local file at once."""
    with Path(path).open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), end - start, start)
    if len(data) != end - start:
        raise OSError(None, f"it became shorter than {end} bytes", path)
    return data


def _object(store: Store, stored: Stored) -> Source:
    """Return an object, at the version that was found first."""
    name = f"{store.uri}/{stored.key}"

    def read(start: int, end: int) -> bytes:
        try:
            return store.part(stored, start, end)
        except (GoneError, RaceError) as problem:
            found = "it was changed or removed while it was read"
            raise failure(name, found, "start again") from problem

    return Source(name, stored.size, f"etag:{stored.tag}", read, RANGE_BYTES)


def find(words: Sequence[str]) -> list[Source]:
    """Return the inputs in the order given; of a pattern or folder in the order of their names."""
    sources: list[Source] = []
    problems: list[PrepareError] = []
    for word in words:
        try:
            sources += _find_s3(word) if word.startswith("s3://") else _find_local(word)
        except PrepareError as problem:
            problems.append(problem)
    names = [source.name for source in sources]
    problems += [
        usage(name, "this input is given twice", "name it once; weights belong to training")
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if problems:
        raise PrepareError(*(finding for problem in problems for finding in problem.findings))
    return sources


def compression(source: Source) -> str | None:
    """Tell by the first bytes how an input is packed: `gzip`, `zstd` or not at all."""
    head = b"".join(source.raw(0, min(4, source.size)))
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    return None


def has_line_name(name: str) -> bool:
    """Tell whether a name in a folder is one of JSON lines."""
    path = Path(name)
    return (Path(path.stem) if path.suffix in PACKED else path).suffix in LINE_FILES


def _find_local(word: str) -> list[Source]:
    path = Path(word)
    if path.is_file():
        names = [word]
    elif path.is_dir():
        names = sorted(str(entry) for entry in path.iterdir() if has_line_name(entry.name))
    else:
        # Sorted by name: what glob returns depends on the file system.
        names = sorted(name for name in glob.glob(word, recursive=True) if Path(name).is_file())  # noqa: PTH207 -- the pattern may be absolute
    if not names:
        raise usage(word, "no such file, and nothing matches", "correct --input")
    return [local_file(name) for name in names]


def _find_s3(word: str) -> list[Source]:
    """Return the object of this name; of a prefix that ends in `/`, or of a pattern, all."""
    check_uri(word)
    bucket, _, pattern = word.removeprefix("s3://").partition("/")
    store = Store(f"s3://{bucket}")
    found = [
        _object(store, each)
        for each in store.objects(re.split(r"[*?[]", pattern)[0])
        if _matches(each.key, pattern)
    ]
    if not found:
        raise usage(word, "no object matches", "correct --input")
    return found


def _matches(key: str, pattern: str) -> bool:
    if pattern.endswith("/") or not pattern:
        return has_line_name(key)
    return key == pattern or fnmatch.fnmatchcase(key, pattern)


def unpacked(source: Source, packing: str, stored: Iterable[bytes], skip: int) -> Iterator[bytes]:
    """Unpack member after member, as `gzip -d` and `zstd -d` do; yield what follows `skip` bytes.

    There is no way into the middle of a packed input.
    """
    unpacker: Any = None
    done = 0
    pieces = (
        chunk[place : place + _PIECE_BYTES[packing]]
        for chunk in stored
        for place in range(0, len(chunk), _PIECE_BYTES[packing])
    )
    for piece in pieces:
        left = piece
        while left:
            if unpacker is None:
                # Zeros after a member are padding, of tapes once and of object stores now.
                left = left.lstrip(b"\0")
                if not left:
                    break
                unpacker = _unpacker(packing)
            try:
                data = unpacker.decompress(left)
            except Exception as problem:
                raise _broken(source, packing, done, f"is damaged ({problem})") from problem
            yield data[max(0, skip - done) :]
            done += len(data)
            left = unpacker.unused_data if unpacker.eof else b""
            if unpacker.eof:
                unpacker = None
    if unpacker is not None:
        raise _broken(source, packing, done, "ends too early: it was truncated")


def _broken(source: Source, packing: str, done: int, what: str) -> Exception:
    found = f"the {packing} data {what}, after {done} unpacked bytes"
    remedy = "fetch or write this input again; nothing was written under the final names"
    return failure(source.name, found, remedy)


def _unpacker(packing: str) -> Any:  # noqa: ANN401 -- zlib's and zstandard's, which are alike
    if packing == "gzip":
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    import zstandard  # noqa: PLC0415 -- only this kind of input needs it

    return zstandard.ZstdDecompressor().decompressobj()
