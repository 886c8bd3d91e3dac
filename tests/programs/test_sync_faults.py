"""checkpoint_sync where S3, the network or the disk fails: nothing lost, nothing half visible."""

import base64
import resource
import shutil
import signal
import subprocess
import threading

import pytest

from megatron_eks.programs.checkpoint import manifest_format, pull
from megatron_eks.programs.checkpoint.remote import Remote
from megatron_eks.programs.program import StopError
from megatron_eks.programs.s3_store import Store
from tests.programs.run_program import command
from tests.programs.s3_world import URI
from tests.programs.sync_pair import MANIFEST

GOOD = manifest_format.FileEntry("__0_0.distcp", 1, base64.b64encode(bytes(32)).decode(), 2**26)
ENTRY = manifest_format.Manifest("iter_0000500", 500, (GOOD,)).text()
DATA = r"iter_0000500/[0-9a-f]{16}/"


@pytest.mark.parametrize("how", ["503", "cut request", "cut answer", "lose answer"])
def test_push_gets_through_a_bad_hour(pair, how):
    """Requests that fail twice are tried again, whether or not S3 has acted on them."""
    for pattern in ("PUT .*__0_0.distcp", "HEAD .*metadata", MANIFEST, "PUT .*/latest", "GET "):
        pair.s3.fail(pattern, how, times=2)
    assert pair.sync("push", pair.near, URI).code == 0
    assert pair.is_whole()


@pytest.mark.parametrize("how", ["503", "cut request", "cut answer"])
def test_pull_gets_through_a_bad_hour(pair, how):
    """A cut download is fetched again."""
    pair.sync("push", pair.near, URI)
    for pattern in ("GET .*/latest", "GET .*manifest", "GET .*__1_0.distcp"):
        pair.s3.fail(pattern, how, times=2)
    assert pair.sync("pull", pair.far, URI).code == 0
    assert pair.is_whole()


@pytest.mark.parametrize("how", ["503", "cut request"])
def test_push_that_cannot_get_through_leaves_nothing_visible(pair, how):
    """S3 is not reachable: exit code 5, no checkpoint for others; the next push sends the rest."""
    pair.s3.fail("PUT .*__1_0.distcp", how)
    done = pair.sync("push", pair.near, URI)
    assert (done.code, done.summary["status"]) == (5, "not reachable")
    assert pair.sync("pull", pair.far, URI).code == 3
    assert not (pair.far / "iter_0000500").exists()
    pair.s3.heal()
    assert pair.sync("push", pair.near, URI).code == 0
    assert pair.s3.proxy.seen("PUT .*__0_0.distcp") == []
    assert pair.is_whole()


def test_a_role_that_lists_below_its_prefix_alone_can_push_and_pull(pair):
    """S3 then says "denied" of what is missing, and a listing tells that it is only missing."""
    pair.s3.fail("(GET|HEAD) /checkpoints/run/", "hide missing")
    assert pair.sync("pull", pair.far, URI).code == 3
    assert pair.sync("push", pair.near, URI).code == 0
    assert pair.is_whole()


def test_what_is_there_and_denied_is_not_taken_for_missing(pair):
    """Else a push would send a checkpoint again, over one that it may not read."""
    pair.sync("push", pair.near, URI)
    pair.s3.fail("GET .*manifest", "403")
    pair.s3.proxy.requests.clear()
    assert pair.sync("push", pair.near, URI).code == 1
    assert pair.s3.proxy.seen("PUT ") == []


def test_push_that_ends_before_the_pointer_is_found_by_a_pull(pair):
    """The manifest alone says that a checkpoint is whole."""
    pair.s3.fail("PUT .*/latest", "503")
    assert pair.sync("push", pair.near, URI).code == 5
    pair.s3.heal()
    assert pair.sync("pull", pair.far, URI).summary["pulled"] == "iter_0000500"


def test_bytes_that_change_on_the_way_up_are_sent_again(pair):
    """S3 refuses a part that is not what its checksum says."""
    pair.s3.fail("PUT .*__1_0.distcp", "damage request", times=2)
    assert pair.sync("push", pair.near, URI).code == 0
    assert pair.is_whole()


def test_bytes_that_always_change_on_the_way_up_are_no_checkpoint(pair):
    """No manifest is written for what S3 does not hold."""
    pair.s3.fail("PUT .*__1_0.distcp", "damage request")
    done = pair.sync("push", pair.near, URI)
    assert (done.code, done.summary["status"]) == (4, "check failed")
    assert "the bytes change on the way" in done.findings[0]
    assert pair.s3.proxy.seen(MANIFEST) == []


def test_bytes_that_change_on_the_way_down_are_fetched_again(pair):
    """Every file is compared with the manifest before the directory appears."""
    pair.sync("push", pair.near, URI)
    pair.s3.fail("GET .*__1_0.distcp", "damage answer", times=1)
    assert pair.sync("pull", pair.far, URI).code == 0
    assert pair.is_whole()


def test_bytes_that_always_change_never_appear(pair):
    """A damaged checkpoint is not published, and the tracker is not touched."""
    pair.sync("push", pair.near, URI)
    pair.s3.fail("GET .*__1_0.distcp", "damage answer")
    done = pair.sync("pull", pair.far, URI)
    assert done.code == 4
    assert "the bytes change on the way" in done.findings[0]
    assert [path.name for path in pair.far.iterdir() if not path.name.startswith(".")] == []


