"""Folders of built programs are kept while somebody uses them, and for a month after."""

import os
import subprocess
import sys
import time
from pathlib import Path

from megatron_eks.localcloud.kubernetes import cache
from megatron_eks.project import ROOT

_DAY = 24 * 3600

_HOLDER = """\
import sys, time
from pathlib import Path
from megatron_eks.localcloud.kubernetes import cache
cache.hold(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(3600)
"""


def folder(parent: Path, name: str, days: float, *, marked: bool = True) -> Path:
    """Make a folder with a program, used last so many days ago."""
    made = parent / name
    made.mkdir()
    (made / "etcd").touch()
    mark = made / ".used" if marked else made
    mark.touch()
    age(mark, days)
    return made


def age(file: Path, days: float) -> None:
    """Pretend that a file is so old."""
    then = time.time() - days * _DAY
    os.utime(file, (then, then))


def test_what_nobody_used_for_a_month_goes(tmp_path):
    """Half a gigabyte for each version that was ever built would otherwise stay for ever."""
    own = tmp_path / "own"
    cache.hold(own)
    age(own / ".used", days=90)
    old, recent = folder(tmp_path, "old", days=31), folder(tmp_path, "recent", days=29)
    unmarked = folder(tmp_path, "unmarked", days=31, marked=False)
    (tmp_path / "note.txt").touch()
    cache.prune(tmp_path)
    assert own.exists()
    assert recent.exists()
    assert not old.exists()
    assert not unmarked.exists()
    assert (tmp_path / "note.txt").exists()


def test_what_a_process_holds_stays_until_that_ends(tmp_path):
    """A cluster may run for longer than a month, and start one of its programs again."""
    held = tmp_path / "held"
    command = [sys.executable, "-c", _HOLDER, str(held)]
    with subprocess.Popen(  # noqa: S603 -- a script of this file
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        age(held / ".used", days=31)
        cache.prune(tmp_path)
        assert held.exists()
        holder.kill()
    cache.prune(tmp_path)
    assert not held.exists()


def test_each_use_counts_from_then_on(tmp_path):
    """Also a second one by the same process."""
    used = tmp_path / "used"
    cache.hold(used)
    age(used / ".used", days=31)
    cache.hold(used)
    assert time.time() - (used / ".used").stat().st_mtime < _DAY
