"""Which checkpoints are whole, and what a tracker means."""

import os
import pickle
import time

import pytest

from megatron_eks.programs.checkpoint import (
    checkpoints,
    manifest_format,
    manifests,
    retention,
    whole,
)
from tests.programs import saved
from tests.programs.megatron_files import TRACKER, write_checkpoint, write_rank

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
