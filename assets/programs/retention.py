"""Keeps the newest checkpoints of a run and removes older ones, beside the training process.

`train_megatron.py` starts it on rank 0. It ends with its parent, and no error of it reaches
the training.
"""

import argparse
import ctypes
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import checkpoints
from printable import guarded

_INTERVAL_SECONDS = 60.0
_DELETING = ".deleting-"
_PR_SET_PDEATHSIG = 1
# What a save leaves in its directory; anything else there was put by somebody.
_PARTS = ("metadata.json", ".metadata", "*.distcp", "common.pt", "mp_rank_*")


def removable(root: Path, keep_last: int, ckpt_format: str) -> list[Path]:
    """Return the checkpoints to remove, oldest first.

    Never the newest `keep_last` whole ones, never the one the tracker names, and nothing younger
    than the newest whole one, which may be a save in progress.
    """
    tracker = checkpoints.read_tracker(root, ckpt_format)
    complete = checkpoints.complete_iterations(root, ckpt_format)
    # Megatron rewrites the tracker in place, so for a moment it names nothing: wait for the next
    # round rather than guess.
    if tracker.state != "good" or not complete:
        return []
    newest = max(complete)
    kept = {*list(complete)[-keep_last:]}
    return [
        path
        for number, path in checkpoints.iterations(root).items()
        if number < newest
        and number not in kept
        and path != tracker.checkpoint
        and (number in complete or _is_remnant(path))
    ]


def prune(root: Path, keep_last: int, ckpt_format: str) -> list[str]:
    """Remove what is removable, and what an interrupted removal left; return the names."""
    removed = []
    for leftover in root.glob(f"{_DELETING}*"):
        shutil.rmtree(leftover)
    for path in removable(root, keep_last, ckpt_format):
        remove(path)
        removed.append(path.name)
    return removed


def remove(path: Path) -> None:
    """Remove a checkpoint: it is whole or gone, whenever this is interrupted."""
    going = path.with_name(_DELETING + path.name)
    path.rename(going)
    shutil.rmtree(going)


def end_with_parent(parent: int) -> None:
    """Ask the kernel for SIGTERM when the parent is gone; it may be gone already."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)


@guarded()
def main() -> None:
    """Prune once an interval for as long as the training process lives."""
    options = _parser().parse_args()
    end_with_parent(options.parent)
    said = ""
    while os.getppid() == options.parent:
        try:
            for name in prune(options.directory, options.keep_last, options.format):
                _say(f"removed {name}, older than the {options.keep_last} newest checkpoints")
            said = ""
        except OSError as problem:
            if str(problem) != said:
                said = str(problem)
                _say(f"could not remove old checkpoints: {said} - training goes on")
        time.sleep(options.interval)


def _say(message: str) -> None:
    sys.stderr.write(f"retention: {message}\n")
    sys.stderr.flush()


def _is_remnant(path: Path) -> bool:
    """Tell whether a directory is empty or holds parts of a save that never became whole."""
    names = any(True for _ in path.iterdir())
    return not names or any(True for part in _PARTS for _ in path.glob(part))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where Megatron saves")
    parser.add_argument("--keep-last", type=int, required=True, help="whole checkpoints to keep")
    parser.add_argument("--format", default=checkpoints.DEFAULT_FORMAT, help="as --ckpt-format")
    parser.add_argument("--parent", type=int, required=True, help="process to end with")
    parser.add_argument("--interval", type=float, default=_INTERVAL_SECONDS, help="seconds")
    return parser


if __name__ == "__main__":
    main()
