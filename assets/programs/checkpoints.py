"""Megatron's checkpoint directory: which checkpoints are whole, and what its tracker file says.

Layout: megatron/training/checkpointing.py and megatron/core/dist_checkpointing, Megatron core 0.19.
"""

import json
import os
import re
import shutil
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TRACKER = "latest_checkpointed_iteration.txt"
RELEASE = "release"
DEFAULT_FORMAT = "torch_dist"

_ITERATION = re.compile(r"iter_(\d{7,})")
_RANK = re.compile(r"mp_rank_(\d{2,})(?:_(\d{3,}))?(?:_(\d{3,}))?")
_RANK_FILE = "model_optim_rng.pt"
_BRIDGE_STATE = "train_state.pt"
# These two have no metadata.json; their .metadata is the last file of a save.
_PLAIN_FORMATS = ("torch_dcp", "fsdp_dtensor")


def is_complete(directory: Path, ckpt_format: str) -> bool:
    """Tell whether a checkpoint can be loaded, as far as its marker files tell."""
    return what_is_missing(directory, ckpt_format) is None


def what_is_missing(directory: Path, ckpt_format: str) -> str | None:
    """Say why a checkpoint cannot be loaded, as far as its marker files tell.

    torch_dist: the last file of a save is metadata.json, after .metadata. torch: nothing marks
    the end, so every rank's file has to be there and end as torch's zip files do.
    """
    if not directory.is_dir():
        return "it is not there"
    no_metadata = None if _has_bytes(directory / ".metadata") else ".metadata is missing or empty"
    if (directory / "metadata.json").exists():
        is_good = _is_metadata(directory / "metadata.json")
        return no_metadata if is_good else "metadata.json cannot be read"
    ranks = sorted(path for path in directory.glob("mp_rank_*") if path.is_dir())
    if ranks:
        if not _all_ranks(ranks):
            return "the directory of a rank is missing"
        broken = [path.name for path in ranks if not _is_whole(path / _RANK_FILE)]
        return f"{broken[0]}/{_RANK_FILE} is missing or cut" if broken else None
    if ckpt_format in _PLAIN_FORMATS:
        return no_metadata
    return "metadata.json, the last file of a save, is missing"


def iterations(root: Path) -> dict[int, Path]:
    """Return the iteration directories, oldest first; links are another owner's."""
    found = {}
    for path in root.iterdir():
        match = _ITERATION.fullmatch(path.name)
        if match and path.is_dir() and not path.is_symlink():
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def iteration_of(name: str) -> int | None:
    """Return the iteration that a directory's name stands for."""
    match = _ITERATION.fullmatch(name)
    return int(match[1]) if match else None


def complete_iterations(root: Path, ckpt_format: str) -> dict[int, Path]:
    """Return the iteration directories that can be loaded, oldest first."""
    every = iterations(root)
    return {number: path for number, path in every.items() if is_complete(path, ckpt_format)}


