"""checkpoint_sync beside a training, and what it removes from S3."""

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.programs import saved
from tests.programs.fault_proxy import Fault
from tests.programs.run_program import command
from tests.programs.s3_world import URI, World


@pytest.fixture
def near(tmp_path):
    """Return the directory of a training that has saved nothing yet."""
    (tmp_path / "near").mkdir()
    return tmp_path / "near"


def watch(near, *words):
    """Start the watcher."""
    return subprocess.Popen(  # noqa: S603 -- the program under test
        command("checkpoint_sync", "push", near, URI, "--watch", "--interval", "0.2", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(s3: World, name: str) -> None:
    """Wait until `latest` names a checkpoint."""
    deadline = time.monotonic() + 60
    while "latest" not in s3.names() or s3.json("latest")["name"] != name:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ended(process) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the JSON line."""
    out, _ = process.communicate(timeout=60)
    return process.returncode, json.loads(out.splitlines()[-1])


def test_every_new_checkpoint_is_sent(s3, near):
    """Those that are not whole wait; SIGTERM brings a last look."""
    process = watch(near)
    saved.megatron(near, 100)
    wait_for(s3, "iter_0000100")
    (saved.megatron(near, 200) / "metadata.json").rename(near / "aside")
    time.sleep(0.5)
    assert s3.json("latest")["step"] == 100
    (near / "aside").rename(near / "iter_0000200" / "metadata.json")
    wait_for(s3, "iter_0000200")
    saved.megatron(near, 300)
    process.send_signal(signal.SIGTERM)
    code, summary = ended(process)
    assert (code, summary["troubles"], summary["findings"]) == (0, 0, [])
    assert s3.json("latest")["step"] == 300


def test_trouble_with_s3_never_shows_in_the_exit_code(s3, near):
    """A training whose S3 is broken is a good training; the trouble is said once."""
    s3.fail(".", "403")
    saved.megatron(near, 100)
    process = watch(near)
    deadline = time.monotonic() + 60
    while len(s3.proxy.requests) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    s3.heal()
    wait_for(s3, "iter_0000100")
    process.send_signal(signal.SIGTERM)
    code, summary = ended(process)
    assert (code, summary["pushes"]) == (0, 1)
    assert summary["troubles"]
    assert len(summary["findings"]) == 1
    assert summary["findings"][0].startswith("warning ")


def test_watcher_ends_with_the_training(s3, near):
    """What the training saved last is sent after its end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as training:
        process = watch(near, "--parent", training.pid)
        saved.megatron(near, 100)
        wait_for(s3, "iter_0000100")
        saved.megatron(near, 200)
    assert ended(process)[0] == 0
    assert s3.json("latest")["step"] == 200


def test_watcher_keeps_the_newest(s3, near):
    """`--keep-last` bounds what S3 costs."""
    process = watch(near, "--keep-last", "1")
    for step in (100, 200):
        saved.megatron(near, step)
        wait_for(s3, f"iter_{step:07d}")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 0
    assert not any("iter_0000100" in name for name in s3.names())


def test_a_removal_that_sigterm_interrupts_is_taken_up_again(s3, near):
    """A checkpoint without its manifest looks like a push that goes on, which stays."""
    process = watch(near, "--keep-last", "1")
    removals = "POST .*delete"
    end = Fault(removals, "503", times=1, before=lambda: process.send_signal(signal.SIGTERM))
    s3.before(removals, lambda: s3.proxy.faults.append(end))
    for step in (100, 200):
        saved.megatron(near, step)
        wait_for(s3, f"iter_{step:07d}")
    code, summary = ended(process)
    assert (code, summary["removed"]) == (0, ["iter_0000100"])
    assert not any("iter_0000100" in name for name in s3.names())


def test_prune_keeps_the_newest_and_what_latest_names(sync, s3, near):
    """Whatever the number says, a restart finds its checkpoint."""
    for step in (100, 200, 300):
        saved.megatron(near, step)
    sync("push", near, URI, "--all")
    done = sync("prune", near, URI, "--keep-last", "2")
    assert (done.code, done.summary["removed"]) == (0, ["iter_0000100"])
    s3.put("latest", b'{"version": 1, "name": "iter_0000200", "step": 200}')
    done = sync("prune", near, URI, "--keep-last", "1")
    assert (done.code, "removed" in done.summary) == (0, False)
    assert sync("verify", near, URI).summary["verified"] == [
        "iter_0000200",
        "iter_0000300",
    ]


def test_prune_takes_the_manifest_first(sync, s3, near):
    """Interrupted anywhere, it leaves no checkpoint that looks whole and is not."""
    for step in (100, 200):
        saved.megatron(near, step)
    sync("push", near, URI, "--all")
    removals = "POST .*delete"
    s3.heal()
    s3.fail(removals, "503")
    assert sync("prune", near, URI, "--keep-last", "1").code == 5
    s3.heal()
    s3.before(removals, lambda: s3.fail(removals, "503"))
    assert sync("prune", near, URI, "--keep-last", "1").code == 5
    assert "iter_0000100/manifest.json" not in s3.names()
    assert any(name.startswith("iter_0000100/") for name in s3.names())


def test_prune_removes_nothing_while_the_newest_is_damaged(sync, s3, near):
    """The older one may be all that a restart has."""
    for step in (100, 200):
        saved.megatron(near, step)
    sync("push", near, URI, "--all")
    before = s3.names()
    s3.put("latest", b'{"version": 1, "name": "iter_0000900", "step": 900}')
    done = sync("prune", near, URI, "--keep-last", "1")
    assert "`latest` names no whole checkpoint - nothing was removed" in done.findings[0]
    s3.put("latest", b'{"version": 1, "name": "iter_0000200", "step": 200}')
    damaged = next(name for name in before if "iter_0000200" in name and "distcp" in name)
    s3.put(damaged, b"other")
    done = sync("prune", near, URI, "--keep-last", "1")
    assert done.code == 4
    assert s3.names() == before
