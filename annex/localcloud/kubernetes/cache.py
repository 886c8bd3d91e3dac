"""Folders of built programs: held while in use, and removed when nobody used them for a month."""

import fcntl
import os
import shutil
import time
from pathlib import Path

_UNUSED_SECONDS = 30 * 24 * 3600

# Its time says when a folder was used last, and a lock on it that somebody still does.
_MARK = ".used"

# Open for as long as this process lives, so that the kernel gives the locks back, however it ends.
_held: dict[Path, int] = {}


def hold(folder: Path) -> None:
    """Make a folder if need be, and keep it from `prune` until this process ends."""
    while folder not in _held:
        folder.mkdir(parents=True, exist_ok=True)
        mark = os.open(folder / _MARK, os.O_CREAT | os.O_RDWR)
        fcntl.flock(mark, fcntl.LOCK_SH)
        # Removed while this process waited for the lock, it would protect nothing.
        if os.fstat(mark).st_nlink:
            _held[folder] = mark
        else:
            os.close(mark)
    os.utime(_held[folder])


def prune(parent: Path) -> None:
    """Remove the folders that nobody holds, or has held for a month."""
    for other in filter(Path.is_dir, parent.iterdir()):
        mark = other / _MARK
        # A folder that an older release made has no mark, but a time of its own.
        last = (mark if mark.exists() else other).stat().st_mtime
        if time.time() - last > _UNUSED_SECONDS:
            _remove(other, mark)


def _remove(folder: Path, mark: Path) -> None:
    with mark.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(folder)
