"""Which checkpoints are whole, what a tracker means, and how a bad one is repaired."""

import os
import pickle
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
from megatron_eks.programs.program import Finding
from megatron_eks.programs.start import preconditions
from tests.programs import saved
from tests.programs.megatron_files import TRACKER, write_checkpoint, write_rank

# Each example writes files, which takes its time on a busy machine.
SLOW_DISK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIST = "torch_dist"


class Hostile:
    """Runs a command when it is read back."""

    def __reduce__(self):
        """Name the command."""
        return os.system, ("touch /tmp/it-ran",)


RUNS = pickle.dumps(Hostile())


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda path: (path / "metadata.json").unlink(), "unfinished"),
        (lambda path: (path / "metadata.json").write_text(""), "damaged"),
        (lambda path: (path / "metadata.json").write_text('{"sharded_backend": "to'), "damaged"),
        (lambda path: (path / "metadata.json").write_text("[" * 100_000), "damaged"),
        (lambda path: (path / "metadata.json").write_text("[]"), "damaged"),
        (lambda path: (path / "metadata.json").write_text("{}"), "damaged"),
        (lambda path: (path / ".metadata").unlink(), "damaged"),
        (lambda path: (path / ".metadata").write_bytes(b""), "damaged"),
        (lambda path: (path / ".metadata").write_bytes(b"pickle"), "damaged"),
        (lambda path: (path / ".metadata").write_bytes(RUNS), "damaged"),
        (lambda path: (path / "__0_0.distcp").unlink(), "damaged"),
        (lambda path: os.truncate(path / "__0_0.distcp", 10), "damaged"),
    ],
)
def test_sizes_tell_without_a_manifest(tmp_path, damage, kind):
    """What torch and Megatron write shows most damages of a save that has no manifest yet."""
    path = write_checkpoint(tmp_path, 500)
    assert whole.by_sizes(path).kind == "unverified"
    damage(path)
    assert whole.by_sizes(path).kind == kind
    assert whole.by_bytes(path).kind == kind


def test_pickle_that_would_run_something_runs_nothing(tmp_path):
    """The file names what it would call."""
    path = write_checkpoint(tmp_path, 500)
    (path / ".metadata").write_bytes(RUNS)
    assert "it names posix.system" in whole.by_sizes(path).why
    manifests.write(path, manifests.of_directory(path, threads=1))
    assert "it names posix.system" in whole.by_bytes(path).why


@pytest.mark.parametrize("ckpt_format", ["torch_dcp", "fsdp_dtensor"])
def test_plain_formats_end_with_dot_metadata(tmp_path, ckpt_format):
    """These formats have no metadata.json, so what is torn for torch_dist is whole for them."""
    directory = write_checkpoint(tmp_path, 500, whole=False)
    assert whole.by_sizes(directory, ckpt_format).loadable
    assert not whole.by_sizes(directory, DIST).loadable


@pytest.mark.parametrize(
    ("ranks", "torn", "good"),
    [
        (["mp_rank_00"], None, True),
        (["mp_rank_00", "mp_rank_01"], "mp_rank_01", False),
    ],
)
def test_torch_format_needs_every_rank_to_its_end(tmp_path, ranks, torn, good):
    """Nothing marks the end of such a save, so the ranks' files themselves are looked at."""
    directory = tmp_path / "iter_0000500"
    for rank in ranks:
        write_rank(directory, rank, torn=rank == torn)
    assert whole.by_sizes(directory, "torch").loadable is good


def test_rank_that_lacks_a_file_of_the_others_is_not_whole(tmp_path):
    """Of the distributed optimizer's, for example."""
    for rank in ("mp_rank_00", "mp_rank_01"):
        write_rank(tmp_path, rank)
    (tmp_path / "mp_rank_00" / "distrib_optim.pt").write_bytes(b"PK")
    state = whole.by_sizes(tmp_path, "torch")
    assert state.why == "mp_rank_01/distrib_optim.pt is missing"


SIZES = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1}


@pytest.mark.parametrize("more", [{}, {"expert_model_parallel_size": 2}])
def test_ranks_that_megatrons_arguments_name_are_missed(tmp_path, more):
    """A copy or a save that was cut short between two ranks has whole files alone."""
    path = tmp_path / "iter_0000100"
    write_rank(path, "mp_rank_00", step=100, sizes=SIZES | more)
    state = whole.by_sizes(path, "torch")
    assert (state.kind, state.why) == ("unfinished", "the directory of a rank is missing")
    for number in range(1, 4 if more else 2):
        assert not whole.by_sizes(path, "torch").loadable
        write_rank(path, f"mp_rank_{number:02d}", step=100, sizes=SIZES | more)
    assert whole.by_bytes(path, "torch").kind == "unverified"


