"""Where the lines come from: local files and S3 objects, by name, pattern or folder."""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from megatron_eks.programs.prepare.job import PrepareError, failure, usage

CHUNK_BYTES = 4 << 20
LINE_FILES = (".jsonl", ".ndjson", ".json")
PACKED = {".gz": "gzip", ".zst": "zstd"}

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class Source(Protocol):
    """One input, as it is stored."""

    @property
    def name(self) -> str:
        """The name that findings use."""

    @property
    def size(self) -> int:
        """Bytes as stored, compressed or not."""

    @property
    def identity(self) -> str:
        """What changes when the content does: an entity tag, or the time of the last change."""

    def raw(self, start: int, end: int) -> Iterator[bytes]:
        """Read the stored bytes of a range, a chunk at a time."""


@dataclass(frozen=True)
class LocalFile:
    """A file that this machine can open."""

    name: str
    size: int
    identity: str

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
        raise failure(
            source.name,
            f"named as {expected}, but it does not begin as {expected} does",
            "fetch it again, or rename it",
        )
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
