"""`meks ckpt` and damaged checkpoints: none is counted, sent, fetched or resumed as whole."""

import json

import pytest

from megatron_eks.ops.data import checkpoints
from megatron_eks.ops.data.target import Target
from megatron_eks.ops.programs import Here, environment_for
from tests.consoles import console, written
from tests.programs import saved
from tests.programs.s3_world import URI

TRACKER = "latest_checkpointed_iteration.txt"
SECRET = b"not of this run"

# Each starts commands.
pytestmark = pytest.mark.tools


def trainer(root, step):
    """Write a checkpoint as train_fsdp.py does, without its manifest, as older ones are."""
    directory = saved.megatron(root, step)
    (directory / "common.pt").unlink()
    (directory / "metadata.json").unlink()
    sizes = {path.name: path.stat().st_size for path in directory.glob("[._]*")}
    content = {"sharded_backend": "torch_dcp", "trainer": {"step": step}, "files": sizes}
    (directory / "metadata.json").write_text(json.dumps(content))
    return directory


def cut(directory):
    """Truncate a file."""
    with (directory / "__0_0.distcp").open("r+b") as file:
        file.truncate(10)


def change(directory):
    """Change a byte in the middle of a tensor; sizes stay."""
    with (directory / "__0_0.distcp").open("r+b") as file:
        file.seek(20_000)
        old = file.read(1)
        file.seek(20_000)
        file.write(bytes([old[0] ^ 1]))


def steps(root):
    """Return the iterations that are there."""
    return [int(path.name.removeprefix("iter_")) for path in sorted(root.glob("iter_*"))]


@pytest.fixture
def run(tmp_path):
    """Return three checkpoints of a trainer with their manifests, and the newest one's tracker."""
    root = tmp_path / "run"
    for step in (50, 100, 150):
        saved.seal(trainer(root, step))
    (root / TRACKER).write_text("150")
    return root


@pytest.mark.parametrize("sealed", [True, False])
def test_a_prune_keeps_good_ones_beside_a_truncated_newest(meks, as_json, run, sealed):
    """What the trainer refuses, every command calls damaged, and nothing else is removed."""
    cut(run / "iter_0000150")
    if not sealed:
        for path in run.glob("iter_*/manifest.json"):
            path.unlink()
    done = meks("ckpt", "prune", run, "--keep-last", "1", "--yes")
    assert steps(run) == [50, 100, 150], done.stdout
    assert done.returncode == 4
    assert "__0_0.distcp has 10 bytes, 50,239 expected" in done.stderr
    good = "whole" if sealed else "unverified"
    shown = as_json("ls", run)
    assert [row["state"] for row in shown["checkpoints"]] == [good, good, "damaged"]
    assert shown["restart"]["takes"] == "iter_0000100"
    found = as_json("verify", run, code=4)["checkpoints"]
    assert [each["state"] for each in found] == [good, good, "damaged"]


@pytest.mark.parametrize(
    ("tracker", "code", "left"), [(150, 4, [50, 100, 150]), (100, 0, [100, 150])]
)
def test_a_prune_reads_what_has_to_stay(meks, run, tracker, code, left):
    """Sizes tell nothing of a byte; what was shown as going stays if it may be needed."""
    change(run / "iter_0000150")
    (run / TRACKER).write_text(str(tracker))
    done = meks("ckpt", "prune", run, "--keep-last", "1", "--yes")
    assert (done.returncode, steps(run)) == (code, left), done.stderr
    assert "all bytes of what a restart may need are read first" in done.stderr
    assert "iter_0000150: __0_0.distcp has changed since it was saved" in done.stderr
    stays = [line for line in done.stderr.splitlines() if line.startswith("iter_0000050 stays: ")]
    assert bool(stays) == (code == 4)


def test_where_all_are_damaged_nothing_is_taken_sent_or_pruned(meks, as_json, s3, run):
    """Each command says so, and how to go on."""
    for path in run.glob("iter_*"):
        cut(path)
    done = meks("ckpt", "ls", run)
    assert done.stdout.count("damaged: __0_0.distcp has 10 bytes, 50,239 expected") == 3
    last, before = done.stdout.splitlines()[-1], done.stdout.splitlines()[-2]
    assert before == "newest whole: none"
    assert last.startswith("a restart takes: none of these (no checkpoint can be loaded: ")
    assert "checkpoints are there, and none can be loaded" in done.stderr
    assert "to start over on purpose move them away" in done.stderr
    assert as_json("ls", run)["newest_whole"] is None
    pushed = meks("ckpt", "push", run, URI, "--all")
    assert (pushed.returncode, pushed.stdout, s3.names()) == (4, "", [])
    assert "iter_0000150: damaged: __0_0.distcp has 10 bytes" in pushed.stderr
    assert meks("ckpt", "prune", run, "--keep-last", "1", "--yes").returncode == 4
    assert steps(run) == [50, 100, 150]


