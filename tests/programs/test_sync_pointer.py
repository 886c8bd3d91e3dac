"""What `latest` names, and what of a directory may be sent, whatever was lost before."""

import pytest

from megatron_eks.programs.checkpoint import checkpoints, manifest_format
from tests.programs import saved
from tests.programs.megatron_files import TRACKER, write_rank
from tests.programs.s3_world import URI


@pytest.fixture
def near(tmp_path):
    """Return a directory with three whole checkpoints, all of which are in S3."""
    for step in (100, 200, 300):
        saved.seal(saved.megatron(tmp_path / "near", step, size=2000))
    return tmp_path / "near"


@pytest.mark.parametrize("lost", ["gone", "torn", "names nothing", "names a damaged one"])
def test_an_older_push_hides_no_newer_whole_one(sync, s3, near, lost, tmp_path):
    """The pointer is mended to the newest whole one, whatever is sent."""
    assert sync("push", near, URI, "--all").code == 0
    if lost == "gone":
        s3.delete("latest")
    elif lost == "torn":
        s3.put("latest", b"{")
    elif lost == "names nothing":
        s3.put("latest", manifest_format.latest_text("iter_0000400"))
    else:
        (key,) = (each for each in s3.names() if "0000300/" in each and "__0" in each)
        s3.delete(key)
    newest = "iter_0000200" if lost == "names a damaged one" else "iter_0000300"
    assert sync("ls", "-", URI).summary["pull"] == newest
    assert sync("push", near, URI, "--name", "iter_0000100").code == 0
    assert s3.json("latest")["name"] == newest
    done = sync("pull", tmp_path / "far", URI)
    assert done.summary.get("pulled") == newest, done.stderr


def test_ls_calls_no_damaged_one_the_latest(sync, s3, near):
    """It says what a pull would take instead."""
    assert sync("push", near, URI, "--all").code == 0
    (key,) = (each for each in s3.names() if "0000300/" in each and "__0" in each)
    s3.put(key, s3.content(key)[:-1])
    listed = sync("ls", "-", URI)
    assert (listed.summary["latest"], listed.summary["pull"]) == (None, "iter_0000200")
    assert "it names iter_0000300, which is not whole" in listed.stderr


@pytest.mark.parametrize("tracker", [None, "", "1"])
def test_a_first_save_in_progress_is_not_sent(sync, s3, tmp_path, tracker):
    """Half of it has whole files alone in Megatron's `torch` format, and no tracker names it."""
    checkpoints.note_imported(tmp_path)
    path = tmp_path / "iter_0000100"
    write_rank(path, "mp_rank_00", step=100)
    if tracker is not None:
        (tmp_path / TRACKER).write_text(tracker)
    assert sync("push", tmp_path, URI).code != 0
    assert not (path / manifest_format.MANIFEST).exists()
    assert not s3.names()
    (tmp_path / TRACKER).write_text("100")
    assert sync("push", tmp_path, URI).code == 0


def test_a_pull_makes_a_run_resume_from_it(sync, near, tmp_path):
    """Unless a start takes a newer one; without a tracker file it does."""
    far = tmp_path / "far"
    assert sync("push", near, URI, "--all").code == 0
    saved.seal(saved.megatron(far, 300, size=2000))
    pulled = sync("pull", far, URI, "--name", "iter_0000200")
    assert "a newer whole checkpoint than iter_0000200 is there" in pulled.stderr
    assert checkpoints.choose(far, "torch_dist").takes == far / "iter_0000300"
    (far / TRACKER).write_text("100")
    saved.seal(saved.megatron(far, 100, size=2000))
    (far / "iter_0000300" / "__0_0.distcp").unlink()
    assert sync("pull", far, URI, "--name", "iter_0000200").code == 0
    assert (far / TRACKER).read_text() == "200"


def test_a_run_that_would_begin_anew_beside_its_copies_is_told(sync, near, tmp_path):
    """Its file system was lost, or the wrong directory is named."""
    assert sync("push", near, URI).code == 0
    assert sync("check", near, URI).summary["findings"] == []
    checked = sync("check", tmp_path / "far", URI)
    assert checked.code == 0
    assert "iter_0000300 of an earlier run is there, and nothing in" in checked.stderr
