"""The manifest of a checkpoint in S3: every file with size and checksum, written last.

Objects below the URI: NAME/ID/FILE for the bytes, NAME/manifest.json once all of them are there,
and `latest`. ID is derived from names, sizes and checksums, so two writers with different content
never write to one key, and one that starts again finds what it has sent.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TypeVar

import s3_store

MANIFEST = "manifest.json"
LATEST = "latest"
_VERSION = 1

Item = TypeVar("Item")
Result = TypeVar("Result")


class BadManifestError(Exception):
    """The text is no manifest or pointer that this version can read."""


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint."""

    path: str
    """Relative, with slashes."""
    size: int
    checksum: str
    """As S3 reports it for parts of `part_bytes`."""
    part_bytes: int


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint consists of."""

    name: str
    step: int
    files: tuple[FileEntry, ...]

    @cached_property
    def id(self) -> str:
        """Return what stands for this content and no other."""
        content = json.dumps([self.name, *(asdict(file) for file in self.files)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(file.size for file in self.files)

    def key(self, file: FileEntry) -> str:
        """Return where a file's bytes are."""
        return f"{self.name}/{self.id}/{file.path}"

    def text(self) -> bytes:
        """Return what is stored."""
        fields = {"version": _VERSION, "id": self.id, **asdict(self)}
        return json.dumps(fields, indent=1, sort_keys=True).encode()


@dataclass(frozen=True)
class Latest:
    """The pointer: the newest checkpoint that is whole in S3."""

    name: str
    step: int

    def text(self) -> bytes:
        """Return what is stored."""
        return json.dumps({"version": _VERSION, "name": self.name, "step": self.step}).encode()


def manifest_key(name: str) -> str:
    """Return where the manifest of a checkpoint is."""
    return f"{name}/{MANIFEST}"


def parse_manifest(text: bytes) -> Manifest:
    """Read a manifest; one that could write outside its directory is refused."""
    try:
        fields = json.loads(text)
        files = tuple(FileEntry(**entry) for entry in fields["files"])
        manifest = Manifest(fields["name"], fields["step"], files)
    except (ValueError, KeyError, TypeError) as problem:
        raise BadManifestError(f"cannot be read: {problem}") from problem
    if fields.get("version") != _VERSION:
        raise BadManifestError(f"version {fields.get('version')}, this program reads {_VERSION}")
    if fields.get("id") != manifest.id:
        raise BadManifestError("its id does not belong to its content")
    for each in (manifest.name, *(file.path for file in files)):
        path = PurePosixPath(each)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise BadManifestError(f"{each!r} is no path inside the checkpoint")
    return manifest


def parse_latest(text: bytes) -> Latest:
    """Read the pointer."""
    try:
        fields = json.loads(text)
        return Latest(str(fields["name"]), int(fields["step"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise BadManifestError(f"cannot be read: {problem}") from problem


def of_directory(directory: Path, step: int, *, part: int, threads: int) -> Manifest:
    """Read every file of a checkpoint and note its checksum.

    Raises FileNotFoundError if one goes away meanwhile.
    """
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    files = _in_threads(threads, lambda path: _entry(directory, path, part), paths)
    return Manifest(directory.name, step, tuple(files))


def differing(manifest: Manifest, directory: Path, *, threads: int) -> list[str]:
    """Return the files of a manifest that a directory lacks or holds with other content."""

    def differs(file: FileEntry) -> str | None:
        path = directory / file.path
        if not path.is_file() or path.stat().st_size != file.size:
            return file.path
        same = s3_store.checksum(path, file.part_bytes) == file.checksum
        return None if same else file.path

    found = _in_threads(threads, differs, manifest.files)
    return [path for path in found if path is not None]


def sync_to_disk(directory: Path) -> None:
    """Make every file and directory of a tree survive a power cut."""
    for path in [*directory.rglob("*"), directory]:
        sync_one(path)


def sync_one(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entry(directory: Path, path: Path, least: int) -> FileEntry:
    size = path.stat().st_size
    part = s3_store.part_bytes(size, least)
    relative = path.relative_to(directory).as_posix()
    return FileEntry(relative, size, s3_store.checksum(path, part), part)


def _in_threads(
    threads: int, function: Callable[[Item], Result], items: Sequence[Item]
) -> list[Result]:
    # hashlib lets other threads run while it works.
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))
