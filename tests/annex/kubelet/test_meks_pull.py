"""Files and checkpoints of the shared file system on this machine, whatever happens on the way."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.data.sets import pull
from megatron_eks.ops.failure import Failure
from tests.annex.kubelet.test_shared_pod import (
    begin,
    cluster_file,
    meks,
    no_pod,
    place,
    saving,
)
from tests.programs import saved

__all__ = ["begin", "cluster_file", "meks", "place", "saving"]

pytestmark = pytest.mark.control_plane

_LARGE = 64 * 2**20


@pytest.fixture
def corpus(cluster):
    """Return a folder on the file system: a large file, a small and an empty one."""
    folder = cluster.shared() / "data" / "corpus"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "part").mkdir(parents=True)
    (folder / "large.bin").write_bytes(os.urandom(_LARGE))
    (folder / "part" / "b ä.jsonl").write_text('{"text": "b"}\n')
    (folder / "empty").touch()
    yield folder
    shutil.rmtree(folder)


def same(folder, copy):
    """Tell whether two folders hold the same and nothing else."""
    files = [{path.relative_to(top): path for path in top.rglob("*")} for top in (folder, copy)]
    both = [
        {name: path.is_dir() or path.read_bytes() for name, path in top.items()} for top in files
    ]
    return both[0] == both[1]


def test_a_folder_comes_once_and_never_over_another_file(meks, corpus, tmp_path):
    """Compared by checksum; a link out of the folder stays there, with exit code 4."""
    done = meks("data", "pull", "/shared/data/corpus", tmp_path)
    assert done.returncode == 0, done.stderr
    assert same(corpus, tmp_path / "corpus")
    assert "3 files, 67 MB of /shared/data/corpus; 3 fetched, 0 here already" in done.stdout
    (corpus / "out").symlink_to("/etc/passwd")
    again = meks("data", "pull", "/shared/data/corpus/", tmp_path / "corpus")
    assert (again.returncode, "0 fetched, 3 here already; 1 left out" in again.stdout) == (4, True)
    assert "out: left out: a link out of the folder" in again.stderr
    mine = tmp_path / "corpus" / "part" / "b ä.jsonl"
    for text in ('{"text": "x"}\n', "longer than that"):
        mine.write_text(text)
        refused = meks("data", "pull", "/shared/data/corpus", tmp_path)
        assert (refused.returncode, mine.read_text()) == (4, text)
        assert f"MEKS-0890 {mine} already exists: " in refused.stderr
    one = meks("data", "pull", "/shared/data/corpus/part/b ä.jsonl", tmp_path)
    assert (tmp_path / "b ä.jsonl").read_text() == '{"text": "b"}\n', one.stderr


def test_what_is_not_there_is_said(meks, tmp_path):
    """On the file system, and in words that name neither."""
    none = meks("data", "pull", "/shared/data/none", tmp_path)
    assert none.returncode == 3
    assert "MEKS-0882 error /shared/data/none: no such file or folder" in none.stderr
    assert "MEKS-0886 data is not below /shared" in meks("data", "pull", "data").stderr


@pytest.mark.long
def test_an_interrupted_command_is_gone_on_with(cluster, begin, meks, corpus, tmp_path):
    """Ctrl-C leaves what came, and removes the pod."""
    with (corpus / "large.bin").open("ab") as file:
        file.truncate(8 * _LARGE)
    process, part = (
        begin("data", "pull", "/shared/data/corpus/", tmp_path),
        tmp_path / ".large.bin.part",
    )
    wait_for("bytes", lambda: part.exists() and part.stat().st_size > _LARGE / 8, 120)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "what was done stays done" in err) == (130, True), err
    no_pod(cluster, err)
    came = part.stat().st_size
    assert _LARGE / 8 < came < 8 * _LARGE
    assert meks("data", "pull", "/shared/data/corpus/", tmp_path).returncode == 0
    assert same(corpus, tmp_path)


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of 16 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], check=True)  # noqa: S603, S607 -- a disk of its own
    yield folder
    subprocess.run(["umount", folder], check=True)  # noqa: S603, S607 -- the same


@pytest.mark.long
def test_a_full_disk_is_said(place, corpus, small_disk):
    """Before anything comes; and where somebody else fills it meanwhile."""
    with pytest.raises(Failure, match=r"MEKS-0891 this machine's disk is full: 0\.0 GB free, 0\.1"):
        pull("/shared/data/corpus/", str(small_disk), place, place.console)
    assert not [*small_disk.iterdir()]
    (corpus / "large.bin").write_bytes(os.urandom(12 * 2**20))

    def fill():
        wait_for("its start", (small_disk / ".large.bin.part").exists, 120, pause=0.001)
        with contextlib.suppress(OSError):
            (small_disk / "others").write_bytes(bytes(16 * 2**20))

    filler = threading.Thread(target=fill)
    filler.start()
    with pytest.raises(Failure, match=r"MEKS-0891 this machine's disk is full: .*No space left"):
        pull("/shared/data/corpus/", str(small_disk), place, place.console)
    filler.join()
    (small_disk / "others").unlink()
    assert pull("/shared/data/corpus/", str(small_disk), place, place.console) == 0
    assert same(corpus, small_disk)


def test_a_checkpoint_comes_whole_and_a_run_resumes_from_it(meks, saving, tmp_path):
    """The newest one that is whole; a damaged one never gets its name here."""
    root, target = "/shared/checkpoints/gpt-7b", tmp_path / "here"
    done = meks("ckpt", "pull", root, "--local", target)
    assert done.stdout == f"iter_0000500 is in {target}\n", done.stderr
    assert saved.content(target / "iter_0000500") == saved.content(saving / "iter_0000500")
    assert (target / "latest_checkpointed_iteration.txt").read_text() == "500"
    again = meks("ckpt", "pull", root, "--local", target)
    assert again.returncode == 0, again.stderr
    torn = meks("ckpt", "pull", root, "--local", target, "--iteration", "600")
    assert (torn.returncode, "MEKS-0883 iter_0000600 is unfinished" in torn.stderr) == (3, True)
    file = next((saving / "iter_0000400").glob("__1_0*"))
    bad = bytearray(file.read_bytes())
    bad[-1] ^= 1
    file.write_bytes(bad)
    damaged = meks("ckpt", "pull", root, "--local", target, "--iteration", "400")
    assert damaged.returncode == 4, damaged.stderr
    assert not (target / "iter_0000400").exists()
    older = meks("ckpt", "ls", target).stdout
    assert "a restart takes: iter_0000500" in older
