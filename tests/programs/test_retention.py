"""Old checkpoints go, and nothing that a run could need ever does."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_eks.programs.checkpoint import (
    checkpoints,
    manifest_format,
    manifests,
    retention,
    whole,
)
from tests.programs import saved
from tests.programs.megatron_files import TRACKER, write_checkpoint, write_rank

# Each example writes files, which takes its time on a busy machine.
SLOW_DISK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIST = "torch_dist"


def names(root: Path) -> list[str]:
    """Return what is left of a directory, without its tracker."""
    own = {TRACKER, ".imported.json"}
    return sorted(path.name for path in root.iterdir() if path.name not in own)


def prune(root: Path, keep_last: int) -> list[str]:
    """Prune as a training that has just begun."""
    return retention.prune(root, keep_last, DIST, retention.Known())


def leave(root: Path, iteration: int) -> Path:
    """Leave the rest of a save that was cut short, before any save that comes later."""
    rest = write_checkpoint(root, iteration, whole=False)
    (rest / ".metadata").unlink()
    return rest


def save(root: Path, *iterations: int, tracker: int | str | None = None) -> None:
    """Write whole checkpoints of this run, and the tracker of the last or of a given one."""
    # The kernel's clock for files is a coarse one.
    time.sleep(0.01)
    root.mkdir(parents=True, exist_ok=True)
    checkpoints.note_imported(root)
    for iteration in iterations:
        saved.seal(write_checkpoint(root, iteration))
    (root / TRACKER).write_text(str(iterations[-1] if tracker is None else tracker))


def test_newest_are_kept(tmp_path):
    """With three of five to keep the two oldest go."""
    save(tmp_path, 100, 200, 300, 400, 500)
    assert prune(tmp_path, 3) == ["iter_0000100", "iter_0000200"]
    assert names(tmp_path) == ["iter_0000300", "iter_0000400", "iter_0000500"]


def test_trackers_checkpoint_is_kept(tmp_path):
    """A resume reads what the tracker names, however old it is."""
    save(tmp_path, 100, 200, 300, 400, tracker=100)
    prune(tmp_path, 1)
    assert names(tmp_path) == ["iter_0000100", "iter_0000400"]


@pytest.mark.parametrize("tracker", ["", "4", "999", "release"])
def test_nothing_goes_while_the_tracker_is_not_good(tmp_path, tracker):
    """Megatron rewrites the tracker in place, so it may be caught half written."""
    save(tmp_path, 100, 200, 300, tracker=tracker)
    assert prune(tmp_path, 1) == []


def test_remnants_of_failed_saves_go_once_they_are_old(tmp_path):
    """A save that never became whole goes when a younger one is whole, not before."""
    checkpoints.note_imported(tmp_path)
    leave(tmp_path, 100)
    leave(tmp_path, 400)
    for iteration in (150, 500):
        (tmp_path / f"iter_{iteration:07d}").mkdir()
    write_rank(tmp_path / "iter_0000160", "mp_rank_00", torn=True)
    save(tmp_path, 200, 300)
    assert prune(tmp_path, 2) == ["iter_0000100", "iter_0000150", "iter_0000160"]
    assert names(tmp_path) == ["iter_0000200", "iter_0000300", "iter_0000400", "iter_0000500"]


def test_what_is_being_copied_to_here_stays(tmp_path):
    """It looks like the rest of a save, but is younger than the last; its times are set back."""
    save(tmp_path, 200, 300)
    time.sleep(0.01)
    rest = leave(tmp_path, 100)
    for path in [*rest.iterdir(), rest]:
        os.utime(path, (1e9, 1e9))
    assert prune(tmp_path, 1) == ["iter_0000200"]
    assert names(tmp_path) == ["iter_0000100", "iter_0000300"]


@pytest.mark.parametrize("more", ["notes.txt", ".metadata", "sealed", "imported"])
def test_what_may_be_of_use_to_somebody_is_no_remnant(tmp_path, more):
    """What others put there, or a format that has no last file could load."""
    if more == "imported":
        leave(tmp_path, 100)
    checkpoints.note_imported(tmp_path)
    rest = tmp_path / "iter_0000100" if more == "imported" else leave(tmp_path, 100)
    if more == "sealed":
        manifests.write(rest, manifests.of_directory(rest, threads=1))
    elif more == ".metadata":
        saved.dot_metadata(rest)
    elif more != "imported":
        (rest / more).touch()
    save(tmp_path, 200, 300)
    assert prune(tmp_path, 3) == []


def test_nothing_goes_of_a_save_that_is_younger_than_what_is_whole(tmp_path):
    """A run that was set back saves a lower step again, and is in the middle of it."""
    save(tmp_path, 200, 300, tracker=200)
    time.sleep(0.01)
    leave(tmp_path, 250)
    assert prune(tmp_path, 3) == []


def test_checkpoints_without_a_manifest_stay(tmp_path):
    """They were saved by others or by an earlier version, and are whole or not: nobody knows."""
    write_checkpoint(tmp_path, 100)
    write_checkpoint(tmp_path, 150, whole=False)
    save(tmp_path, 200, 300)
    write_checkpoint(tmp_path, 250)
    assert prune(tmp_path, 1) == ["iter_0000200"]
    assert names(tmp_path) == ["iter_0000100", "iter_0000150", "iter_0000250", "iter_0000300"]


@pytest.mark.parametrize("damage", ["cut", "other bytes"])
def test_damaged_one_takes_no_place_of_a_whole_one(tmp_path, damage):
    """The newest two that are whole stay, and what is damaged is no reason to remove them."""
    save(tmp_path, 100, 200, 300, 400, tracker=300)
    file = tmp_path / "iter_0000400" / "__0_0.distcp"
    file.write_bytes(b"" if damage == "cut" else bytes(file.stat().st_size))
    assert prune(tmp_path, 2) == ["iter_0000100"]
    assert names(tmp_path) == ["iter_0000200", "iter_0000300", "iter_0000400"]


@pytest.mark.parametrize("damage", ["cut", "other bytes"])
def test_nothing_goes_if_what_a_restart_takes_is_damaged(tmp_path, damage):
    """One of the older ones may be needed."""
    save(tmp_path, 100, 200, 300)
    file = tmp_path / "iter_0000300" / "__0_0.distcp"
    file.write_bytes(b"" if damage == "cut" else bytes(file.stat().st_size))
    assert prune(tmp_path, 1) == []


def test_each_checkpoint_is_read_once(tmp_path, monkeypatch):
    """As long as none of its files is touched."""
    read: list[str] = []
    differing = manifests.differing

    def noted(manifest, *rest, **words):
        read.append(manifest.name)
        return differing(manifest, *rest, **words)

    monkeypatch.setattr(manifests, "differing", noted)
    known = retention.Known()
    save(tmp_path, 100, 200)
    retention.prune(tmp_path, 1, DIST, known)
    save(tmp_path, 300)
    retention.prune(tmp_path, 1, DIST, known)
    assert read == ["iter_0000200", "iter_0000300"]
    (tmp_path / "iter_0000300" / "__0_0.distcp").touch()
    save(tmp_path, 400, tracker=300)
    retention.prune(tmp_path, 1, DIST, known)
    assert read[2:] == ["iter_0000300", "iter_0000400"] or read[2:] == []


def test_saves_of_the_run_get_their_manifests(tmp_path):
    """Once the tracker names them or a later one, but not what was there at the first start."""
    write_checkpoint(tmp_path, 50)
    save(tmp_path, 100)
    for step in (200, 300, 400):
        write_checkpoint(tmp_path, step)
    (tmp_path / "iter_0000200" / "__0_0.distcp").write_bytes(bytes(321))
    (tmp_path / TRACKER).write_text("300")
    known = retention.Known()
    looked = retention.seal_new(tmp_path, DIST, known)
    assert {name: state.kind for name, state in looked.items()} == {
        "iter_0000300": "whole",
        "iter_0000200": "damaged",
    }
    assert retention.seal_new(tmp_path, DIST, known) == {}
    assert whole.by_bytes(tmp_path / "iter_0000300").kind == "whole"
    assert whole.by_sizes(tmp_path / "iter_0000400").kind == "unverified"
    assert whole.by_sizes(tmp_path / "iter_0000050").kind == "unverified"


def test_what_is_copied_to_a_run_later_stays(tmp_path):
    """It is older than a save by its number, and younger by its files: no save of the run."""
    save(tmp_path, 100, 200)
    (tmp_path / "iter_0000200" / manifest_format.MANIFEST).unlink()
    time.sleep(0.02)
    other = write_checkpoint(tmp_path, 50)
    for path in other.iterdir():
        os.utime(path, (1e9, 1e9))
    looked = retention.seal_new(tmp_path, DIST, retention.Known())
    assert {name: state.kind for name, state in looked.items()} == {"iter_0000200": "whole"}
    assert prune(tmp_path, 1) == ["iter_0000100"]
    assert whole.by_sizes(other).kind == "unverified"


def test_a_torn_note_of_what_was_there_is_written_anew(tmp_path):
    """Without one no save would ever get its manifest, and none would go."""
    write_checkpoint(tmp_path, 100)
    (tmp_path / ".imported.json").write_text('["iter_00')
    assert checkpoints.imported(tmp_path) is None
    checkpoints.note_imported(tmp_path)
    assert checkpoints.imported(tmp_path) == frozenset({"iter_0000100"})


def test_what_is_not_megatrons_stays(tmp_path):
    """Links, other names and directories with something else in them belong to somebody."""
    save(tmp_path, 400, 500)
    elsewhere = write_checkpoint(tmp_path / "elsewhere", 1)
    (tmp_path / "iter_0000001").symlink_to(elsewhere)
    (tmp_path / "iter_0000002").mkdir()
    (tmp_path / "iter_0000002" / "notes.txt").write_text("keep")
    (tmp_path / "iter_100-copy").mkdir()
    (tmp_path / "release").mkdir()
    before = names(tmp_path)
    prune(tmp_path, 1)
    assert names(tmp_path) == [name for name in before if name != "iter_0000400"]
    assert whole.by_sizes(elsewhere).loadable


def test_interrupted_removal_is_finished(tmp_path):
    """A checkpoint that was being removed is never taken for a whole one again."""
    save(tmp_path, 400, 500)
    write_checkpoint(tmp_path, ".deleting-iter_0000300")
    prune(tmp_path, 2)
    assert names(tmp_path) == ["iter_0000400", "iter_0000500"]


@settings(SLOW_DISK)
@given(
    good=st.sets(st.integers(1, 20), min_size=1),
    torn=st.sets(st.integers(1, 25)),
    keep_last=st.integers(1, 4),
    choice=st.integers(0, 30),
)
def test_retention_never_takes_what_counts(tmp_path_factory, good, torn, keep_last, choice):
    """The newest N, the tracker's own and anything younger than the newest whole one stay."""
    root = tmp_path_factory.mktemp("save")
    torn -= good
    checkpoints.note_imported(root)
    for iteration in torn:
        leave(root, iteration)
    save(root, *good, tracker=choice)
    prune(root, keep_last)
    left = set(checkpoints.iterations(root))
    assert set(sorted(good)[-keep_last:]) <= left
    assert {iteration for iteration in torn if iteration > max(good)} <= left
    if choice in good:
        assert left & good == set(sorted(good)[-keep_last:]) | {choice}
        assert not {iteration for iteration in torn if iteration < max(good)} & left
    else:
        assert left == good | torn
