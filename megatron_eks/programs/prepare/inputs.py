"""Where the lines come from: local files and S3 objects, by name, pattern or folder."""

import glob
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from megatron_eks.programs.prepare.job import PrepareError, failure, usage

CHUNK_BYTES = 4 << 20
LINE_FILES = (".jsonl", ".ndjson", ".json")
PACKED = {".gz": "gzip", ".zst": "zstd"}

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class Source:
    """One input, as it is stored."""

    name: str
    """The name that findings use."""
    size: int
    """Bytes as stored, compressed or not."""
    identity: str
    """What changes when the content does: an entity tag, or the time of the last change."""

    def raw(self, start: int, end: int) -> Iterator[bytes]:
        """Read the stored bytes of a range, a chunk at a time."""
        raise NotImplementedError


@dataclass(frozen=True)
class LocalFile(Source):
    """A file that this machine can open."""

    @classmethod
    def at(cls, path: str) -> "LocalFile":
        """Look at a file without reading it."""
        state = Path(path).stat()
        return cls(path, state.st_size, f"mtime:{state.st_mtime_ns}")

    def raw(self, start: int, end: int) -> Iterator[bytes]:
        """Read the stored bytes of a range, a chunk at a time."""
        with Path(self.name).open("rb", buffering=0) as file:
            file.seek(start)
            while start < end:
                chunk = file.read(min(CHUNK_BYTES, end - start))
                if not chunk:
                    raise OSError(None, f"it became shorter than {end} bytes", self.name)
                start += len(chunk)
                yield chunk


def read_range(path: str, start: int, size: int) -> bytes:
    """Read a part of a local file at once."""
    with Path(path).open("rb", buffering=0) as file:
        data = os.pread(file.fileno(), size, start)
    if len(data) != size:
        raise OSError(None, f"it became shorter than {start + size} bytes", path)
    return data


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
    expected = PACKED.get(Path(source.name).suffix)
    if expected:
        found = f"named as {expected}, but it does not begin as {expected} does"
        remedy = "fetch it again, or rename it"
        raise failure(source.name, found, remedy)
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
    return [LocalFile.at(name) for name in names]


def _find_s3(word: str) -> list[Source]:
    # Imported here, because a preparation of local files has no use for half a second of it.
    from megatron_eks.programs.prepare import s3  # noqa: PLC0415 -- see above

    return list(s3.find(word))


# A zstd block of four bytes can stand for 128 KiB, so small pieces keep the memory bounded.
_PIECE_BYTES = {"gzip": 64 << 10, "zstd": 4 << 10}


Watch = Callable[[bytes], None]


def unpacked(
    source: Source, packing: str | None, start: int, end: int, watch: Watch
) -> Iterator[bytes]:
    """Yield an input from `start`, an offset before packing; `watch` sees the stored bytes.

    `end` counts for plain inputs alone: there is no way into the middle of a packed one.
    """
    if packing is None:
        yield from _watched(source.raw(start, end), watch)
        return
    skip = start
    for data in _members(source, packing, watch):
        yield data[skip:]
        skip = max(0, skip - len(data))


def _watched(chunks: Iterator[bytes], watch: Watch) -> Iterator[bytes]:
    for chunk in chunks:
        watch(chunk)
        yield chunk


def _members(source: Source, packing: str, watch: Watch) -> Iterator[bytes]:
    """Unpack member after member, as `gzip -d` and `zstd -d` do."""
    unpacker: Any = None
    done = 0
    for chunk in _watched(source.raw(0, source.size), watch):
        for place in range(0, len(chunk), _PIECE_BYTES[packing]):
            piece = chunk[place : place + _PIECE_BYTES[packing]]
            while piece:
                if unpacker is None:
                    # Zeros after a member are padding, of tapes once and of object stores now.
                    piece = piece.lstrip(b"\0")
                    if not piece:
                        break
                    unpacker = _unpacker(packing)
                try:
                    data = unpacker.decompress(piece)
                except Exception as problem:
                    raise _broken(source, packing, done, f"is damaged ({problem})") from problem
                done += len(data)
                yield data
                piece = unpacker.unused_data if unpacker.eof else b""
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