def test_damaged_ones_are_passed_over_on_the_way_to_s3_and_back(meks, s3, run, tmp_path):
    """One cut before and one changed after its manifest; the whole one between them is sent."""
    cut(run / "iter_0000150")
    change(run / "iter_0000050")
    done = meks("ckpt", "push", run, URI, "--all")
    assert (done.returncode, done.stdout) == (4, f"iter_0000100 is in {URI}\n")
    assert "iter_0000150: damaged: __0_0.distcp has 10 bytes" in done.stderr
    assert "changed since its manifest was written" in done.stderr
    assert s3.json("latest")["name"] == "iter_0000100"
    assert "iter_0000050/manifest.json" not in s3.names()
    pulled = meks("ckpt", "pull", URI, "--local", tmp_path / "far")
    assert pulled.returncode == 0, pulled.stderr
    assert steps(tmp_path / "far") == [100]


def test_a_pull_takes_the_next_older_whole_one(meks, as_json, s3, run, tmp_path):
    """Where S3's newest is damaged, and says so; where it was asked for by name, it is an error."""
    meks("ckpt", "push", run, URI, "--all")
    key = next(key for key in s3.names() if key.startswith("iter_0000150/") and "__0_0" in key)
    s3.put(key, b"")
    done = meks("ckpt", "pull", URI, "--local", tmp_path / "far")
    assert (done.returncode, steps(tmp_path / "far")) == (0, [100]), done.stderr
    assert "warning s3://checkpoints/run/iter_0000150: __0_0.distcp has 0 bytes" in done.stderr
    assert as_json("ls", tmp_path / "far")["restart"]["takes"] == "iter_0000100"
    named = meks("ckpt", "pull", URI, "--local", tmp_path / "none", "--iteration", "150")
    assert (named.returncode, named.stdout) == (4, "")
    assert steps(tmp_path / "none") == []


def test_verify_of_both_ends_reads_a_directory_that_was_never_sent(s3, run):
    """A job's first push is still to come; S3 without a copy is no reason to look at none."""
    change(run / "iter_0000100")
    told = console()
    target = Target("job", directory=str(run), uri=URI)
    here = Here(environment_for("us-east-1"))
    assert checkpoints.verify(target, here, told, name=None, output="table") == 4
    assert s3.names() == []
    rows = [line.split() for line in written(told).splitlines()[1:]]
    assert [row[:2] for row in rows] == [
        *(["iter_0000050", "whole"], ["iter_0000100", "damaged:"], ["iter_0000150", "whole"])
    ]


@pytest.mark.parametrize("name", ["iter_00000100", "iter_0000\u066100"])
def test_another_spelling_of_an_iteration_shadows_nothing(meks, as_json, s3, run, name):
    """Neither in S3 nor in a directory, with more zeros or with digits of another script."""
    trainer(run.with_name("other"), 100).rename(run / name)
    s3.put(f"{name}/manifest.json", b"{}")
    meks("ckpt", "push", run, URI, "--all")
    (run / TRACKER).write_text("100")
    for where in (run, URI):
        rows = as_json("ls", where)["checkpoints"]
        assert [(row["iteration"], row["state"]) for row in rows] == [
            *((50, "whole"), (100, "whole"), (150, "whole"))
        ]
    done = meks("ckpt", "prune", run, "--keep-last", "1", "--yes")
    assert (done.returncode, (run / name).is_dir()) == (0, True)


@pytest.mark.parametrize("form", ["file", "directory", "beside"])
def test_a_push_follows_no_link(meks, s3, run, tmp_path, form):
    """Out of the checkpoint nothing is sent; the link is named, and the others go."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    place = run / "iter_0000100"
    if form == "file":
        (place / "nested" / "empty").unlink()
        (place / "nested" / "empty").symlink_to(outside / "secret")
        (place / "manifest.json").unlink()
    elif form == "directory":
        (place / "more").symlink_to(outside)
    else:
        (place / "other.pt").symlink_to("__0_0.distcp")
    done = meks("ckpt", "push", run, URI, "--all")
    assert done.returncode == 4
    sent = [f"iter_0000{step:03d} is in {URI}" for step in (50, 150)]
    assert done.stdout.splitlines() == sent
    link = {"file": "nested/empty", "directory": "more", "beside": "other.pt"}[form]
    assert f"error {place / link}: it is no file of the checkpoint" in done.stderr
    assert not [key for key in s3.names() if key.startswith("iter_0000100")]
    assert s3.json("latest")["name"] == "iter_0000150"
