"""How a run starts from the newest whole checkpoint, and how a bad tracker is repaired."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from megatron_eks.programs.checkpoint import checkpoints, retention, whole
from megatron_eks.programs.program import Finding
from megatron_eks.programs.start import preconditions
from tests.programs import saved
from tests.programs.megatron_files import TRACKER, write_checkpoint

# Each example writes files, which takes its time on a busy machine.
SLOW_DISK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIST = "torch_dist"


@pytest.mark.parametrize("how", ["renamed", "a link"])
def test_a_checkpoint_under_another_name_is_no_new_run(tmp_path, how):
    """What was a checkpoint once is named, and nothing begins anew beside it."""
    root = tmp_path / "run"
    root.mkdir()
    if how == "renamed":
        write_checkpoint(root, "iter_100")
    else:
        (root / "iter_0000100").symlink_to(write_checkpoint(tmp_path / "elsewhere", 100))
    (root / "iter_times.log").write_text("no checkpoint")
    found, facts = resume(root)
    assert facts == {}
    (error,) = [each for each in found if each.level == "error"]
    assert "no name of a checkpoint" in error.found
    assert "iter_times" not in error.found
    write_checkpoint(root, 50)
    assert resume(root)[1] == {"start": str(root / "iter_0000050")}


def test_weights_without_a_tracker_are_no_new_run(tmp_path):
    """Megatron would begin with random ones."""
    write_checkpoint(tmp_path, "release")
    assert resume(tmp_path)[1] == {"start": str(tmp_path / "release")}
    assert (tmp_path / TRACKER).read_text() == "release"


def test_a_newer_damaged_one_never_passes_for_a_new_save(tmp_path):
    """The run may write over it, and would find it without a manifest then."""
    checkpoints.note_imported(tmp_path)
    for iteration in (100, 200):
        saved.seal(saved.megatron(tmp_path, iteration))
    first, second = ((tmp_path / "iter_0000200" / f"__{rank}_0.distcp") for rank in range(2))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    (tmp_path / TRACKER).write_text("200")
    found, facts = resume(tmp_path)
    assert facts == {"start": str(tmp_path / "iter_0000100")}
    (aside,) = tmp_path.glob("iter_0000200.damaged-*")
    assert f"it is now {aside.name}" in "".join(each.remedy for each in found)
    write_checkpoint(tmp_path, 300)
    (tmp_path / TRACKER).write_text("300")
    assert set(retention.seal_new(tmp_path, DIST, retention.Known())) == {"iter_0000300"}


def resume(root: Path) -> tuple[list[Finding], dict[str, object]]:
    """Let the start-up guard look at a run's own directory."""
    facts: dict[str, object] = {}
    found = list(preconditions.resume(root, DIST, facts, deadline=time.monotonic() + 60))
    return [*found, *preconditions.note_imported(root)], facts


def test_repair_takes_the_newest_whole_checkpoint(tmp_path):
    """A younger save that is not whole does not count."""
    for iteration in (500, 1000):
        write_checkpoint(tmp_path, iteration)
    write_checkpoint(tmp_path, 1500, whole=False)
    (tmp_path / TRACKER).write_text("15")
    found, facts = resume(tmp_path)
    assert "set to iter_0001000" in str(found[-1])
    assert facts == {"start": str(tmp_path / "iter_0001000")}
    assert (tmp_path / TRACKER).read_text() == "1000"
    assert checkpoints.read_tracker(tmp_path, DIST).state == "good"


@pytest.mark.parametrize("text", ["5", "torn", None])
def test_run_never_begins_anew_where_a_checkpoint_was(tmp_path, text):
    """What is damaged is named, nothing is touched, and the way to start over is told."""
    path = write_checkpoint(tmp_path, 500)
    os.truncate(path / "__0_0.distcp", 10)
    if text is not None:
        (tmp_path / TRACKER).write_text(text)
    found, facts = resume(tmp_path)
    assert facts == {}
    (error,) = [each for each in found if each.level == "error"]
    assert "iter_0000500: __0_0.distcp has 10 bytes" in error.found
    assert "to start over on purpose move them away" in error.remedy
    assert (tmp_path / TRACKER).exists() == (text is not None)


