"""Writes the manifests of a run's saves and removes old ones, beside the training process.

`train_megatron` and `train_bridge` start it on rank 0; the other trainers call `prune` for
themselves. No error of it reaches the training.
"""

import argparse
import math
import shutil
from functools import partial
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints, manifest_format, manifests, whole
from megatron_eks.programs.checkpoint.checkpoints import Judge
from megatron_eks.programs.checkpoint.saved_tensors import RANK_FILE
from megatron_eks.programs.checkpoint.whole import State
from megatron_eks.programs.printable import guarded

_DELETING = ".deleting-"
# Beside a training, which needs the other cores for its data.
_THREADS = 4
# What a save leaves in its directory; anything else there was put by somebody.
_PARTS = (
    *("*.distcp", ".metadata", ".metadata.tmp", "common.pt"),
    *("mp_rank_*", RANK_FILE, "distrib_optim.pt"),
)


class Known:
    """Judgements by bytes, kept as long as no file of the checkpoint is touched.

    A file's change time is set by the kernel at every write, truncation and renaming.
    """

    def __init__(self, threads: int = _THREADS) -> None:
        self._threads = threads
        self._states: dict[Path, tuple[object, State]] = {}

    def judge(self, path: Path, ckpt_format: str) -> State:
        """Judge a checkpoint by every byte, once."""
        try:
            mark = _mark(path)
        except OSError:
            return whole.by_sizes(path, ckpt_format)
        known = self._states.get(path)
        if known is None or known[0] != mark:
            known = mark, whole.by_bytes(path, ckpt_format, threads=self._threads)
            self._states[path] = known
        return known[1]

    def is_damaged(self, path: Path) -> bool:
        """Tell whether a checkpoint was found to be damaged, and has not been touched since."""
        known = self._states.get(path)
        return known is not None and not known[1].loadable and known[0] == _mark(path)

    def note(self, path: Path, state: State) -> None:
        """Keep the judgement of who has just read a checkpoint."""
        self._states[path] = _mark(path), state


def removable(root: Path, keep_last: int, ckpt_format: str, judge: Judge) -> list[Path]:
    """Return the checkpoints to remove, oldest first.

    Never the newest `keep_last` whole ones or any younger than the oldest of these, never the one
    the tracker names, and without a manifest only what a save of this run left that did not end.
    Nothing at all unless `judge` finds those that stay whole.
    """
    tracker = checkpoints.read_tracker(root, ckpt_format)
    # Megatron rewrites the tracker in place, so for a moment it names nothing: wait for the next
    # round rather than guess.
    if tracker.state != "good" or tracker.checkpoint is None:
        return []
    # First by sizes: where nothing could go, nothing has to be read.
    could = _older(root, keep_last, ckpt_format, whole.by_sizes) - {tracker.checkpoint}
    if not could or not judge(tracker.checkpoint, ckpt_format).loadable:
        return []
    return sorted(could & _older(root, keep_last, ckpt_format, judge))


def _older(root: Path, keep_last: int, ckpt_format: str, judge: Judge) -> set[Path]:
    """Return what is older than the newest `keep_last` whole ones, and what failed saves left."""
    every, others = checkpoints.iterations(root), checkpoints.imported(root)
    sealed = [step for step, path in every.items() if _has_manifest(path)]
    kept: list[int] = []
    for step in reversed(sealed):
        if judge(every[step], ckpt_format).kind == "whole":
            kept.append(step)
        if len(kept) == keep_last:
            break
    if not kept:
        return set()
    old = {every[step] for step in sealed if len(kept) == keep_last and step < kept[-1]}
    for step, path in every.items():
        is_own = others is not None and path.name not in others and step < kept[0]
        # What somebody is copying to here just now is younger than the last save.
        if is_own and _is_remnant(path) and _touched(path) < _last_change(every[kept[0]]):
            old.add(path)
    return old


def prune(root: Path, keep_last: int, ckpt_format: str, known: Known) -> list[str]:
    """Remove what is removable, and what an interrupted removal left; return the names."""
    return remove_all(root, removable(root, keep_last, ckpt_format, known.judge))


