"""checkpoint_sync where nothing fails: what is pushed, what a pull makes of it, what stays."""

import pytest

from megatron_eks.programs import s3_store
from tests.programs import saved
from tests.programs.s3_world import BUCKET, URI


@pytest.fixture
def near(tmp_path):
    """Return the directory of a training."""
    return tmp_path / "near"


@pytest.fixture
def far(tmp_path):
    """Return a directory on another machine."""
    return tmp_path / "far"


def test_pull_gives_back_what_was_pushed(sync, near, far):
    """Every byte is the same, and a run resumes from it."""
    saved.megatron(near, 400)
    newest = saved.megatron(near, 500)
    pushed = sync("push", near, URI)
    assert (pushed.code, pushed.summary["pushed"]) == (0, ["iter_0000500"])
    pulled = sync("pull", far, URI)
    assert (pulled.code, pulled.summary["pulled"]) == (0, "iter_0000500")
    assert saved.content(far / "iter_0000500") == saved.content(newest)
    assert (far / "latest_checkpointed_iteration.txt").read_text() == "500"
    assert not list(far.glob(".pull-*"))


def test_large_files_go_in_parts(sync, s3, near, far, *, monkeypatch):
    """The checksum of a file in parts is S3's own, and comes back from it."""
    monkeypatch.setattr(s3_store, "PART_BYTES", 5 * 2**20)
    saved.megatron(near, 500, size=12 * 2**20)
    assert sync("push", near, URI).code == 0
    assert len(s3.proxy.seen("PUT .*distcp.*partNumber=3")) == 2
    assert sync("verify", near, URI, "--local").code == 0
    assert sync("pull", far, URI).code == 0
    assert saved.content(far / "iter_0000500") == saved.content(near / "iter_0000500")


def test_second_push_sends_nothing(sync, s3, near):
    """Running it again is free and harmless."""
    saved.megatron(near, 500)
    sync("push", near, URI)
    s3.heal()
    again = sync("push", near, URI)
    assert (again.code, again.summary["present"]) == (0, ["iter_0000500"])
    assert s3.proxy.seen("PUT") == []


def test_second_pull_fetches_nothing(sync, s3, near, far):
    """A checkpoint that is here is compared, not fetched."""
    saved.megatron(near, 500)
    sync("push", near, URI)
    sync("pull", far, URI)
    s3.heal()
    assert sync("pull", far, URI).code == 0
    assert s3.proxy.seen("GET .*distcp") == []


def test_unfinished_save_is_not_pushed(sync, s3, near):
    """metadata.json is the last file of a save."""
    (saved.megatron(near, 500) / "metadata.json").unlink()
    done = sync("push", near, URI)
    assert (done.code, done.summary["status"]) == (3, "not found")
    assert s3.names() == []


def test_all_are_pushed_oldest_first(sync, s3, near):
    """`latest` ends at the newest."""
    for step in (300, 100, 200):
        saved.megatron(near, step)
    done = sync("push", near, URI, "--all")
    assert done.summary["pushed"] == ["iter_0000100", "iter_0000200", "iter_0000300"]
    assert s3.json("latest")["name"] == "iter_0000300"


def test_latest_never_moves_back(sync, s3, near):
    """A late push of an old checkpoint does not cost a restart its progress."""
    saved.megatron(near, 500)
    sync("push", near, URI)
    saved.megatron(near, 400)
    done = sync("push", near, URI, "--name", "iter_0000400")
    assert done.code == 0
    assert "it names iter_0000500, newer than iter_0000400, and stays" in done.findings[0]
    assert s3.json("latest")["step"] == 500


def test_pull_keeps_a_newer_local_checkpoint(sync, near, far):
    """A run resumes from the newest that is whole, wherever it came from."""
    saved.megatron(near, 500)
    sync("push", near, URI)
    saved.megatron(far, 600)
    tracker = far / "latest_checkpointed_iteration.txt"
    tracker.write_text("600")
    done = sync("pull", far, URI)
    assert done.code == 0
    assert "a newer whole checkpoint than iter_0000500 is there" in done.findings[0]
    assert tracker.read_text() == "600"


def test_pull_never_changes_a_directory_that_is_there(sync, near, far):
    """Another checkpoint of the same name, or an unfinished save, is somebody's."""
    saved.megatron(near, 500)
    sync("push", near, URI)
    other = saved.megatron(far, 500, seed=1)
    before = saved.content(other)
    done = sync("pull", far, URI)
    assert (done.code, saved.content(other)) == (4, before)
    assert "another checkpoint of this name is there (" in done.findings[0]
    (other / "metadata.json").unlink()
    done = sync("pull", far, URI)
    assert done.code == 4
    assert "is not a whole checkpoint" in done.findings[0]


def test_megatron_bridge_resumes_too(sync, near, far):
    """Megatron-Bridge reads a copy of the train state before the tracker."""
    state = saved.torch_file(b"state of 500")
    (saved.megatron(near, 500) / "train_state.pt").write_bytes(state)
    sync("push", near, URI)
    sync("pull", far, URI)
    assert (far / "latest_train_state.pt").read_bytes() == state


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["push", "here"], 2),
        (["push", "here", "file:///x"], 2),
        (["prune", "here", URI], 2),
        (["prune", "here", URI, "--keep-last", "0"], 2),
        (["push", "here", URI, "--all", "--name", "iter_0000001"], 2),
        (["ls", "here", "s3://no-such-bucket/run"], 3),
        (["pull", "here", f"s3://{BUCKET}/other"], 3),
    ],
)
def test_mistakes_have_their_exit_codes(sync, words, code):
    """2 for the command line, 3 for what is not there."""
    done = sync(*words)
    assert (done.code, done.summary["program"]) == (code, "checkpoint_sync")
