"""What is said of checkpoints: their states, what a restart takes, what a prune removes."""

import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_eks.programs.checkpoint import checkpoints
from megatron_eks.programs.start import preconditions
from tests.programs import saved
from tests.programs.megatron_files import TRACKER, write_checkpoint
from tests.programs.s3_world import URI

SLOW_DISK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIST = "torch_dist"


@SLOW_DISK
@given(
    whole=st.sets(st.sampled_from([100, 200, 300]), max_size=3),
    torn=st.sets(st.sampled_from([150, 400]), max_size=2),
    tracker=st.sampled_from([None, "", "100", "150", "300", "400", "999", "release", "4\x00"]),
)
def test_what_a_restart_takes_is_what_the_guard_leaves_it(whole, torn, tracker):
    """Said before, and then done by the start-up guard."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for step in whole:
            write_checkpoint(root, step)
        for step in torn:
            write_checkpoint(root, step, whole=False)
        if tracker is not None:
            (root / TRACKER).write_text(tracker)
        told = checkpoints.choose(root, DIST)
        facts: dict[str, object] = {}
        found = list(preconditions.resume(root, DIST, facts, deadline=time.monotonic() + 60))
        assert facts.get("start") == (str(told.takes) if told.takes else None)
        assert any(each.level == "error" for each in found) == told.lost or not told.takes
        if told.takes:
            assert checkpoints.read_tracker(root, DIST).checkpoint == told.takes


def test_ls_without_s3_lists_a_directory(sync, tmp_path):
    """One that is not there is an error, an empty one is not."""
    saved.megatron(tmp_path / "near", 500)
    (saved.megatron(tmp_path / "near", 600) / "metadata.json").unlink()
    saved.seal(saved.megatron(tmp_path / "near", 400))
    done = sync("ls", tmp_path / "near")
    assert [(row["name"], row["state"]) for row in done.summary["ends"]] == [
        ("iter_0000400", "whole"),
        ("iter_0000500", "unverified"),
        ("iter_0000600", "unfinished"),
    ]
    assert done.summary["restart"]["takes"] == "iter_0000500"
    assert sync("ls", tmp_path / "none").code == 3


def test_ls_of_s3_needs_no_directory(sync, s3, tmp_path):
    """One unreadable manifest does not hide the others."""
    for step in (500, 600):
        saved.megatron(tmp_path / "near", step)
    sync("push", tmp_path / "near", URI, "--all")
    s3.put("iter_0000500/manifest.json", b"{torn")
    done = sync("ls", "-", URI)
    assert done.code == 0
    states = {row["name"]: (row["state"], row["why"]) for row in done.summary["ends"]}
    assert states["iter_0000500"][0] == "damaged"
    assert "cannot be read" in states["iter_0000500"][1]
    assert states["iter_0000600"] == ("whole", None)
    assert "restart" not in done.summary


def test_prune_of_both_ends_removes_what_only_names(sync, s3, tmp_path):
    """What is needed stays, even if it is named."""
    near = tmp_path / "near"
    for step in (300, 400, 500):
        saved.seal(saved.megatron(near, step))
    (near / TRACKER).write_text("500")
    sync("push", near, URI, "--all")
    words = ("prune", near, URI, "--keep-last", "1", "--local")
    dry = sync(*words, "--dry-run")
    assert [(row["name"], row["where"]) for row in dry.summary["goes"]] == [
        *(("iter_0000300", "local"), ("iter_0000400", "local")),
        *(("iter_0000300", "s3"), ("iter_0000400", "s3")),
    ]
    assert len(list(near.glob("iter_*"))) == 3
    done = sync(*words, "--only", "iter_0000300", "--only", "iter_0000500")
    assert done.summary["removed_locally"] == ["iter_0000300"]
    assert done.summary["removed"] == ["iter_0000300"]
    assert sorted(path.name for path in near.glob("iter_*")) == ["iter_0000400", "iter_0000500"]
    assert not [key for key in s3.names() if key.startswith("iter_0000300")]


def test_prune_names_what_a_save_left_that_did_not_end(sync, tmp_path):
    """It goes for another reason than age."""
    checkpoints.note_imported(tmp_path)
    (tmp_path / "iter_0000150").mkdir()
    time.sleep(0.01)
    for step in (100, 200):
        saved.seal(saved.megatron(tmp_path, step))
    (tmp_path / TRACKER).write_text("200")
    dry = sync("prune", tmp_path, "--keep-last", "2", "--local", "--dry-run")
    (row,) = dry.summary["goes"]
    assert (row["name"], row["why"]) == ("iter_0000150", "left by a save that did not end")


@pytest.mark.parametrize("words", [("prune", "here", "--keep-last", "1"), ("push", "here")])
def test_a_command_that_has_nowhere_to_act_is_refused(sync, words):
    """The command line is wrong."""
    assert sync(*words).code == 2
