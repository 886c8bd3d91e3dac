"""`meks ckpt` where S3, the network, the disk or the user interrupts: a second run converges."""

import json

import pytest

from tests.programs import saved
from tests.programs.s3_world import URI

DATA = "PUT .*__1_0.distcp"

# Each starts commands that wait for an S3 that fails.
pytestmark = pytest.mark.tools


@pytest.fixture
def near(tmp_path):
    """Return a directory with one whole checkpoint, whose large files go in parts."""
    saved.megatron(tmp_path / "near", 500, size=200_000)
    return tmp_path / "near"


@pytest.fixture
def converges(meks, s3, near, tmp_path):
    """Return a function that runs push and pull again, and compares every byte."""

    def call():
        s3.heal()
        assert meks("ckpt", "push", near, URI).returncode == 0
        assert meks("ckpt", "verify", URI).returncode == 0
        assert meks("ckpt", "pull", URI, "--local", tmp_path / "far").returncode == 0
        far = saved.content(tmp_path / "far" / "iter_0000500")
        assert far == saved.content(near / "iter_0000500")

    return call


def test_s3_that_never_answers_is_not_reachable(meks, s3, near, converges):
    """Exit code 5, nothing is visible, and the next push sends the rest."""
    s3.fail(DATA, "503")
    done = meks("ckpt", "push", near, URI)
    assert (done.returncode, done.stdout) == (5, "")
    assert "see that S3 can be reached" in done.stderr
    assert "iter_0000500/manifest.json" not in s3.names()
    s3.heal()
    s3.fail("GET .*list-type", "503")
    assert meks("ckpt", "ls", URI).returncode == 5
    converges()


def test_another_writer_that_was_first_is_not_overwritten(meks, s3, near, tmp_path):
    """The manifest is written if there is none (If-None-Match)."""
    other = tmp_path / "other"
    saved.megatron(other, 500, seed=7)
    assert meks("ckpt", "push", other, "s3://checkpoints/other").returncode == 0
    key = "other/iter_0000500/manifest.json"
    text = s3.client.get_object(Bucket="checkpoints", Key=key)["Body"].read()
    s3.before("PUT /checkpoints/run/.*manifest.json", lambda: s3.put(key[6:], text))
    done = meks("ckpt", "push", near, URI)
    assert done.returncode == 4
    assert "another checkpoint of this name is there already" in done.stderr
    assert json.dumps(s3.json("iter_0000500/manifest.json")) == json.dumps(json.loads(text))


def test_an_object_that_vanished_stops_a_pull_before_anything_appears(
    meks, s3, near, tmp_path, converges
):
    """Exit code 4, and which object."""
    meks("ckpt", "push", near, URI)
    s3.delete(next(key for key in s3.names() if "__1_0" in key))
    done = meks("ckpt", "pull", URI, "--local", tmp_path / "far")
    assert done.returncode == 4
    assert "warning s3://checkpoints/run/iter_0000500: __1_0.distcp is missing" in done.stderr
    assert not (tmp_path / "far" / "iter_0000500").exists()
    converges()


def test_a_directory_that_cannot_be_written_is_named(meks, near):
    """Whoever runs it: nobody makes directories there."""
    meks("ckpt", "push", near, URI)
    done = meks("ckpt", "pull", URI, "--local", "/sys/checkpoints")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error /sys/checkpoints: " in done.stderr


@pytest.mark.parametrize(
    "case",
    [
        ("GET .*list-type", ("ls", URI)),
        ("HEAD .*distcp", ("verify", URI)),
        ("GET .*__1_0", ("pull", URI, "--local", "far")),
        ("PUT .*__1_0", ("push", "near/", "s3://checkpoints/run/more")),
        ("GET .*latest", ("prune", URI, "--keep-last", "1")),
    ],
)
def test_ctrl_c_says_how_to_go_on(interrupted, meks, near, case):
    """Exit code 130; the same command does the rest."""
    pattern, words = case
    meks("ckpt", "push", near, URI)
    places = {"far": near.with_name("far"), "near/": near}
    words = [str(places.get(word, word)) for word in words]
    code, err = interrupted(pattern, "ckpt", *words)
    assert code == 130, err
    assert "interrupted: what was done stays done; to go on: meks ckpt" in err
    assert meks("ckpt", *words).returncode == 0


def test_refused_credentials_are_said_plainly(meks, s3):
    """S3 refuses: no more attempts, and what to do."""
    s3.fail("GET", "403")
    done = meks("ckpt", "ls", URI)
    assert done.returncode == 1
    assert "S3 refuses" in done.stderr
