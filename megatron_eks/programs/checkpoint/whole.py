"""Whether a checkpoint is whole: one definition for trainers, guards, copies and commands.

Once a save is final a manifest with size and checksum of each file stands in it (manifests.py).
Until then, and where another program saved it, a checkpoint is at best unverified: it is judged by
what its format shows of itself. Layouts: megatron/training/checkpointing.py and
megatron/core/dist_checkpointing, Megatron core 0.19; torch/distributed/checkpoint/filesystem.py.
"""

import json
import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from megatron_eks.programs.checkpoint import manifest_format, manifests, saved_tensors
from megatron_eks.programs.checkpoint.manifest_format import BadManifestError, Manifest
from megatron_eks.programs.checkpoint.manifests import OutOfTimeError
from megatron_eks.programs.checkpoint.saved_tensors import RANK_FILE, BadFileError

Noted = TypeVar("Noted")

DEFAULT_FORMAT = "torch_dist"
THREADS = min(16, os.cpu_count() or 1)
"""That read a checkpoint where nothing else is at work on the node."""

_LAST_FILE = "metadata.json"
_MEGATRONS = "torch_dist"
# These two have no metadata.json; their .metadata is the last file of a save.
_PLAIN_FORMATS = ("torch_dcp", "fsdp_dtensor")


@dataclass(frozen=True)
class State:
    """What is known of a checkpoint."""

    kind: Literal["whole", "unverified", "unfinished", "damaged"]
    """whole: as its manifest says. unverified: no manifest, and nothing wrong is seen.
    unfinished: the last file of a save is missing. damaged: it was more once."""
    why: str = ""
    """What is wrong, or what was not looked at."""

    def __str__(self) -> str:
        """Return what people read."""
        return f"{self.kind}: {self.why}" if self.why else self.kind

    @property
    def loadable(self) -> bool:
        """Tell whether a run may go on from it."""
        return self.kind in {"whole", "unverified"}


def by_sizes(directory: Path, ckpt_format: str = DEFAULT_FORMAT) -> State:
    """Judge by names and sizes alone, which reads next to nothing."""
    try:
        if not directory.is_dir():
            return State("damaged", "it is not there")
        manifest = manifests.read(directory)
        if manifest is not None:
            lacks = manifests.lacking(manifest, partial(manifests.size_in, directory))
            return State("damaged", lacks) if lacks else State("whole")
        return by_format(directory, ckpt_format)
    except (BadManifestError, BadFileError, OSError) as problem:
        return _damaged(problem)


def by_bytes(
    directory: Path,
    ckpt_format: str = DEFAULT_FORMAT,
    *,
    threads: int = THREADS,
    deadline: float | None = None,
    only: Callable[[str], bool] = lambda _: True,
) -> State:
    """Judge by every byte: against the manifest, else by the checksums that torch writes.

    Where the monotonic clock reaches the deadline first, it is judged by sizes, and says so. With
    `only` others read the other files, whose paths it is told.
    """
    state = by_sizes(directory, ckpt_format)
    if not state.loadable:
        return state
    try:
        manifest = manifests.read(directory)
        if manifest is None:
            _read(directory, threads, lambda *_: None, deadline, only)
            return state
        if (directory / saved_tensors.METADATA).is_file():
            # A manifest tells that nothing was changed, and not who wrote it.
            saved_tensors.items(directory)
        mine = replace(manifest, files=tuple(file for file in manifest.files if only(file.path)))
        changed = manifests.differing(mine, directory, threads=threads, deadline=deadline)
    except OutOfTimeError:
        return State(state.kind, "its bytes were not all compared: that would have taken too long")
    except (BadManifestError, BadFileError, OSError) as problem:
        return _damaged(problem)
    return State("damaged", f"{changed[0]} has changed since it was saved") if changed else state


def seal(directory: Path, ckpt_format: str = DEFAULT_FORMAT, *, threads: int = THREADS) -> State:
    """Read a final save, and write its manifest if nothing is wrong with it. Raises OSError."""
    state = by_sizes(directory, ckpt_format)
    step = manifest_format.iteration_of(directory.name)
    if state.kind != "unverified" or step is None:
        return state
    # A manifest lists no link, and would call the checkpoint whole without what it leads to.
    if links := manifests.links_in(directory):
        return State("damaged", f"{links[0].name} is no file of its own, so there is no manifest")
    try:
        files = _read(directory, threads, manifests.entry)
    except BadFileError as problem:
        return State("damaged", str(problem))
    manifests.write(directory, Manifest(directory.name, step, tuple(files)))
    return State("whole")