def test_experts_that_are_split_otherwise_are_whole(tmp_path):
    """Not every pair of tensor and expert rank has a file of its own then."""
    path = tmp_path / "iter_0000100"
    sizes = {**SIZES, "expert_model_parallel_size": 4, "expert_tensor_parallel_size": 1}
    for number in range(4):
        write_rank(path, f"mp_rank_{number % 2:02d}_{number:03d}", step=100, sizes=sizes)
    assert whole.by_sizes(path, "torch").loadable


def test_rank_of_another_iteration_is_damage(tmp_path):
    """Each rank notes its own, whatever other files lie beside."""
    path = tmp_path / "iter_0000100"
    for number, step in enumerate((100, 100, 200)):
        write_rank(path, f"mp_rank_{number:02d}", step=step)
        (path / f"mp_rank_{number:02d}" / "distrib_optim.pt").write_bytes(saved.torch_file(b"x"))
    assert whole.by_bytes(path, "torch").why == "it holds iteration 200"


def test_a_save_that_was_written_over_in_part_is_not_taken(tmp_path):
    """After people went back: its last file is of the run before."""
    for iteration in (100, 200):
        write_checkpoint(tmp_path, iteration)
    (tmp_path / TRACKER).write_text("100")
    long_ago = (tmp_path / TRACKER).stat().st_mtime - 100
    for path in (tmp_path / "iter_0000200").iterdir():
        os.utime(path, (long_ago, long_ago))
    file = tmp_path / "iter_0000200" / "__0_0.distcp"
    file.write_bytes(saved.torch_file(b"y" * 100))
    os.utime(file, (long_ago + 200, long_ago + 200))
    assert checkpoints.choose(tmp_path, DIST).takes == tmp_path / "iter_0000100"


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


@pytest.mark.parametrize("name", ["manifest.json", "metadata.json", ".metadata", TRACKER])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("gone")])
def test_what_is_no_file_holds_nobody_up(tmp_path, name, make):
    """A pipe would be waited for, and a directory end a program by a traceback."""
    path = saved.seal(write_checkpoint(tmp_path, 200))
    saved.seal(write_checkpoint(tmp_path, 100))
    (tmp_path / TRACKER).write_text("200")
    place = tmp_path / name if name == TRACKER else path / name
    place.unlink()
    if name in {"metadata.json", ".metadata"}:
        (path / manifest_format.MANIFEST).unlink()
    make(place)
    if name == TRACKER:
        assert checkpoints.read_tracker(tmp_path, DIST).state == "torn"
    else:
        assert whole.by_bytes(path, DIST).kind == "damaged"
    takes = tmp_path / ("iter_0000200" if name == TRACKER else "iter_0000100")
    assert checkpoints.choose(tmp_path, DIST, whole.by_bytes).takes == takes


def test_a_checkpoint_with_links_gets_no_manifest(tmp_path):
    """It would be whole without what they lead to, and others would go for it."""
    checkpoints.note_imported(tmp_path)
    path = write_checkpoint(tmp_path, 100)
    elsewhere = (path / "__0_0.distcp").rename(tmp_path / "elsewhere")
    (path / "__0_0.distcp").symlink_to(elsewhere)
    (tmp_path / TRACKER).write_text("100")
    known = retention.Known()
    assert retention.seal_new(tmp_path, DIST, known)["iter_0000100"].kind == "damaged"
    assert retention.seal_new(tmp_path, DIST, known) == {}
    assert whole.by_sizes(path, DIST).kind == "unverified"


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


def test_reading_ends_in_time(tmp_path):
    """Other ranks wait: then sizes have to do, and it is said."""
    saved.seal(write_checkpoint(tmp_path, 500))
    state = whole.by_bytes(tmp_path / "iter_0000500", deadline=time.monotonic() - 1)
    assert state.kind == "whole"
    assert "not all compared" in state.why


def test_replacement_is_atomic_and_readable(tmp_path, monkeypatch):
    """A crash before the rename leaves the old text; afterwards others can read the new one."""
    path = tmp_path / TRACKER
    path.write_text("500")

    def crash(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(os, "fsync", crash)
        with pytest.raises(OSError, match="No space left"):
            manifests.replace_file(path, b"1000")
    assert path.read_text() == "500"
    manifests.replace_file(path, b"1000")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("1000", 0o644)


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
