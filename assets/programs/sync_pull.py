"""Fetches one checkpoint: beside its place, byte for byte, and then into its place at once."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import checkpoints
import program
import sync_manifest
from program import StopError
from s3_store import Store
from sync_manifest import Manifest

_ATTEMPTS = 3
_STAGING = ".pull-"
_LOCK = ".pull.lock"


def fetch(manifest: Manifest, root: Path, store: Store, threads: int) -> Path:
    """Return the directory of a checkpoint that is whole on disk.

    A directory of that name is never changed: it is the same checkpoint, or StopError is raised.
    Raises GoneError if an object is missing.
    """
    target = root / manifest.name
    root.mkdir(parents=True, exist_ok=True)
    with _only_one(root):
        if target.exists():
            _check_present(manifest, target, threads)
            return target
        staging = root / f"{_STAGING}{manifest.name}-{manifest.id}"
        staging.mkdir(exist_ok=True)
        _remove_others(manifest, root, staging)
        _fill(manifest, staging, store, threads)
        sync_manifest.sync_to_disk(staging)
        staging.rename(target)
        sync_manifest.sync_one(root)
    return target


def publish(root: Path, manifest: Manifest) -> bool:
    """Make a run resume from a checkpoint, unless it would from a newer whole one."""
    whole = checkpoints.complete_iterations(root, checkpoints.DEFAULT_FORMAT)
    if (root / checkpoints.TRACKER).exists() and max(whole, default=0) > manifest.step:
        return False
    checkpoints.point_bridge(root, root / manifest.name)
    checkpoints.replace_text(root / checkpoints.TRACKER, str(manifest.step))
    return True


def _fill(manifest: Manifest, staging: Path, store: Store, threads: int) -> None:
    """Fetch what is missing or different, until all is as the manifest says."""
    missing: list[str] = [file.path for file in manifest.files]
    for _ in range(_ATTEMPTS):
        missing = sync_manifest.differing(manifest, staging, threads=threads)
        files = [file for file in manifest.files if file.path in set(missing)]
        if not files:
            return
        needed, free = sum(file.size for file in files), shutil.disk_usage(staging).free
        if needed > free:
            raise StopError(
                program.EXIT_CHECK_FAILED,
                staging.parent,
                f"{free:,} bytes free, {needed:,} needed",
                "remove what is not needed, or enlarge the file system; what is here stays",
            )
        for file in files:
            path = staging / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            store.download(manifest.key(file), path)
            program.say(f"{manifest.name}/{file.path}: {file.size:,} bytes")
    missing = sync_manifest.differing(manifest, staging, threads=threads)
    if missing:
        raise StopError(
            program.EXIT_CHECK_FAILED,
            f"{store.uri}/{manifest.name}",
            f"{missing[0]} is not what was pushed, {_ATTEMPTS} times",
            "verify it (checkpoint_sync.py verify), and pull another one",
        )


def _remove_others(manifest: Manifest, root: Path, staging: Path) -> None:
    """Remove what is not of this checkpoint: other pulls that were given up, parts of files."""
    for path in root.glob(f"{_STAGING}*-*"):
        if path != staging:
            shutil.rmtree(path)
    known = {staging / file.path for file in manifest.files}
    for path in staging.rglob("*"):
        if path.is_file() and path not in known:
            path.unlink()


def _check_present(manifest: Manifest, target: Path, threads: int) -> None:
    if not checkpoints.is_complete(target, checkpoints.DEFAULT_FORMAT):
        raise StopError(
            program.EXIT_CHECK_FAILED,
            target,
            "a directory of this name is there, and is not a whole checkpoint",
            "look whether a training is saving it; else move it away and pull again",
        )
    bad = sync_manifest.differing(manifest, target, threads=threads)
    if bad:
        raise StopError(
            program.EXIT_CHECK_FAILED,
            target,
            f"another checkpoint of this name is there ({bad[0]} differs)",
            "pull into another directory, or move it away",
        )


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    """Keep a second pull out, where the file system has locks (Lustre: mounted with flock)."""
    descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise StopError(
                program.EXIT_FAILED, root, "another pull is at work here", "wait until it has ended"
            ) from problem
        except OSError:
            program.say(f"{root}: no locks on this file system; do not pull twice at a time")
        yield
    finally:
        os.close(descriptor)
