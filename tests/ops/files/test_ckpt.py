"""`meks ckpt` on this machine and S3, where no cluster is needed."""

import json
import os

import pytest

from megatron_eks.__main__ import main
from megatron_eks.ops.failure import USAGE
from tests import hostile
from tests.programs import saved
from tests.programs.s3_world import BUCKET, URI


@pytest.fixture
def near(tmp_path):
    """Return two whole checkpoints, an unfinished one, and the tracker of the newest whole one."""
    return saved.series(tmp_path / "near")


def test_ls_tells_the_state_of_each_and_what_a_restart_takes(meks, near):
    """A table with the reason."""
    (near / "iter_0000400" / "manifest.json").unlink()
    done = meks("ckpt", "ls", near)
    assert done.returncode == 0, done.stderr
    header, *rows, newest, restart = done.stdout.splitlines()
    assert header.split() == ["ITERATION", "WHERE", "SIZE", "AGE", "STATE"]
    assert [row.split()[:2] for row in rows] == [
        ["400", "local"],
        ["500", "local"],
        ["600", "local"],
    ]
    assert rows[0].endswith("unverified")
    assert rows[1].endswith("whole")
    assert rows[2].endswith("unfinished: metadata.json, the last file of a save, is missing")
    assert newest == "newest whole: iter_0000500, local"
    assert restart == "a restart takes: iter_0000500 (the tracker file names it)"
    assert done.stderr == ""


def test_a_directory_here_needs_no_cluster_file(near, monkeypatch, capsys):
    """A checkpoint that was copied to a laptop."""
    monkeypatch.chdir(near)
    monkeypatch.delenv("CLUSTER_CONFIG", raising=False)
    assert main(["ckpt", "ls", "."]) == 0
    assert "newest whole: iter_0000500" in capsys.readouterr().out
    assert main(["ckpt", "ls", "/shared/checkpoints/run"]) == USAGE
    for each in near.glob("iter_*"):
        (each / "metadata.json").write_text("")
    assert main(["ckpt", "ls", "."]) == 0
    # Its one finding is told once.
    assert capsys.readouterr().err.count("checkpoints are there, and none can be loaded") == 1


def test_ls_of_s3_shows_unfinished_pushes_and_lost_objects(as_json, meks, s3, near):
    """One that has no manifest yet, and one of whose objects one vanished."""
    assert meks("ckpt", "push", near, URI, "--all").returncode == 0
    gone = next(key for key in s3.names() if key.startswith("iter_0000400/") and "__1_0" in key)
    s3.delete(gone)
    s3.put("iter_0000700/0123456789abcdef/__0_0.distcp", b"half")
    shown = as_json("ls", URI)
    states = {row["iteration"]: (row["state"], row["why"]) for row in shown["checkpoints"]}
    assert states == {
        400: ("damaged", "__1_0.distcp is missing"),
        500: ("whole", None),
        700: ("unfinished", "no manifest.json: its push has not come to its end"),
    }
    assert [row["whole"] for row in shown["checkpoints"]] == [False, True, False]
    assert shown["newest_whole"] == {"name": "iter_0000500", "where": ["S3"]}
    assert shown["latest_in_s3"] == "iter_0000500"
    assert shown["restart"] is None


def test_names_in_s3_do_not_act_on_a_terminal(meks, s3, near):
    """Whoever may write into the bucket writes the pointer, and keys."""
    assert meks("ckpt", "push", near, URI).returncode == 0
    pointer = {"version": 1, "name": f"iter_{hostile.ALL}", "step": 1}
    s3.put("latest", json.dumps(pointer).encode())
    for text in [hostile.ALL, *hostile.CORPUS.values()][:4]:
        key = text.replace("/", "").replace("\0", "")
        s3.put(f"iter_{key}/manifest.json", json.dumps({"name": text, "files": text}).encode())
        s3.put(f"iter_0000700/{key}/__0_0.distcp", b"half")
    for words in (("ls", URI), ("verify", URI), ("pull", URI, "--local", near)):
        done = meks("ckpt", *words)
        assert (hostile.acting(done.stdout), hostile.acting(done.stderr)) == ([], [])


def test_a_pull_to_this_machine_resumes_there(meks, as_json, near, tmp_path):
    """Byte for byte; a second one fetches nothing."""
    assert meks("ckpt", "push", near, URI).returncode == 0
    done = meks("ckpt", "pull", URI, "--local", tmp_path / "far")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"iter_0000500 is in {tmp_path / 'far'}\n"
    assert saved.content(tmp_path / "far" / "iter_0000500") == saved.content(near / "iter_0000500")
    assert as_json("ls", tmp_path / "far")["restart"]["takes"] == "iter_0000500"
    assert meks("ckpt", "pull", URI, "--local", tmp_path / "far").returncode == 0


