"""What is fetched: files with the sizes and checksums that a source states, and the marker.

The marker is a file in the directory, or beside it where the source has a file of that name.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import manifests
from megatron_eks.programs.program import StopError

MARKER = ".fetched.json"


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


@dataclass(frozen=True)
class Fetched:
    """The marker's content: what a directory was fetched from."""

    kind: str
    name: str
    revision: str
    asked: str | None
    """The branch or tag that was asked for."""
    files: tuple[RemoteFile, ...]


def check_names(files: Sequence[RemoteFile]) -> None:
    """Raise StopError for names at a source that would be another file, or none, in a directory."""
    names = {file.path for file in files}
    for name in sorted(names):
        folders = [str(folder) for folder in PurePosixPath(name).parents]
        both = next((folder for folder in folders if folder in names), None)
        if {"", ".", ".."} & {*name.split("/")} or "\0" in name:
            found = "a name with a part that is '..', '.' or empty"
        elif both is not None:
            found = f"{both} is a file and a folder there"
        else:
            continue
        raise StopError(program.EXIT_CHECK_FAILED, name, found, "rename it at its source")


def write_marker(fetched: "Fetched", staging: Path, directory: Path) -> None:
    """Write what a directory is fetched from, before it appears under its name."""
    beside = marker_beside(directory)
    # Of another content, which had the name before.
    beside.unlink(missing_ok=True)
    taken = any(PurePosixPath(file.path).parts[0] == MARKER for file in fetched.files)
    marker = beside if taken else staging / MARKER
    marker.write_text(json.dumps(asdict(fetched), indent=1))
    manifests.sync_one(marker)


def marker_beside(directory: Path) -> Path:
    """Return where the marker is if the directory has a fetched file of its name."""
    return directory.with_name(f".fetched-{directory.name}.json")


def read_marker(directory: Path) -> Fetched | None:
    """Return what a directory was fetched from; None without a readable marker."""
    beside = marker_beside(directory)
    try:
        # With one beside it, what has the name inside was fetched.
        fields = json.loads((beside if beside.exists() else directory / MARKER).read_text())
        files = tuple(RemoteFile(**file) for file in fields.pop("files"))
        return Fetched(**fields, files=files)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _digest(path: Path, digest: "hashlib._Hash") -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()