@pytest.mark.parametrize("damage", ["gone", "other bytes", "other size"])
def test_verify_finds_damage_without_downloading(pair, damage):
    """S3's own sizes and checksums tell."""
    pair.sync("push", pair.near, URI)
    key = next(key for key in pair.s3.names() if key.endswith("__1_0.distcp"))
    if damage == "gone":
        pair.s3.delete(key)
    else:
        pair.s3.put(key, bytes(200_000 if damage == "other bytes" else 7))
    pair.s3.heal()
    done = pair.sync("verify", pair.near, URI)
    assert (done.code, done.summary["damaged"]) == (4, ["iter_0000500"])
    assert "__1_0.distcp" in done.findings[0]
    assert pair.s3.proxy.seen(f"GET .*{DATA}") == []


def test_verify_compares_the_local_copy(pair):
    """`--local` reads what is on this disk."""
    pair.sync("push", pair.near, URI)
    (pair.near / "iter_0000500" / "common.pt").write_bytes(b"rotten")
    assert pair.sync("verify", pair.near, URI).code == 0
    done = pair.sync("verify", pair.near, URI, "--local")
    assert done.code == 4
    assert "common.pt differs" in done.findings[0]


def test_full_disk_leaves_nothing_visible_and_a_pull_goes_on(pair):
    """What was fetched stays aside; with room again only the rest is fetched."""
    pair.sync("push", pair.near, URI)
    (pair.near / "iter_0000500" / "common.pt").stat()
    limited = subprocess.run(  # noqa: S603 -- the program under test
        command("checkpoint_sync", "pull", pair.far, URI),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert limited.returncode == 1
    assert "File too large" in limited.stdout
    assert [path.name for path in pair.far.iterdir() if not path.name.startswith(".")] == []
    pair.s3.heal()
    assert pair.sync("pull", pair.far, URI).code == 0
    assert pair.s3.proxy.seen("GET .*[.]metadata") == []
    assert pair.is_whole()


def test_space_is_checked_before_anything_is_fetched(pair, monkeypatch):
    """A checkpoint larger than what is free is refused at once."""
    pair.sync("push", pair.near, URI)
    found = Remote(Store(URI)).look("iter_0000500")
    assert found is not None
    usage = shutil.disk_usage(pair.near)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StopError, match="1,000 bytes free"):
        pull.fetch(found, pair.far, Store(URI), 2)


def test_killed_pull_goes_on(pair):
    """SIGKILL in the middle: nothing is visible, and what was fetched is not fetched again."""
    pair.sync("push", pair.near, URI)
    arrived = threading.Event()
    go_on = threading.Event()

    def hold():
        arrived.set()
        go_on.wait(60)

    pair.s3.before("GET .*__1_0.distcp", hold)
    with subprocess.Popen(  # noqa: S603 -- the program under test
        command("checkpoint_sync", "pull", pair.far, URI), stdout=subprocess.DEVNULL
    ) as process:
        assert arrived.wait(60)
        process.send_signal(signal.SIGKILL)
    go_on.set()
    assert [path.name for path in pair.far.iterdir() if not path.name.startswith(".")] == []
    pair.s3.heal()
    assert pair.sync("pull", pair.far, URI).code == 0
    assert pair.s3.proxy.seen("GET .*__0_0.distcp") == []
    assert pair.is_whole()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"{torn", "cannot be read"),
        (b'{"name": "iter_0000500", "step": 500, "files": []}', "version None"),
        (b'{"version": 1, "name": "iter_0000500", "step": 500, "files": [], "id": ""}', "no files"),
        (b"[" * 100_000, "cannot be read"),
        (b"[]", "no JSON object"),
        (ENTRY.replace(b'"id": "', b'"id": "0'), "its id"),
        (ENTRY.replace(b'"size": 1', b'"size": -1'), "sizes are -1"),
        (ENTRY.replace(b'"size": 1', b'"size": true'), "sizes are True"),
        (ENTRY.replace(b"iter_0000500", b"iter_0000900"), "step 500"),
        (ENTRY.replace(b"iter_0000500", b"latest_checkpointed_iteration.txt"), "no name"),
        (manifest_format.Manifest("iter_0000400", 400, (GOOD,)).text(), "the one of iter_0000400"),
        (manifest_format.Manifest("iter_0000500", 500, (GOOD, GOOD)).text(), "a file twice"),
    ],
)
def test_manifest_that_cannot_be_right_is_refused(pair, text, found):
    """Nothing is guessed from a damaged manifest, and nothing is written."""
    pair.sync("push", pair.near, URI)
    pair.s3.put("iter_0000500/manifest.json", text)
    done = pair.sync("pull", pair.far, URI)
    assert done.code == 4
    assert found in done.findings[0]
    assert not list(pair.far.glob("*"))


@pytest.mark.parametrize(
    "path",
    ["../../stolen", "/etc/stolen", "a/../../b", "manifest.json", ".", "a//b", "a\n\x1b[2Jb"],
)
def test_manifest_cannot_write_outside_its_directory(pair, path):
    """Such a path is refused before anything is fetched."""
    entry = manifest_format.FileEntry(path, 1, GOOD.checksum, 2**26)
    text = manifest_format.Manifest("iter_0000500", 500, (entry,)).text()
    pair.s3.put("iter_0000500/manifest.json", text)
    done = pair.sync("pull", pair.far, URI)
    assert done.code == 4
    assert f"{path!r} is no path inside the checkpoint" in done.findings[0]
    assert not list(pair.far.glob("*"))
