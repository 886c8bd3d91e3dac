"""What a run starts from when its tracker file is bad, and how the ranks agree on it."""

import pytest

from tests.programs.megatron_files import (
    TRACKER,
    summary,
    write_checkpoint,
)


@pytest.mark.parametrize("text", ["", "50x", "\0\0"])
def test_torn_tracker_is_repaired(job, text):
    """Megatron alone would end with exit code 0 without a step, and the job look successful."""
    for iteration in (500, 1000):
        write_checkpoint(job.save, iteration)
    write_checkpoint(job.save, 1500, whole=False)
    (job.save / TRACKER).write_text(text)
    done = job.run()
    assert done.returncode == 0
    assert (job.save / TRACKER).read_text() == "1000"
    assert summary(done.stdout)["start"] == str(job.save / "iter_0001000")
    assert f"warning {job.save / TRACKER}: {text.strip()!r} is neither" in done.stderr
    assert "- set to iter_0001000, the newest that can be loaded" in done.stderr


def test_base_weights_never_take_the_place_of_a_damaged_checkpoint(job, tmp_path):
    """A run that was further once ends, and says what to do."""
    base = tmp_path / "base"
    write_checkpoint(base, "release")
    (base / TRACKER).write_text("release")
    write_checkpoint(job.save, 500, whole=False)
    (job.save / TRACKER).write_text("500")
    done = job.run("--pretrained-checkpoint", str(base))
    assert done.returncode == 4
    assert "iter_0000500: metadata.json, the last file of a save, is missing" in done.stderr
    assert "to start over on purpose move them away" in done.stderr
    assert (job.save / TRACKER).read_text() == "500"


def test_damaged_base_weights_are_found(job, tmp_path):
    """Before ranks meet."""
    base = write_checkpoint(tmp_path / "base", "release")
    (tmp_path / "base" / TRACKER).write_text("release")
    (base / "__0_0.distcp").write_bytes(bytes((base / "__0_0.distcp").stat().st_size))
    done = job.run("--pretrained-checkpoint", str(tmp_path / "base"))
    assert done.returncode == 4
    assert "no base weights: release: __0_0.distcp at 0 is damaged" in done.stderr


def test_base_weights_are_not_needed_to_resume(job):
    """Megatron reads them only while the save directory has no tracker."""
    write_checkpoint(job.save, 500)
    (job.save / TRACKER).write_text("500")
    done = job.run("--pretrained-checkpoint", "/absent")
    assert done.returncode == 0
    assert summary(done.stdout)["start"] == str(job.save / "iter_0000500")


def test_checkpoints_without_a_tracker_are_taken(job):
    """Megatron alone would begin anew without a word."""
    write_checkpoint(job.save, 500)
    done = job.run()
    assert done.returncode == 0
    assert summary(done.stdout)["start"] == str(job.save / "iter_0000500")
    assert (job.save / TRACKER).read_text() == "500"
    assert "- set to iter_0000500, the newest that can be loaded" in done.stderr