def test_first_save_that_did_not_end_is_no_checkpoint(tmp_path):
    """A run that was killed in it begins anew, and says so."""
    assert resume(tmp_path) == ([], {})
    write_checkpoint(tmp_path, 500, whole=False)
    found, facts = resume(tmp_path)
    assert [each.level for each in found] == ["warning"]
    assert "did not come to its end" in found[0].found
    assert facts == {}


def test_half_a_copy_of_others_is_not_passed_over(tmp_path):
    """What was there before the run's first start is no save of its own."""
    write_checkpoint(tmp_path, 500, whole=False)
    found, _ = resume(tmp_path)
    assert [each.level for each in found] == ["error"]


def test_without_a_tracker_the_newest_is_taken(tmp_path):
    """Megatron itself would begin anew without a word."""
    for iteration in (500, 1000):
        write_checkpoint(tmp_path, iteration)
    found, facts = resume(tmp_path)
    assert [each.level for each in found] == ["warning"]
    assert facts == {"start": str(tmp_path / "iter_0001000")}
    assert (tmp_path / TRACKER).read_text() == "1000"


def test_save_that_ended_just_before_its_tracker_counts(tmp_path):
    """The run was killed in between."""
    (tmp_path / "iter_0000500").parent.mkdir(exist_ok=True)
    write_checkpoint(tmp_path, 500)
    (tmp_path / TRACKER).write_text("500")
    time.sleep(0.02)
    write_checkpoint(tmp_path, 1000)
    assert resume(tmp_path)[1] == {"start": str(tmp_path / "iter_0001000")}


def test_people_may_go_back(tmp_path):
    """An older number that is written into the tracker afterwards is what they want."""
    for iteration in (500, 1000):
        saved.seal(write_checkpoint(tmp_path, iteration))
    time.sleep(0.02)
    (tmp_path / TRACKER).write_text("500")
    assert resume(tmp_path) == ([], {"start": str(tmp_path / "iter_0000500")})
    # The run will write over the newer one, whose manifest would then tell of damage.
    assert whole.by_sizes(tmp_path / "iter_0001000").kind == "unverified"


def test_all_bytes_are_read_before_a_resume(tmp_path):
    """A checkpoint of the right size with other content is passed over."""
    for iteration in (500, 1000):
        saved.seal(write_checkpoint(tmp_path, iteration))
    (tmp_path / TRACKER).write_text("1000")
    file = tmp_path / "iter_0001000" / "__0_0.distcp"
    file.write_bytes(bytes(file.stat().st_size))
    found, facts = resume(tmp_path)
    assert "__0_0.distcp has changed since it was saved" in found[0].found
    assert facts == {"start": str(tmp_path / "iter_0000500")}


@settings(SLOW_DISK)
@given(
    good=st.sets(st.integers(1, 9)),
    torn=st.sets(st.integers(10, 15)),
    text=st.text(max_size=4) | st.integers(0, 15).map(str),
)
def test_after_the_guard_megatron_can_go_on(tmp_path_factory, good, torn, text):
    """Whatever the tracker held, it names a checkpoint that can be loaded, or the run ends."""
    root = tmp_path_factory.mktemp("save")
    for iteration in good:
        write_checkpoint(root, iteration)
    for iteration in torn:
        write_checkpoint(root, iteration, whole=False)
    (root / TRACKER).write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    before = checkpoints.read_tracker(root, DIST)
    found, facts = resume(root)
    after = checkpoints.read_tracker(root, DIST)
    assert any(each.level == "error" for each in found) == (not good)
    if good:
        assert after.state == "good"
        assert facts == {"start": str(after.checkpoint)}
    if good and before.state not in {"absent", "good"}:
        assert after.text == str(max(good))
