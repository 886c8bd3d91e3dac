"""What is fetched: files with the sizes and checksums that a source states, and the marker."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from megatron_eks.programs import program
from megatron_eks.programs.program import StopError

MARKER = ".fetched.json"
"""In a directory that was fetched: from where, and what. A source's own one is left there."""


@dataclass(frozen=True)
class RemoteFile:
    """One file at its source."""

    path: str
    size: int
    sha256: str | None = None
    tag: str | None = None
    """What the source changes with the content, where it states no checksum."""

    def is_in(self, directory: Path) -> bool:
        """Compare a file with what the source states."""
        path = directory / self.path
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        if self.sha256 is None:
            return True
        with path.open("rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


@dataclass(frozen=True)
class Fetched:
    """The marker's content: what a directory was fetched from."""

    kind: str
    name: str
    revision: str
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


def read_marker(directory: Path) -> Fetched | None:
    """Return what a directory was fetched from; None without a readable marker."""
    try:
        fields = json.loads((directory / MARKER).read_text())
        kind, name, revision = (str(fields[word]) for word in ("kind", "name", "revision"))
        files = (RemoteFile(each["path"], each["size"]) for each in fields["files"])
        return Fetched(kind, name, revision, tuple(files))
    except (OSError, ValueError, TypeError, KeyError):
        return None