def size_bytes(directory: Path) -> int:
    """Return what a checkpoint takes on the file system."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Tracker:
    """The tracker file of a directory, and whether a run can resume from it."""

    state: Literal["absent", "good", "torn", "dangling"]
    text: str = ""
    checkpoint: Path | None = None
    """What a good or dangling tracker names."""

    @property
    def usable(self) -> bool:
        """Tell whether Megatron would resume, or start as new, instead of ending at once."""
        return self.state in {"absent", "good"}


def read_tracker(root: Path, ckpt_format: str) -> Tracker:
    """Read a tracker as Megatron does, and look whether its checkpoint is there."""
    try:
        raw = (root / TRACKER).read_bytes()
    except FileNotFoundError:
        return Tracker("absent")
    text = raw.decode("ascii", errors="replace").strip()
    name = _directory_name(text)
    if name is None:
        return Tracker("torn", text)
    checkpoint = root / name
    state: Literal["good", "dangling"] = (
        "good" if is_complete(checkpoint, ckpt_format) else "dangling"
    )
    return Tracker(state, text, checkpoint)


@dataclass(frozen=True)
class Restart:
    """What a run that starts now would resume from."""

    takes: str | None
    """Name of a directory; None: it would start anew, or from its base weights."""
    why: str


def restart(root: Path, ckpt_format: str) -> Restart:
    """Say what a run would resume from: what the tracker names, after `repair_tracker`."""
    tracker = read_tracker(root, ckpt_format)
    if tracker.checkpoint is not None and tracker.state == "good":
        return Restart(tracker.checkpoint.name, "the tracker file names it")
    complete = complete_iterations(root, ckpt_format) if root.is_dir() else {}
    if tracker.state == "absent":
        if not complete:
            return Restart(None, "no whole checkpoint is there")
        fix = f"write {max(complete)} into {TRACKER} to resume"
        return Restart(None, f"no tracker file names one of the whole checkpoints: {fix}")
    what = "is torn" if tracker.state == "torn" else "names what is not whole"
    if complete:
        name = complete[max(complete)].name
        return Restart(name, f"the tracker file {what}, so the start-up guard takes the newest")
    if is_complete(root / RELEASE, ckpt_format):
        return Restart(RELEASE, f"the tracker file {what}, and this alone is whole")
    return Restart(None, f"the tracker file {what}, and no checkpoint is whole")


def repair_tracker(root: Path, ckpt_format: str, tracker: Tracker) -> str:
    """Point a bad tracker to the newest whole checkpoint, and say what was done.

    Megatron ends with exit code 0 on a torn tracker, so the job would look like a success. Without
    a whole checkpoint the tracker is set aside: a run then starts as it did the first time.
    """
    complete = complete_iterations(root, ckpt_format)
    if complete:
        number = max(complete)
        replace_text(root / TRACKER, str(number))
        return f"set to iteration {number}, the newest whole checkpoint"
    if is_complete(root / RELEASE, ckpt_format):
        replace_text(root / TRACKER, RELEASE)
        return "set to the release checkpoint, the only whole one"
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = root / f"{TRACKER}.{tracker.state}-{stamp}"
    (root / TRACKER).rename(aside)
    return f"no whole checkpoint is left, so it was renamed to {aside.name}"


def point_bridge(root: Path, checkpoint: Path) -> bool:
    """Let Megatron-Bridge resume from a checkpoint too, and tell whether anything was to do.

    It reads a copy of the checkpoint's train state before the tracker file
    (megatron/bridge/training/checkpointing.py, 0.6).
    """
    state, copy = checkpoint / _BRIDGE_STATE, root / f"latest_{_BRIDGE_STATE}"
    if not state.exists() or (copy.exists() and copy.read_bytes() == state.read_bytes()):
        return False
    beside = root / f".{copy.name}"
    shutil.copyfile(state, beside)
    beside.replace(copy)
    return True


def replace_text(path: Path, text: str) -> None:
    """Replace a file so that a crash leaves the old or the new text, never a part."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(descriptor, "w") as file:
        # mkstemp lets nobody else read; people and other jobs do read a tracker.
        os.fchmod(descriptor, 0o644)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    Path(name).replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _directory_name(text: str) -> str | None:
    if text == RELEASE:
        return RELEASE
    try:
        number = int(text)
    except ValueError:
        return None
    return f"iter_{number:07d}" if number >= 0 else None


def _is_metadata(path: Path) -> bool:
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(content, dict) and "sharded_backend" in content


def _has_bytes(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _is_whole(path: Path) -> bool:
    """Look for the end of a zip file; very old files are plain pickles, which have no marker."""
    if not _has_bytes(path):
        return False
    with path.open("rb") as file:
        is_zip = file.read(2) == b"PK"
    return not is_zip or zipfile.is_zipfile(path)


def _all_ranks(ranks: list[Path]) -> bool:
    """Tell whether no combination of tensor, pipeline and expert rank is missing."""
    numbers = []
    for path in ranks:
        match = _RANK.fullmatch(path.name)
        if match:
            numbers.append([int(group or 0) for group in match.groups()])
    expected = 1
    for axis in zip(*numbers, strict=True):
        expected *= max(axis) + 1
    return len(numbers) == expected
