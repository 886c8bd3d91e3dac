"""Which checkpoints are whole, what a tracker means, and how a bad one is repaired."""

import os
import re
from pathlib import Path

import checkpoints
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.programs.megatron_files import TRACKER, write_checkpoint, write_rank

# Each example writes files, which takes its time on a busy machine.
SLOW_DISK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIST = "torch_dist"


@pytest.mark.parametrize("missing", ["metadata.json", ".metadata"])
def test_torch_dist_needs_both_metadata_files(tmp_path, missing):
    """A save that was interrupted lacks metadata.json, its last file, or even .metadata."""
    whole = write_checkpoint(tmp_path, 500)
    assert checkpoints.is_complete(whole, DIST)
    (whole / missing).unlink()
    assert not checkpoints.is_complete(whole, DIST)


@pytest.mark.parametrize("content", ["", '{"sharded_backend": "torch', "[]", "{}"])
def test_torn_metadata_is_not_whole(tmp_path, content):
    """Megatron would end with a JSON error on it."""
    directory = write_checkpoint(tmp_path, 500)
    (directory / "metadata.json").write_text(content)
    assert not checkpoints.is_complete(directory, DIST)


@pytest.mark.parametrize("ckpt_format", ["torch_dcp", "fsdp_dtensor"])
def test_plain_formats_end_with_dot_metadata(tmp_path, ckpt_format):
    """These formats have no metadata.json, so what is torn for torch_dist is whole for them."""
    directory = write_checkpoint(tmp_path, 500, whole=False)
    assert checkpoints.is_complete(directory, ckpt_format)
    assert not checkpoints.is_complete(directory, DIST)


@pytest.mark.parametrize(
    ("ranks", "torn", "whole"),
    [
        (["mp_rank_00"], None, True),
        (["mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"], None, True),
        (["mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_001"], None, False),
        (["mp_rank_01"], None, False),
        (["mp_rank_00", "mp_rank_01"], "mp_rank_01", False),
    ],
)
def test_torch_format_needs_every_rank_to_its_end(tmp_path, ranks, torn, whole):
    """Nothing marks the end of such a save, so the ranks' files themselves are looked at."""
    directory = tmp_path / "iter_0000500"
    for rank in ranks:
        write_rank(directory, rank, torn=rank == torn)
    assert checkpoints.is_complete(directory, "torch") is whole


def test_rank_without_its_file_is_not_whole(tmp_path):
    """Each rank makes its folder before it writes."""
    write_rank(tmp_path, "mp_rank_00")
    (tmp_path / "mp_rank_01").mkdir()
    assert not checkpoints.is_complete(tmp_path, "torch")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("500", "good"),
        ("500\n", "good"),
        ("0000500", "good"),
        ("", "torn"),
        ("50 0", "torn"),
        ("-500", "torn"),
        ("relea", "torn"),
        ("\0\0\0", "torn"),
        ("700", "dangling"),
        ("5", "dangling"),
        ("release", "dangling"),
        (None, "absent"),
    ],
)
def test_tracker_is_read_as_megatron_reads_it(tmp_path, text, state):
    """An integer or the word release, and the checkpoint has to be there."""
    write_checkpoint(tmp_path, 500)
    if text is not None:
        (tmp_path / TRACKER).write_text(text)
    assert checkpoints.read_tracker(tmp_path, DIST).state == state


def repair(root: Path) -> str:
    """Repair the tracker of a directory."""
    return checkpoints.repair_tracker(root, DIST, checkpoints.read_tracker(root, DIST))


def test_repair_takes_the_newest_whole_checkpoint(tmp_path):
    """A younger save that is not whole does not count."""
    for iteration in (500, 1000):
        write_checkpoint(tmp_path, iteration)
    write_checkpoint(tmp_path, 1500, whole=False)
    (tmp_path / TRACKER).write_text("15")
    assert repair(tmp_path) == "set to iteration 1000, the newest whole checkpoint"
    assert (tmp_path / TRACKER).read_text() == "1000"
    assert checkpoints.read_tracker(tmp_path, DIST).state == "good"


def test_repair_falls_back_to_release_weights(tmp_path):
    """Weights that were put into the directory are better than none."""
    write_checkpoint(tmp_path, "release")
    (tmp_path / TRACKER).write_text("")
    repair(tmp_path)
    assert (tmp_path / TRACKER).read_text() == "release"


def test_repair_sets_a_hopeless_tracker_aside(tmp_path):
    """Without a whole checkpoint the file is kept under another name, not deleted."""
    write_checkpoint(tmp_path, 500, whole=False)
    (tmp_path / TRACKER).write_text("5")
    message = repair(tmp_path)
    (aside,) = tmp_path.glob(f"{TRACKER}.dangling-*")
    assert re.fullmatch(rf"{re.escape(TRACKER)}\.dangling-\d{{8}}T\d{{6}}Z", aside.name)
    assert aside.name in message
    assert aside.read_text() == "5"
    assert not (tmp_path / TRACKER).exists()
    assert (tmp_path / "iter_0000500").is_dir()


def test_replacement_is_atomic_and_readable(tmp_path, monkeypatch):
    """A crash before the rename leaves the old text; afterwards others can read the new one."""
    path = tmp_path / TRACKER
    path.write_text("500")

    def crash(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(os, "fsync", crash)
        with pytest.raises(OSError, match="No space left"):
            checkpoints.replace_text(path, "1000")
    assert path.read_text() == "500"
    checkpoints.replace_text(path, "1000")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("1000", 0o644)


@settings(SLOW_DISK)
@given(
    whole=st.sets(st.integers(1, 9)),
    torn=st.sets(st.integers(10, 15)),
    text=st.text(max_size=4) | st.integers(0, 15).map(str),
)
def test_after_a_repair_megatron_can_go_on(tmp_path_factory, whole, torn, text):
    """Whatever the tracker held, it ends absent or naming a whole checkpoint, the newest if bad."""
    root = tmp_path_factory.mktemp("save")
    for iteration in whole:
        write_checkpoint(root, iteration)
    for iteration in torn:
        write_checkpoint(root, iteration, whole=False)
    (root / TRACKER).write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    before = checkpoints.read_tracker(root, DIST)
    if not before.usable:
        repair(root)
    after = checkpoints.read_tracker(root, DIST)
    assert after.state == ("good" if whole else "absent")
    if not before.usable and whole:
        assert after.text == str(max(whole))
