"""What starts a user's program on a node and in a rank, and looks after its checkpoints."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from megatron_eks.project import ROOT
from megatron_eks.shipping import pack, programs
from tests.programs.run_program import run
from tests.programs.s3_world import URI


@pytest.fixture
def image(tmp_path) -> dict[str, str]:
    """Return the variables of an image with a torch, which is only looked for."""
    (tmp_path / "site" / "torch").mkdir(parents=True)
    (tmp_path / "site" / "torch" / "__init__.py").touch()
    return {"PYTHONPATH": os.pathsep.join((str(tmp_path / "site"), str(ROOT)))}


def save(directory: Path, name: str, at: int, marker: str = "done") -> Path:
    """Write a complete checkpoint, as of a time."""
    folder = directory / name
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / "0.bin").write_text(f"of {name}")
    (folder / marker).touch()
    os.utime(folder / marker, (at, at))
    return folder


def test_a_node_unpacks_the_code_and_starts_the_ranks(tmp_path, image):
    """Whatever a start before left, and with the command's own exit code."""
    script = tmp_path / "train.py"
    script.write_text("print('from the archive')\nraise SystemExit(9)\n")
    (tmp_path / "code.tar.gz").write_bytes(pack({"src/train.py": script}))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "old.py").touch()
    place = f"--code={tmp_path / 'code.tar.gz'}", f"--directory={tmp_path / 'code'}"
    rank = "-m", "megatron_eks.programs.torchrun_rank", place[1], "--script=src/train.py"
    done = run("torchrun_node", *place, "--", sys.executable, *rank, "--", environment=image)
    assert (done.code, done.stdout) == (9, "from the archive\n")
    assert not (tmp_path / "code" / "old.py").exists()


def node_of(tmp_path, image, uri):
    """Start a node whose program is in S3."""
    (tmp_path / "code.tar.gz.s3").write_text(uri)
    place = f"--code={tmp_path / 'code.tar.gz'}", f"--directory={tmp_path / 'code'}"
    command = sys.executable, str(tmp_path / "code" / "train.py")
    return run("torchrun_node", *place, "--", *command, environment=image)


def test_a_large_program_comes_from_s3(tmp_path, image, s3):
    """If it is what was submitted; otherwise no rank starts, and it is said what to do."""
    (tmp_path / "train.py").write_text("print('from S3')\n")
    archive = pack({"train.py": tmp_path / "train.py"})
    name = f"{hashlib.sha256(archive).hexdigest()}.tar.gz"
    variables, uri = {**image, **s3.environment}, f"{URI}/code/{name}"
    done = node_of(tmp_path, variables, uri)
    assert done.code == 2
    assert f"error {uri}: the program is not there - meks submit puts it there" in done.stderr
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    s3.client.put_object(Bucket=bucket, Key=key, Body=archive)
    done = node_of(tmp_path, variables, uri)
    assert (done.code, done.stdout) == (0, "from S3\n"), done.stderr
    s3.client.put_object(Bucket=bucket, Key=key, Body=archive + b"x")
    done = node_of(tmp_path, variables, uri)
    assert done.code == 2
    assert f"error {uri}: it is not what was submitted: its SHA-256 is " in done.stderr


def test_a_command_gets_its_words_as_they_are(image):
    """A second `--` is the command's."""
    words = (sys.executable, "-c", "import sys; print(sys.argv[1:])", "-x", "--", "y z")
    done = run("torchrun_rank", "--", *words, environment=image)
    assert (done.code, done.stdout) == (0, "['-x', '--', 'y z']\n")


def test_what_no_rank_can_start_is_said(image):
    """By its name, and what is to be done."""
    done = run("torchrun_rank", "--", "/opt/nothing", environment=image)
    assert done.code == 127
    assert done.stderr.startswith("error /opt/nothing: No such file or directory - ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--", "torchrun-of-nobody"), "error torchrun-of-nobody: no such program in the image"),
        (("--", "sh"), "has no torch - "),
    ],
)
def test_an_image_that_lacks_something_is_refused(words, expected):
    """In one sentence, before ranks start."""
    done = run("torchrun_node", *words)
    assert done.code == 2
    assert expected in done.stderr
    assert done.summary["status"] == "refused"


@pytest.mark.parametrize("unpacked", [False, True])
def test_programs_run_from_their_zip(tmp_path, unpacked):
    """Or unpacked, as in our images; so does what they start, before what is on the path."""
    archive = tmp_path / "programs.zip"
    archive.write_bytes(programs(ROOT))
    if unpacked:
        folder = tmp_path / "packages"
        zipfile.ZipFile(archive).extractall(folder)
        archive = folder
    words = (
        *(sys.executable, str(archive), "record", str(tmp_path / "logs"), "7"),
        *(sys.executable, "-c", "import megatron_eks; print(megatron_eks.__file__)"),
    )
    environment = {**os.environ, "PYTHONPATH": "/nowhere", "TMPDIR": str(tmp_path)}
    done = subprocess.run(  # noqa: S603 -- the program under test
        words, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout.startswith(f"{archive}/"), done.stderr
    (log,) = (tmp_path / "logs" / "0001").glob("rank-00000.log")
    assert "ended with exit code 0" in log.read_text()


def test_the_zip_holds_all_that_its_programs_import(tmp_path):
    """Every program that a job starts in an image says its help from the zip alone."""
    archive = tmp_path / "programs.zip"
    archive.write_bytes(programs(ROOT))
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
    for name in ("torchrun_node", "torchrun_rank", "train_megatron", "checkpoint_sync", "fetch"):
        words = (sys.executable, str(archive), name, "--help")
        done = subprocess.run(  # noqa: S603 -- the program under test
            words, capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr


def test_old_complete_checkpoints_go(tmp_path):
    """By the time of their last file: a run that begins anew counts from 0."""
    for at, name in enumerate(("step-900", "step-950", "10", "step-20"), 1):
        save(tmp_path, name, at)
    (tmp_path / "step-30" / "shards").mkdir(parents=True)
    save(tmp_path, "notes", 0)
    (tmp_path / ".deleting-step-1").mkdir()
    done = run("own_saves", "keep", tmp_path, "--marker=done", "--keep-last=2")
    assert [line.split()[2] for line in done.stderr.splitlines()] == ["step-950,", "step-900,"]
    left = sorted(each.name for each in tmp_path.iterdir())
    assert left == ["10", "notes", "step-20", "step-30"]


def test_complete_checkpoints_are_copied_with_their_last_file_last(tmp_path, s3):
    """Only as many as are kept, and older copies go."""
    words = "keep", tmp_path, URI, "--marker=done", "--keep-last=1"
    save(tmp_path, "step-1", 1)
    assert run("own_saves", *words, environment=s3.environment).code == 0
    assert s3.names() == ["step-1/done", "step-1/shards/0.bin"]
    save(tmp_path, "step-2", 2)
    done = run("own_saves", *words, environment=s3.environment)
    assert s3.names() == ["step-2/done", "step-2/shards/0.bin"]
    assert f"copies to {URI}: whole: up to step-2" in done.stderr
    assert "step-2/done" in s3.proxy.seen("PUT .*step-2")[-1]


def test_copies_that_fail_are_said(tmp_path, s3):
    """In the line that `meks status` reads, and by the exit code."""
    save(tmp_path, "step-1", 1)
    s3.fail("PUT", "403")
    words = "keep", tmp_path, URI, "--marker=done"
    done = run("own_saves", *words, environment=s3.environment)
    assert done.code == 4
    assert f"copies to {URI}: failing: " in done.stderr
    assert "\nerror " not in f"\n{done.stderr}"