def by_format(directory: Path, ckpt_format: str = DEFAULT_FORMAT) -> State:
    """Judge a checkpoint by its format's marks; raises BadFileError and OSError.

    torch_dist: the last file of a save is metadata.json, after .metadata. torch: nothing marks
    the end, so every rank's file has to be there and end as torch's zip files do.
    """
    last, dot_metadata = directory / _LAST_FILE, directory / saved_tensors.METADATA
    if last.exists() or last.is_symlink():
        return _distributed(directory, has_common=_backend(last) == _MEGATRONS)
    ranks = sorted(path for path in directory.glob("mp_rank_*") if path.is_dir())
    if ranks:
        return _ranks(ranks)
    if ckpt_format in _PLAIN_FORMATS and _has_bytes(dot_metadata):
        return _distributed(directory, has_common=False)
    if ckpt_format in _PLAIN_FORMATS:
        return State("unfinished", f"{saved_tensors.METADATA} is missing or empty")
    return State("unfinished", f"{_LAST_FILE}, the last file of a save, is missing")


def _distributed(directory: Path, *, has_common: bool) -> State:
    """Judge files of torch.distributed.checkpoint; raises BadFileError for a damaged one."""
    if not _has_bytes(directory / saved_tensors.METADATA):
        raise BadFileError(f"{saved_tensors.METADATA} is missing or empty")
    items = saved_tensors.items(directory)
    if has_common and not saved_tensors.has_common(directory, items):
        raise BadFileError("common.pt is missing")
    for name, found in items.items():
        path, needed = directory / name, max(item.offset + item.length for item in found)
        if not path.is_file():
            raise BadFileError(f"{name} is missing")
        if (size := path.stat().st_size) < needed:
            raise BadFileError(f"{name} has {size:,} bytes, {needed:,} expected")
    return State("unverified")


def _ranks(ranks: list[Path]) -> State:
    for path in ranks:
        # The index of torch's zip files is at their end.
        if not zipfile.is_zipfile(path / RANK_FILE):
            return State("unfinished", f"{path.name}/{RANK_FILE} is missing or cut")
    if len(ranks) < saved_tensors.ranks(ranks[0] / RANK_FILE):
        return State("unfinished", "the directory of a rank is missing")
    # Every one of them holds the same files, such as distrib_optim.pt.
    every = {path.name for rank in ranks for path in rank.iterdir()}
    for path in ranks:
        if lost := every - {file.name for file in path.iterdir()}:
            return State("unfinished", f"{path.name}/{min(lost)} is missing")
    return State("unverified")


def _read(
    directory: Path,
    threads: int,
    note: Callable[[Path, Path], Noted],
    deadline: float | None = None,
    only: Callable[[str], bool] = lambda _: True,
) -> list[Noted]:
    """Compare a checkpoint with the checksums inside its files; `note` sees each good one.

    Raises BadFileError, and OutOfTimeError as `manifests.differing` does.
    """
    named = manifest_format.iteration_of(directory.name)
    others = saved_tensors.iterations(directory) - {named}
    if named is not None and others:
        raise BadFileError(f"it holds iteration {min(others)}")
    has_items = (directory / saved_tensors.METADATA).is_file()
    items = saved_tensors.items(directory) if has_items else {}

    def look(path: Path) -> Noted:
        if deadline is not None and time.monotonic() > deadline:
            raise OutOfTimeError
        if found := items.get(path.name):
            saved_tensors.check_items(directory, path.name, found)
        elif path.suffix == ".pt":
            saved_tensors.check_file(path)
        return note(directory, path)

    every = manifests.files_of(directory)
    mine = [path for path in every if only(path.relative_to(directory).as_posix())]
    return manifests.in_threads(threads, look, mine)


def _backend(path: Path) -> object:
    """Return what metadata.json says of a save; raises BadFileError if it is torn."""
    if not path.is_file():
        raise BadFileError(f"{_LAST_FILE} is no file")
    try:
        return json.loads(path.read_bytes())["sharded_backend"]
    except (ValueError, RecursionError, LookupError, TypeError) as problem:
        raise BadFileError(f"{_LAST_FILE} cannot be read") from problem


def _has_bytes(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _damaged(problem: Exception) -> State:
    if isinstance(problem, OSError):
        name = Path(problem.filename).name if problem.filename else "a file"
        return State("damaged", f"{name} cannot be read: {problem.strerror or problem}")
    where = f"{manifest_format.MANIFEST}: " if isinstance(problem, BadManifestError) else ""
    return State("damaged", f"{where}{problem}")