def test_verify_ends_with_4_where_bytes_differ(meks, as_json, s3, near):
    """S3's own checksums are compared; one can be chosen."""
    meks("ckpt", "push", near, URI, "--all")
    assert as_json("verify", URI)["passed"]
    key = next(key for key in s3.names() if key.startswith("iter_0000400/") and "__1_0" in key)
    held = s3.client.head_object(Bucket=BUCKET, Key=f"run/{key}")["ContentLength"]
    s3.put(key, b"x" * held)
    shown = as_json("verify", URI, code=4)
    assert [(each["name"], each["state"], each["whole"]) for each in shown["checkpoints"]] == [
        ("iter_0000400", "damaged", False),
        ("iter_0000500", "whole", True),
    ]
    assert "has another checksum in S3" in shown["checkpoints"][0]["why"]
    assert as_json("verify", URI, "--iteration", "500")["passed"]
    assert meks("ckpt", "verify", URI, "--iteration", "7").returncode == 3


def test_verify_without_s3_reads_every_byte(meks, as_json, near):
    """Against the manifest; without one it says what was compared and what was not."""
    (near / "iter_0000400" / "manifest.json").unlink()
    shown = as_json("verify", near, code=4)
    assert [(each["state"], each["whole"]) for each in shown["checkpoints"]] == [
        *(("unverified", True), ("whole", True), ("unfinished", False))
    ]
    assert shown["checkpoints"][2]["why"] == "metadata.json, the last file of a save, is missing"
    done = meks("ckpt", "verify", near, "--iteration", "400")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].split() == ["iter_0000400", "unverified"]
    assert "note: of those without a manifest nothing tells" in done.stderr


def test_prune_shows_asks_and_keeps_what_a_restart_needs(meks, near):
    """Without a terminal nobody answers; --dry-run removes nothing; --yes does."""
    saved.seal(saved.megatron(near, 300))
    saved.megatron(near, 350)
    (near / "latest_checkpointed_iteration.txt").write_text("400")
    asked = meks("ckpt", "prune", near, "--keep-last", "1")
    assert asked.returncode == 2
    assert "MEKS-0747" in asked.stderr
    # The newest, and the one that the tracker names.
    assert "all bytes of what a restart may need are read first" in asked.stderr
    shown = meks("ckpt", "prune", near, "--keep-last", "1", "--dry-run")
    assert (shown.returncode, shown.stdout) == (0, asked.stdout)
    assert "nothing was removed" in shown.stderr
    rows = [line.split(maxsplit=5) for line in shown.stdout.splitlines()[1:]]
    assert [(row[0], row[4]) for row in rows] == [
        ("iter_0000300", "goes"),
        *((f"iter_0000{step}", "stays") for step in (350, 400, 500, 600)),
    ]
    assert rows[1][5].startswith("it has no manifest")
    assert rows[2][5] == "a restart takes it"
    assert rows[4][5].startswith("perhaps a save in progress")
    assert meks("ckpt", "prune", near, "--keep-last", "1", "--yes").returncode == 0
    assert sorted(path.name for path in near.glob("iter_*")) == [
        *("iter_0000350", "iter_0000400", "iter_0000500", "iter_0000600"),
    ]


def test_prune_of_s3_keeps_what_latest_names(meks, s3, near):
    """And removes nothing if that is damaged."""
    meks("ckpt", "push", near, URI, "--all")
    assert meks("ckpt", "prune", URI, "--keep-last", "1", "--yes").returncode == 0
    assert not [key for key in s3.names() if key.startswith("iter_0000400")]
    s3.delete(next(key for key in s3.names() if "iter_0000500" in key and "__1_0" in key))
    damaged = meks("ckpt", "prune", URI, "--keep-last", "1", "--yes")
    assert damaged.returncode == 4
    assert damaged.stdout.splitlines()[1].split()[:2] == ["iter_0000500", "S3"]
    assert "nothing was removed; push a whole checkpoint first" in damaged.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("ls", "no-such-job"), 3, "MEKS-0883 no training job 'no-such-job' in jobs/"),
        (("ls", "./nothing"), 3, "no such directory"),
        (("ls", "s3://checkpoints"), 2, "MEKS-0883 's3://checkpoints' is no place"),
        (("pull", "megatron-gpt-7b"), 2, "MEKS-0884 megatron-gpt-7b names no copy in S3"),
        (("pull", URI), 2, "MEKS-0883 nobody says where s3://checkpoints/run goes to"),
        (("pull", URI, "./here"), 2, "MEKS-0883 ./here is not below /shared"),
        (("push", URI), 2, "MEKS-0883 s3://checkpoints/run is in S3 already"),
        (("pull", URI, "--local", "x"), 3, "no whole checkpoint there"),
        (("ls", "s3://no-such-bucket/run"), 3, "no such bucket"),
        (("prune", URI, "--keep-last", "0"), 2, "is not a number, 1 or more"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do(meks, words, code, said):
    """In one line, with the exit code of its sort."""
    done = meks("ckpt", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_a_closed_pipe_is_no_error(meks, near):
    """`| head` went away."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = meks("ckpt", "ls", near, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
