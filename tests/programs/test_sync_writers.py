"""checkpoint_sync while somebody else writes or removes: what is published is whole."""

import shutil
import subprocess

from tests.programs import saved
from tests.programs.run_program import command, run
from tests.programs.s3_world import URI
from tests.programs.sync_pair import MANIFEST


def elsewhere(*words):
    """Return an action of another process."""
    return lambda: run("checkpoint_sync", *words)


def test_checkpoint_that_is_pruned_during_a_pull_gives_way_to_the_newer(pair):
    """`latest` moves on and the old one goes while it is fetched: the newer one is pulled."""
    pair.sync("push", pair.near, URI)

    def prune_meanwhile():
        saved.megatron(pair.near, 600)
        run("checkpoint_sync", "push", pair.near, URI, "--keep-last", "1")

    pair.s3.before("HEAD .*iter_0000500/.*__1_0.distcp", prune_meanwhile)
    done = pair.sync("pull", pair.far, URI)
    assert (done.code, done.summary["pulled"]) == (0, "iter_0000600")
    assert [path.name for path in pair.far.glob("iter_*")] == ["iter_0000600"]


def test_checkpoint_that_retention_removes_during_a_push_is_not_published(pair):
    """Local retention does not wait for S3."""
    pair.s3.before("PUT .*__0_0.distcp", lambda: shutil.rmtree(pair.near / "iter_0000500"))
    done = pair.sync("push", pair.near, URI)
    assert done.code == 4
    assert "went away while it was sent" in done.findings[0]
    assert pair.s3.proxy.seen(MANIFEST) == []


def test_file_that_changes_during_a_push_is_not_published(pair):
    """The checksum was taken before; what S3 then holds is something else."""
    file = pair.near / "iter_0000500" / "__1_0.distcp"
    pair.s3.before("PUT .*__0_0.distcp", lambda: file.write_bytes(bytes(200_000)))
    done = pair.sync("push", pair.near, URI)
    assert done.code == 4
    assert "it changed since its manifest was written" in done.findings[0]
    assert pair.s3.proxy.seen(MANIFEST) == []


def test_two_writers_of_the_same_checkpoint_both_succeed(pair):
    """The second finds the first one's manifest, written between its look and its own write."""
    pair.s3.before(MANIFEST, elsewhere("push", pair.near, URI))
    assert pair.sync("push", pair.near, URI).code == 0
    assert len(pair.s3.proxy.seen(MANIFEST)) == 2
    assert pair.is_whole()


def test_two_writers_of_different_checkpoints_do_not_mix(pair, tmp_path):
    """The first manifest stays, its files are untouched, and the other writer is told."""
    other = tmp_path / "other"
    saved.megatron(other, 500, seed=1)
    pair.s3.before(MANIFEST, elsewhere("push", pair.near, URI))
    done = pair.sync("push", other, URI)
    assert done.code == 4
    assert "another checkpoint of this name is there already" in done.findings[0]
    assert pair.is_whole()


def test_two_writers_of_the_pointer_leave_the_newer(pair, tmp_path):
    """Whoever writes `latest` in between, it ends at the newest checkpoint."""
    pair.sync("push", pair.near, URI)
    newer, newest = tmp_path / "newer", tmp_path / "newest"
    saved.megatron(newer, 600)
    saved.megatron(newest, 700)
    pair.s3.before("PUT .*/latest", elsewhere("push", newest, URI))
    assert pair.sync("push", newer, URI).code == 0
    assert pair.s3.json("latest")["name"] == "iter_0000700"


def test_many_writers_at_once_lose_nothing(pair, tmp_path):
    """Four at a time: every checkpoint is whole, and the pointer names the newest."""
    roots = [tmp_path / f"run-{step}" for step in range(100, 500, 100)]
    for root, step in zip(roots, range(100, 500, 100), strict=True):
        saved.megatron(root, step)
    processes = [
        subprocess.Popen(  # noqa: S603 -- the program under test
            command("checkpoint_sync", "push", root, URI),
            stdout=subprocess.DEVNULL,
        )
        for root in roots
    ]
    assert [process.wait(timeout=240) for process in processes] == [0] * 4
    assert pair.s3.json("latest")["step"] == 400
    done = pair.sync("verify", tmp_path, URI)
    assert (done.code, len(done.summary["verified"])) == (0, 4)
