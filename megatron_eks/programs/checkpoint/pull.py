"""Fetches one checkpoint: beside its place, byte for byte, and then into its place at once."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints, manifests, whole
from megatron_eks.programs.checkpoint.manifest_format import Manifest
from megatron_eks.programs.checkpoint.remote import Far
from megatron_eks.programs.checkpoint.saved_tensors import BadFileError
from megatron_eks.programs.program import StopError
from megatron_eks.programs.s3_store import GoneError, Store

_STAGING = ".pull-"
_LOCK = ".pull.lock"
# Asks for no more than the others do.
_ANY_FORMAT = "torch_dcp"


class DamagedCopyError(Exception):
    """What S3 holds is not what was pushed."""


def fetch(far: Far, root: Path, store: Store, threads: int) -> Manifest:
    """Fetch a checkpoint as S3 lists it, so that it is whole on disk; return its manifest.

    A whole directory of that name is never changed: it is the same checkpoint, or StopError is
    raised. A damaged one is set aside under another name. Raises DamagedCopyError.
    """
    manifest = far.manifest
    if far.damage or manifest is None:
        raise DamagedCopyError(str(far.damage))
    target = root / manifest.name
    root.mkdir(parents=True, exist_ok=True)
    with _only_one(root):
        if target.exists() and _is_same(manifest, target, threads):
            return manifest
        # Under its own name, which the files inside it may tell.
        above = root / f"{_STAGING}{manifest.name}-{manifest.id}"
        staging = above / manifest.name
        staging.mkdir(parents=True, exist_ok=True)
        _remove_others(manifest, root, above)
        try:
            _fill(manifest, staging, store, threads)
            state = whole.by_format(staging, _ANY_FORMAT)
        except (GoneError, BadFileError) as problem:
            raise DamagedCopyError(str(problem)) from problem
        if not state.loadable:
            raise DamagedCopyError(state.why)
        manifests.write(staging, manifest)
        manifests.sync_to_disk(staging)
        if target.exists():
            aside = checkpoints.set_aside(target)
            program.say(f"{target.name} was damaged, and is now {aside}; remove it yourself")
        staging.rename(target)
        above.rmdir()
        manifests.sync_one(root)
    return manifest


def _fill(manifest: Manifest, staging: Path, store: Store, threads: int) -> None:
    """Fetch what is missing or different, and see that all is as the manifest says."""
    missing = set(manifests.differing(manifest, staging, threads=threads))
    files = [file for file in manifest.files if file.path in missing]
    needed, free = sum(file.size for file in files), shutil.disk_usage(staging).free
    if needed > free:
        found = f"{free:,} bytes free, {needed:,} needed"
        remedy = "remove what is not needed, or enlarge the file system; what is here stays"
        raise StopError(program.EXIT_CHECK_FAILED, staging.parent, found, remedy)
    for file in files:
        path = staging / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        store.download(manifest.key(file), path)
        program.say(f"{manifest.name}/{file.path}: {file.size:,} bytes")
    if changed := manifests.differing(manifest, staging, threads=threads):
        raise DamagedCopyError(f"{changed[0]} is not what was pushed")


def _remove_others(manifest: Manifest, root: Path, above: Path) -> None:
    """Remove what is not of this checkpoint: other pulls that were given up, parts of files."""
    for path in root.glob(f"{_STAGING}*-*"):
        if path != above:
            shutil.rmtree(path)
    known = {above / manifest.name / file.path for file in manifest.files}
    for path in above.rglob("*"):
        if path.is_symlink() or (path.is_file() and path not in known):
            path.unlink()


def _is_same(manifest: Manifest, target: Path, threads: int) -> bool:
    """Tell whether a checkpoint is there already, or a damaged one that may be set aside."""
    state = whole.by_sizes(target)
    if state.kind == "unfinished":
        found = "a directory of this name is there, and is not a whole checkpoint"
        remedy = "look whether a training is saving it; else move it away and pull again"
        raise StopError(program.EXIT_CHECK_FAILED, target, found, remedy)
    bad = manifests.differing(manifest, target, threads=threads)
    if not bad:
        return True
    if whole.by_bytes(target, threads=threads).loadable:
        found = f"another checkpoint of this name is there ({bad[0]} differs)"
        remedy = "pull into another directory, or move it away"
        raise StopError(program.EXIT_CHECK_FAILED, target, found, remedy)
    return False


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    """Keep a second pull out, where the file system has locks (Lustre: mounted with flock)."""
    descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            found, remedy = "another pull is at work here", "wait until it has ended"
            raise StopError(program.EXIT_FAILED, root, found, remedy) from problem
        yield
    finally:
        os.close(descriptor)
