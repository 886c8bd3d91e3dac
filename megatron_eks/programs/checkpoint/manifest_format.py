"""The text of a checkpoint's manifest, which lists each file with size and checksum.

It is `manifest.json` in the checkpoint's own directory, so that a copy or a renamed directory
still says what it was. In S3 the same text is NAME/manifest.json, the files' bytes are
NAME/ID/FILE, and `latest` is the pointer. ID is derived from names, sizes and checksums, so two
writers with different content never write to one key, and one that starts again finds what it has
sent.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import TypeGuard

MANIFEST = "manifest.json"
LATEST = "latest"
_VERSION = 1
# One name for each number: another spelling would shadow it.
_NAME = re.compile(r"iter_(\d{7}|[1-9]\d{7,17})", re.ASCII)
_CHECKSUM_BYTES = 32
_MOST_SHOWN = 80
# Of ext4, XFS and Lustre, in bytes.
_LONGEST_NAME = 255


class BadManifestError(Exception):
    """The text is no manifest or pointer that this version can read."""


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint."""

    path: str
    """Relative, with slashes."""
    size: int
    """In bytes."""
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


def latest_text(name: str) -> bytes:
    """Return what is stored as the pointer to the newest checkpoint that is whole in S3."""
    return json.dumps({"version": _VERSION, "name": name, "step": step_of(name)}).encode()


def iteration_of(name: str) -> int | None:
    """Return the iteration that a directory's name stands for."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def step_of(name: str) -> int:
    """Return the iteration of a checkpoint, 0 where the name has none."""
    return iteration_of(name) or 0


def manifest_key(name: str) -> str:
    """Return where the manifest of a checkpoint is."""
    return f"{name}/{MANIFEST}"


def parse_manifest(text: bytes, name: str) -> Manifest:
    """Read the manifest of the checkpoint of this name.

    Raises BadManifestError for one of another checkpoint, one that could write outside its
    directory, and one that says nothing of the checkpoint's bytes.
    """
    fields = _fields(text)
    entries = fields.get("files")
    if not isinstance(entries, list) or not entries:
        raise BadManifestError("it lists no files")
    files = tuple(_entry_of(entry) for entry in entries)
    paths = {file.path for file in files}
    if len(paths) != len(files):
        raise BadManifestError("it lists a file twice")
    if inside := paths & {str(above) for path in paths for above in PurePosixPath(path).parents}:
        raise BadManifestError(f"{min(inside)} is a file and a directory")
    manifest = Manifest(*_name_and_step(fields), files)
    if fields.get("id") != manifest.id:
        raise BadManifestError("its id does not belong to its content")
    if manifest.name != name:
        raise BadManifestError(f"it is the one of {manifest.name}")
    return manifest


def parse_latest(text: bytes) -> str:
    """Return the name in the pointer; raises BadManifestError."""
    return _name_and_step(_fields(text))[0]


def _fields(text: bytes) -> Mapping[str, object]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise BadManifestError(f"cannot be read: {problem}") from problem
    if not isinstance(fields, dict):
        raise BadManifestError("it is no JSON object")
    if (version := fields.get("version")) != _VERSION:
        raise BadManifestError(f"version {_shown(version)}, this program reads {_VERSION}")
    return fields


def _name_and_step(fields: Mapping[str, object]) -> tuple[str, int]:
    name, step = fields.get("name"), fields.get("step")
    if not isinstance(name, str) or iteration_of(name) is None:
        raise BadManifestError(f"{_shown(name)} is no name of a checkpoint")
    if not _is_count(step) or step != iteration_of(name):
        raise BadManifestError(f"step {_shown(step)} is not the one of {name}")
    return name, step


def _entry_of(content: object) -> FileEntry:
    if not isinstance(content, dict) or set(content) != set(FileEntry.__annotations__):
        raise BadManifestError("a file has other fields than path, size, checksum and part_bytes")
    path, size, checksum, part = (content[field] for field in FileEntry.__annotations__)
    if not isinstance(path, str) or not _is_inside(path):
        raise BadManifestError(f"{_shown(path)} is no path inside the checkpoint")
    if not _is_count(size) or not _is_count(part) or not part:
        raise BadManifestError(f"{path}: sizes are {_shown(size)} and {_shown(part)}")
    try:
        digest = base64.b64decode(checksum, validate=True)
    except (TypeError, ValueError, binascii.Error):
        digest = b""
    if len(digest) != _CHECKSUM_BYTES:
        raise BadManifestError(f"{path}: {_shown(checksum)} is no SHA-256 checksum")
    return FileEntry(path, size, checksum, part)


def _shown(value: object) -> str:
    """Write what somebody put there; a nest may be too deep to be written."""
    is_plain = isinstance(value, str | int | float | None)
    return repr(value)[:_MOST_SHOWN] if is_plain else f"a {type(value).__name__}"


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return (
        bool(parts)
        and PurePosixPath(path).as_posix() == path
        and path != MANIFEST
        and not path.startswith("/")
        and ".." not in parts
        and path.isprintable()
        and all(len(part.encode()) <= _LONGEST_NAME for part in parts)
    )
