"""Checkpoints on disk beside their manifest, which is written when the save is final."""

import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from megatron_eks.programs import s3_store
from megatron_eks.programs.checkpoint import manifest_format
from megatron_eks.programs.checkpoint.manifest_format import MANIFEST, FileEntry, Manifest

_BESIDE = f".{MANIFEST}-"

Item = TypeVar("Item")
Result = TypeVar("Result")


class OutOfTimeError(Exception):
    """Not every file could be read until the deadline."""


def read(directory: Path) -> Manifest | None:
    """Return the manifest in a checkpoint's directory, None if there is none.

    Raises BadManifestError, and OSError where the file cannot be read.
    """
    path = directory / MANIFEST
    try:
        status = path.lstat()
        if status.st_size > s3_store.SMALL_BYTES or not stat.S_ISREG(status.st_mode):
            raise manifest_format.BadManifestError("it is no file of this program's")
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    return manifest_format.parse_manifest(text, directory.name)


def write(directory: Path, manifest: Manifest) -> None:
    """Put a manifest into a checkpoint, whole or not at all."""
    replace_file(directory / MANIFEST, manifest.text())


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file so that a crash leaves the old or the new content, never a part."""
    # Two programs of a run may write the same one at a time.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            # mkstemp lets nobody else read; people and other jobs do.
            os.fchmod(descriptor, 0o644)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except OSError:
        # A full disk must not fill with what could not be written to its end.
        Path(name).unlink(missing_ok=True)
        raise
    sync_one(path.parent)


def files_of(directory: Path) -> list[Path]:
    """Return the files of a checkpoint, without its manifest; links are nobody's to follow."""
    return sorted(
        path
        for path in directory.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and path != directory / MANIFEST
        and not path.name.startswith(_BESIDE)
    )


def links_in(directory: Path) -> list[Path]:
    """Return what is left out of a manifest: links, and what is neither file nor directory."""
    return sorted(
        path
        for path in directory.rglob("*")
        if path.is_symlink() or not (path.is_file() or path.is_dir())
    )


def of_directory(directory: Path, *, threads: int) -> Manifest:
    """Read every file of a checkpoint and note its checksum.

    Raises FileNotFoundError if one goes away meanwhile.
    """
    files = in_threads(threads, lambda path: entry(directory, path), files_of(directory))
    return Manifest(directory.name, manifest_format.step_of(directory.name), tuple(files))


def entry(directory: Path, path: Path) -> FileEntry:
    """Read one file of a checkpoint and note its checksum."""
    size = path.stat().st_size
    part = s3_store.part_bytes(size)
    relative = path.relative_to(directory).as_posix()
    return FileEntry(relative, size, s3_store.checksum(path, part), part)


def size_in(directory: Path, file: FileEntry) -> int | None:
    """Return the size that a file of a manifest has in a directory; None if it is not there."""
    path = directory / file.path
    return path.stat().st_size if path.is_file() and not path.is_symlink() else None


def lacking(manifest: Manifest, size_of: Callable[[FileEntry], int | None]) -> str | None:
    """Say which file of a manifest is missing, or has another size, where it was looked for."""
    for file in manifest.files:
        found = size_of(file)
        if found is None:
            return f"{file.path} is missing"
        if found != file.size:
            return f"{file.path} has {found:,} bytes, {file.size:,} expected"
    return None


def differing(
    manifest: Manifest, directory: Path, *, threads: int, deadline: float | None = None
) -> list[str]:
    """Return the files of a manifest that a directory lacks or holds with other content.

    Raises OutOfTimeError if the monotonic clock reaches the deadline before all are read.
    """
    late: list[str] = []

    def differs(file: FileEntry) -> str | None:
        if size_in(directory, file) != file.size:
            return file.path
        if deadline is not None and time.monotonic() > deadline:
            late.append(file.path)
            return None
        found = s3_store.checksum(directory / file.path, file.part_bytes)
        return None if found == file.checksum else file.path

    changed = [path for path in in_threads(threads, differs, manifest.files) if path is not None]
    if late and not changed:
        raise OutOfTimeError
    return changed


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


def in_threads(
    threads: int, function: Callable[[Item], Result], items: Iterable[Item]
) -> list[Result]:
    """Return a function's results; hashlib and reading let other threads run meanwhile."""
    with ThreadPoolExecutor(threads) as pool:
        return [*pool.map(function, items)]
