"""What is fetched: files with the sizes and checksums that a source states, and the marker."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

MARKER = ".fetched.json"
_READ_BYTES = 2**20


@dataclass(frozen=True)
class RemoteFile:
    """One file at its source."""

    path: str
    size: int
    sha256: str | None = None
    git_blob: str | None = None
    """SHA-1 of a small file as git counts it."""
    tag: str | None = None
    """What the source changes with the content, where it states no checksum."""

    def is_in(self, directory: Path) -> bool:
        """Compare a file with what the source states."""
        path = directory / self.path
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        if self.sha256:
            return _digest(path, hashlib.sha256()) == self.sha256
        if self.git_blob:
            start = hashlib.sha1(f"blob {self.size}\0".encode(), usedforsecurity=False)
            return _digest(path, start) == self.git_blob
        return True


class Source(Protocol):
    """A place to fetch from."""

    kind: str
    name: str
    revision: str
    files: list[RemoteFile]

    @property
    def identity(self) -> str:
        """Return a short name for this content and no other."""

    def download(self, file: RemoteFile, directory: Path) -> None:
        """Fetch one file below a directory; raises StopError."""


@dataclass(frozen=True)
class Fetched:
    """The marker's content: what a directory was fetched from."""

    kind: str
    name: str
    revision: str
    asked: str | None
    """The branch or tag that was asked for."""
    files: tuple[RemoteFile, ...]

    def text(self) -> str:
        """Return what is stored."""
        return json.dumps(asdict(self), indent=1)


def read_marker(directory: Path) -> Fetched | None:
    """Return what a directory was fetched from; None without a readable marker."""
    try:
        fields = json.loads((directory / MARKER).read_text())
        files = tuple(RemoteFile(**file) for file in fields.pop("files"))
        return Fetched(**fields, files=files)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _digest(path: Path, digest: "hashlib._Hash") -> str:
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
