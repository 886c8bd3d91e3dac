"""What a file system refuses, each refusal in its own words."""

import errno
import os
import time

import pytest

from megatron_eks.programs.checkpoint import disk
from megatron_eks.programs.start import preconditions


@pytest.mark.parametrize(
    ("number", "found", "remedy"),
    [
        (errno.EDQUOT, "quota used up", "lfs quota -u"),
        (errno.EROFS, "mounted read-only", "dmesg for errors"),
        (errno.EIO, "the file system fails", "AVAILABLE"),
        (errno.ENOTCONN, "the file system fails", "AVAILABLE"),
        (errno.ESTALE, "mounted anew", "start the pod again"),
        (errno.EACCES, "Permission denied", f"give user {os.getuid()} the right to write"),
        (errno.EFBIG, "may not become so large", "ulimit -f"),
    ],
)
def test_each_refusal_has_its_own_words(tmp_path, monkeypatch, number, found, remedy):
    """The remedy for one is none for another."""

    def refuse(*_words: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", refuse)
    (finding,) = preconditions.check_writable(tmp_path)
    assert found in finding.found
    assert remedy in finding.remedy
    assert [*tmp_path.iterdir()] == []


def test_systems_error_is_found_behind_others():
    """Torch wraps what the system says, by rank and by cause."""
    wrapped = RuntimeError("file write failed")
    wrapped.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    ranks = RuntimeError("ranks")
    ranks.failures = {3: (wrapped, None)}  # type: ignore[attr-defined]
    assert disk.system_error(ranks) is wrapped.__cause__
    assert disk.system_error(RuntimeError("a bug")) is None


def test_probes_of_others_are_left_alone(tmp_path):
    """Another node looks at the same moment; what a killed one left goes later."""
    young, old = tmp_path / ".write-check-young", tmp_path / ".write-check-old"
    young.touch()
    old.touch()
    os.utime(old, (time.time() - 3600,) * 2)
    assert [*disk.free_leftovers(tmp_path)] == [old]
    assert young.exists()
