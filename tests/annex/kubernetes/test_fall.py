"""A local cluster that falls: who tells, and what is kept."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.kubernetes.build import cache_folder
from megatron_eks.localcloud.kubernetes.state import is_running, read_state
from megatron_eks.project import ROOT
from tests import command
from tests.annex.pids import alive, descendants
from tests.annex.rehearsal import rehearsal_in

pytestmark = pytest.mark.control_plane


@pytest.fixture
def meks(programs, tmp_path):
    """Return a function that runs `meks` with room for a cluster of the test's own."""
    _, local = rehearsal_in(tmp_path, programs)
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    yield lambda *words, **env: command.meks(*words, env={**os.environ, **cache, **env})
    local("down", "--yes")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return the folder of the cluster."""
    return cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) / "local"


def fell(folder: Path, pid: int) -> None:
    """Kill a process of the cluster and wait until nothing of it is left."""
    supervisor = read_state(folder).pid
    others = [supervisor, *descendants(supervisor)]
    os.kill(pid, signal.SIGKILL)
    wait_for("the end of the cluster", lambda: not alive(others), 30)


@pytest.mark.long
@pytest.mark.parametrize("name", ["kube-apiserver", "etcd", "aws", "supervisor"])
def test_whatever_ends_is_named(meks, folder, name):
    """A part, the AWS, or the process behind all of them, which leaves no note."""
    done = meks("local", "up", "--empty", "-o", "json")
    assert done.returncode == 0, done.stderr
    environment = json.loads(done.stdout)["environment"]
    state = read_state(folder)
    fell(folder, {**state.pids, "supervisor": state.pid}[name])
    ended = f"{name} ended with exit code -9; log: {folder / 'cluster' / name}.log"
    reason = f"its supervisor ended; log: {folder / 'log'}" if name == "supervisor" else ended
    words = ("--cluster-name", "x", "--region", "us-east-2")
    done = meks("token", *words, "--role-arn", "arn:aws:iam::000000000000:role/x", **environment)
    assert done.returncode == 5, done.stderr
    assert "meks local status" in done.stderr
    done = meks("local", "status")
    assert done.returncode == 3
    assert f"the local cluster fell: {reason} - start it again, which keeps" in done.stderr


def _precious(folder: Path) -> Path:
    """Put a file where a pod would."""
    file = folder / "shared" / "fs-1" / "checkpoints" / "iter_0000100" / "weights.pt"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(3 * 1024**2))
    return file


def test_shared_outlives_a_fall_and_an_end(meks, folder):
    """Until somebody says that it may go; each command says where it is, and how much."""
    assert meks("local", "up", "--empty").returncode == 0
    file = _precious(folder)
    kept = f"1 file, 3 MiB, in {folder / 'shared'}"
    fell(folder, read_state(folder).pids["etcd"])
    done = meks("local", "up", "--empty")
    assert (done.returncode, file.exists()) == (0, True)
    assert "the last one ended by itself: the local cluster fell: etcd ended" in done.stderr
    assert f"/shared of the last one is kept: {kept}" in done.stderr
    done = meks("local", "down")
    assert (done.returncode, file.exists()) == (0, True)
    assert f"its /shared is kept for the next one: {kept}" in done.stderr
    assert {each.name for each in folder.iterdir()} == {"shared"}
    assert not is_running(folder)
    done = meks("local", "down", "--yes")
    assert (done.returncode, folder.exists()) == (0, False)
    assert f"deleted its /shared: {kept}" in done.stderr


@pytest.mark.parametrize(("answer", "stays"), [("n", True), ("", True), ("y", False)])
def test_down_asks_who_is_there(tmp_path, folder, answer, stays):
    """A terminal is somebody; only a yes is one."""
    file = _precious(folder)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "-m", "megatron_eks", "local", "down"],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        stdin=theirs,
        capture_output=True,
        text=True,
        check=False,
    )
    for each in (ours, theirs):
        os.close(each)
    assert done.returncode == 0
    assert "delete its /shared too: 1 file, 3 MiB, in " in done.stderr
    assert file.exists() is stays