def remove_all(root: Path, paths: list[Path]) -> list[str]:
    """Remove checkpoints, and what an interrupted removal left; return the names."""
    for leftover in root.glob(f"{_DELETING}*"):
        shutil.rmtree(leftover)
    for path in paths:
        remove(path)
    return [path.name for path in paths]


def remove(path: Path) -> None:
    """Remove a checkpoint: it is whole or gone, whenever this is interrupted."""
    shutil.rmtree(_take_away(path))


def replace(path: Path, new: Path) -> None:
    """Put a checkpoint into its place, where a run that went back may have left another one."""
    going = _take_away(path) if path.exists() else None
    new.rename(path)
    if going is not None:
        shutil.rmtree(going, ignore_errors=True)


def _take_away(path: Path) -> Path:
    """Rename a checkpoint to what nothing takes for one, and return it."""
    going = path.with_name(_DELETING + path.name)
    shutil.rmtree(going, ignore_errors=True)
    return path.rename(going)


def seal_new(root: Path, ckpt_format: str, known: Known) -> dict[str, State]:
    """Write the manifests of this run's saves that are final and have none; return what was read.

    Raises OSError.
    """
    tracker = checkpoints.read_tracker(root, ckpt_format)
    others = checkpoints.imported(root)
    if tracker.state != "good" or tracker.checkpoint is None or others is None:
        return {}
    # A save is final when the tracker names it, or a later one.
    newest = tracker.step or 0
    looked = {}
    # A run saves in order: what came after a later save was put there by somebody.
    later = math.inf
    for number, path in reversed(checkpoints.iterations(root).items()):
        if number > newest:
            continue
        changed = _last_change(path)
        is_own, later = changed <= later, min(later, changed)
        is_new = path.name not in others and not _has_manifest(path)
        if not is_new or known.is_damaged(path):
            continue
        if is_own:
            looked[path.name] = whole.seal(path, ckpt_format, threads=_THREADS)
            known.note(path, looked[path.name])
        elif not (state := known.judge(path, ckpt_format)).loadable:
            looked[path.name] = state
    return looked


@guarded()
def main() -> None:
    """Look once an interval for as long as the training process lives."""
    parser = program.parser(__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where Megatron saves")
    parser.add_argument("--keep-last", type=int, required=True, help="whole checkpoints to keep")
    parser.add_argument("--format", default=whole.DEFAULT_FORMAT, help="as --ckpt-format")
    program.add_lifetime(parser)
    options = parser.parse_args()
    program.look_again(options, partial(_look, options, Known()))


def _look(options: argparse.Namespace, known: Known) -> bool:
    root, keep_last, ckpt_format = options.directory, options.keep_last, options.format
    try:
        for name, state in seal_new(root, ckpt_format, known).items():
            program.say(f"retention: {name} is {state}")
        for name in prune(root, keep_last, ckpt_format, known):
            old = f"older than the {keep_last} newest checkpoints"
            program.say(f"retention: removed {name}, {old}")
    except OSError as problem:
        program.say(f"retention: cannot look after checkpoints: {problem} - training goes on")
    return True


def _mark(path: Path) -> object:
    """Return what changes when a file of a checkpoint is touched."""
    found = []
    for each in sorted([path, *path.rglob("*")]):
        status = each.lstat()
        found.append((str(each), status.st_ino, status.st_size, status.st_ctime_ns))
    return found


def _last_change(path: Path) -> int:
    """Return when the kernel last noted a change of a file, in nanoseconds; no copy keeps it."""
    return max((each.stat().st_ctime_ns for each in manifests.files_of(path)), default=0)


def _touched(path: Path) -> int:
    return max(each.lstat().st_ctime_ns for each in [path, *path.rglob("*")])


def _is_remnant(path: Path) -> bool:
    """Tell whether a directory is empty or holds parts of a save alone, which nobody can load."""
    # Which format it has is not known for sure, and this one asks for the least.
    if _has_manifest(path) or whole.by_sizes(path, "torch_dcp").kind != "unfinished":
        return False
    return all(any(map(each.match, _PARTS)) for each in path.rglob("*"))


def _has_manifest(path: Path) -> bool:
    return (path / manifest_format.MANIFEST).exists()


if __name__ == "__main__":
    main()
