"""Checkpoints of programs of the user's, listed, compared, copied and removed at both ends."""

from functools import partial
from pathlib import Path

import pytest

from megatron_eks.programs import own_saves
from tests.programs import s3_world
from tests.programs.s3_world import URI
from tests.programs.test_torchrun_programs import save

DAY = 86_400


@pytest.fixture
def near(tmp_path: Path) -> Path:
    """Return three complete checkpoints and one that its save has not ended."""
    for day, step in enumerate((100, 200, 300)):
        save(tmp_path, f"step-{step}", DAY * (day + 1))
    save(tmp_path, "step-400", DAY * 9)
    (tmp_path / "step-400" / "done").unlink()
    (tmp_path / "notes").mkdir()
    return tmp_path


@pytest.fixture
def saves(near, s3):
    """Return a function that runs a command on both ends and returns code, facts and stderr."""
    del s3
    run = partial(s3_world.call, "own_saves", own_saves.main)

    def call(command, *words, end=URI):
        return run(command, near, *([end] if end else []), "--marker=done", *words)

    return call


def states(ended):
    """Return what each is, by name and end."""
    return {(row["name"], row["where"]): row["state"] for row in ended.summary["ends"]}


def test_each_is_listed_with_its_state(saves):
    """By the file that a save writes last; other folders are none."""
    ended = saves("ls", end=None)
    assert states(ended) == {
        ("step-100", "local"): "complete",
        ("step-200", "local"): "complete",
        ("step-300", "local"): "complete",
        ("step-400", "local"): "unfinished",
    }
    (last,) = (row for row in ended.summary["ends"] if row["name"] == "step-400")
    assert last["why"] == "no done in it"
    assert saves("ls", "--name=iter_0000300", end=None).summary["ends"][0]["step"] == 300
    assert saves("ls", "--name=999", end=None).code == 3


def test_what_was_sent_is_compared_and_comes_back(saves, near, s3):
    """File by file; one byte is enough to tell."""
    assert saves("push").summary["pushed"] == ["step-300"]
    ended = saves("verify")
    assert (ended.code, ended.summary["verified"]) == (0, ["step-300"])
    assert ended.summary["unverified"] == ["step-100", "step-200"]
    s3.put("step-300/shards/0.bin", b"of step-301")
    ended = saves("verify")
    assert (ended.code, ended.summary["damaged"]) == (4, ["step-300"])
    assert "step-300: damaged: 1 files differ in S3, such as step-300/shards/0.bin" in ended.stderr
    assert saves("push", "--all").summary["pushed"] == ["step-300", "step-200", "step-100"]
    s3.put("step-500/shards/0.bin", b"of step-500")
    s3.put("step-500/done", b"")
    ended = saves("pull")
    assert (ended.code, ended.summary["pulled"]) == (0, "step-500")
    assert (near / "step-500" / "shards" / "0.bin").read_bytes() == b"of step-500"
    assert not list(near.glob("*.arriving"))
    s3.put("step-600/../../escaped", b"x")
    s3.put("step-600/done", b"")
    assert saves("pull", "--name=600").code == 4
    assert not (near.parent / "escaped").exists()


def test_old_ones_go_at_both_ends_and_what_is_not_complete_stays(saves, near, s3):
    """What is said first is what is done then."""
    assert saves("push", "--all").code == 0
    told = saves("prune", "--keep-last=2", "--dry-run").summary
    going = [(row["name"], row["where"]) for row in told["goes"]]
    assert ("step-100", "local") in going
    assert len(going) == 2
    assert {row["why"] for row in told["stays"]} == {"one of the newest", "no done in it"}
    done = saves("prune", "--keep-last=2", *(f"--only={name}" for name, _ in going)).summary
    assert done["removed_locally"] == ["step-100"]
    assert len(done["removed"]) == 1
    assert sorted(path.name for path in near.glob("step*")) == ["step-200", "step-300", "step-400"]
    assert len({name.partition("/")[0] for name in s3.names()}) == 2
