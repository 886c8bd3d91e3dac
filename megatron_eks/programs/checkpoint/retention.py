"""Writes the manifests of a run's saves and removes old ones, beside the training process.

`train_megatron` and `train_bridge` start it on rank 0; the other trainers call `prune` for
themselves. No error of it reaches the training.
"""

import argparse
import math
import shutil
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints, manifest_format, manifests, whole
from megatron_eks.programs.checkpoint.whole import State
from megatron_eks.programs.printable import guarded

DELETING = ".deleting-"
# Beside a training, which needs the other cores for its data.
_THREADS = 4
# What a save leaves in its directory; anything else there was put by somebody.
_PARTS = ("metadata.json", ".metadata", "*.distcp", "common.pt", "mp_rank_*")


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


def removable(root: Path, keep_last: int, ckpt_format: str, judge: checkpoints.Judge) -> list[Path]:
    """Return the checkpoints to remove, oldest first.

    Never the newest `keep_last` whole ones or any younger than the oldest of these, never the one
    the tracker names, and without a manifest only the rest of a save of this run that did not end.
    Nothing at all unless `judge` finds those that stay whole.
    """
    tracker = checkpoints.read_tracker(root, ckpt_format)
    # Megatron rewrites the tracker in place, so for a moment it names nothing: wait for the next
    # round rather than guess.
    if tracker.state != "good" or tracker.checkpoint is None:
        return []
    every = checkpoints.iterations(root)
    # First by sizes: where nothing could go, nothing has to be read.
    could = _older(root, every, keep_last, ckpt_format, whole.by_sizes)
    could.discard(tracker.checkpoint)
    if not could or not judge(tracker.checkpoint, ckpt_format).loadable:
        return []
    could &= _older(root, every, keep_last, ckpt_format, judge)
    return sorted(could)


def _older(
    root: Path, every: dict[int, Path], keep_last: int, ckpt_format: str, judge: checkpoints.Judge
) -> set[Path]:
    """Return what is older than the newest `keep_last` whole ones, and what failed saves left."""
    kept: list[int] = []
    for number, path in reversed(every.items()):
        # Without a manifest none is whole, so it need not be read.
        may = len(kept) < keep_last and _has_manifest(path)
        if may and judge(path, ckpt_format).kind == "whole":
            kept.append(number)
    if not kept:
        return set()
    others = checkpoints.imported(root)
    found = set()
    for number, path in every.items():
        if _has_manifest(path):
            is_old = len(kept) == keep_last and number < min(kept)
        else:
            is_old = (
                others is not None
                and path.name not in others
                and number < max(kept)
                and _is_remnant(path, ckpt_format)
                # What somebody is copying to here just now is younger than the last save.
                and _newest_change(path) < _newest_change(every[max(kept)])
            )
        if is_old:
            found.add(path)
    return found


def prune(root: Path, keep_last: int, ckpt_format: str, known: Known) -> list[str]:
    """Remove what is removable, and what an interrupted removal left; return the names."""
    removed = []
    for leftover in root.glob(f"{DELETING}*"):
        shutil.rmtree(leftover)
    for path in removable(root, keep_last, ckpt_format, known.judge):
        remove(path)
        removed.append(path.name)
    return removed


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
    going = path.with_name(DELETING + path.name)
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
    newest = manifest_format.iteration_of(tracker.checkpoint.name) or 0
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
    known, said = Known(), ""

    def look() -> bool:
        nonlocal said
        try:
            _look(options, known)
            said = ""
        except OSError as problem:
            if str(problem) != said:
                said = str(problem)
                _say(f"cannot look after checkpoints: {said} - training goes on")
        return True

    program.look_again(options, look)


def _look(options: argparse.Namespace, known: Known) -> None:
    for name, state in seal_new(options.directory, options.format, known).items():
        _say(f"{name} is {state}")
    for name in prune(options.directory, options.keep_last, options.format, known):
        _say(f"removed {name}, older than the {options.keep_last} newest checkpoints")


def _say(message: str) -> None:
    program.say(f"retention: {message}")


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


def _newest_change(path: Path) -> float:
    return max(each.lstat().st_mtime for each in [path, *path.rglob("*")])


def _has_manifest(path: Path) -> bool:
    return (path / manifest_format.MANIFEST).exists()


def _is_remnant(path: Path, ckpt_format: str) -> bool:
    """Tell whether a directory is empty or holds parts of a save that never became whole."""
    if whole.by_sizes(path, ckpt_format).kind != "unfinished":
        return False
    names = any(True for _ in path.iterdir())
    return not names or any(True for part in _PARTS for _ in path.glob(part))


if __name__ == "__main__":
    main()
