"""File systems that are full, closed or lost: what a run does then, and which cause it names."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from megatron_eks.programs.checkpoint import checkpoints
from tests.programs.megatron_files import errors, write_checkpoint
from tests.programs.run_program import ROOT
from tests.programs.test_train_fsdp_faults import CLOSE
from tests.programs.trainer_files import Run, python_says

Mount = Callable[[str, int], Path]

# What is said of a full disk, whatever is to be written.
FULL = "file system full (No space left on device): "
PRUNE = "remove what is not needed (`meks ckpt prune`), or enlarge the file system"

# A rank whose copy of its state fails once, as where memory runs out.
BROKEN_STAGE = """
import os
from torch.distributed.checkpoint.staging import DefaultStager
stage, left = DefaultStager.stage, [os.environ["RANK"]]
def broken(self, state, **words):
    if left == ["1"]:
        left.clear()
        raise RuntimeError("not enough memory for a copy")
    return stage(self, state, **words)
DefaultStager.stage = broken
"""

# A trainer that tries its last save again sooner than in life.
IMPATIENT = """
from megatron_eks.programs.trainer import checkpoint
checkpoint._PAUSES_SECONDS = (0, 0.1, 0.2)
"""

# A rank that tells what it reads, and a node that cannot read one checkpoint.
UNREADABLE = """
import os
from megatron_eks.programs import s3_store
checksum, rank = s3_store.checksum, os.environ["RANK"]
def read(path, part):
    if path.parent.name.startswith("iter_"):
        sys.stderr.write(f"{rank} reads {path.parent.name}/{path.name}\\n")
    if (rank, path.parent.name) == ("1", "iter_0000012"):
        raise OSError(5, "Input/output error", str(path))
    return checksum(path, part)
s3_store.checksum = read
"""

TRAIN = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
%s
from megatron_eks.programs.trainer.parallel import shard
from megatron_eks.programs.trainer.run import main
sys.exit(main("train_fsdp", "", shard, sys.argv[1:]))
"""

LINES = """
import json, sys
from pathlib import Path
from megatron_eks.programs.trainer import metrics
file = metrics.LineFile(Path(sys.argv[1]) / "metrics.jsonl")
for step in range(3000):
    file.append(json.dumps({"step": step, "pad": "x" * 100}))
(Path(sys.argv[1]) / "ballast").unlink()
file.append(json.dumps({"step": 3000}))
file.close()
print(json.dumps(len(file._waiting)))
"""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Return a function that mounts a small file system of so many bytes."""
    mounted = []

    def make(name: str, size: int) -> Path:
        place = tmp_path / name
        place.mkdir(parents=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        subprocess.run(words, check=True)  # noqa: S603 -- the tests of CI run as root
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S603, S607 -- as above


def fill(path: Path, leave: int = 0) -> None:
    """Write a file until nothing, or so many bytes, are left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=0) as file:
        while (free := shutil.disk_usage(path.parent).free - leave) > 0:
            try:
                file.write(b"x" * min(free, 65536))
            except OSError:
                return


def on(run: Run, name: str, directory: Path) -> Run:
    """Return a run that saves in a directory."""
    other = run.copy(name)
    other.checkpoints = directory
    other.config["checkpoint"]["directory"] = str(directory)
    return other


def beginning_with(run: Run, code: str) -> Run:
    """Let a run execute some code before its program."""
    program = run.root / f"{run.checkpoints.name}_program.py"
    program.write_text(TRAIN % code)
    run.program = (str(program),)
    return run


def size_of(run: Run) -> int:
    """Return what a checkpoint of a run takes."""
    return checkpoints.size_bytes(run.checkpoints / run.saved()[-1])


@pytest.mark.long
@pytest.mark.programs
def test_a_full_disk_in_mid_run_costs_the_saves_alone(trained, mount):
    """The run goes on, and saves again as soon as there is room."""
    run, _ = trained
    size = size_of(run)
    place = mount("full", int(4.7 * size))
    ballast = place / "ballast"
    fill(ballast, leave=int(1.7 * size))
    full = on(run, "full", place / "checkpoints")
    full.config["checkpoint"] |= {"interval": 2, "keep_last": 1}
    said = []
    with full.start(2) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if line.startswith("warning checkpoint of step"):
                ballast.unlink(missing_ok=True)
    assert process.returncode == 0, said
    (first, *_) = [line for line in said if line.startswith("warning checkpoint of step 4: ")]
    assert FULL in first
    assert PRUNE in first
    assert first.endswith(" - training goes on\n")
    assert full.losses() == pytest.approx(run.losses(), abs=CLOSE)
    assert full.saved()[-1] == "iter_0000012"
    assert list(full.checkpoints.glob(".saving-*")) == []


@pytest.mark.programs
def test_last_save_that_fails_ends_the_run_with_its_cause(trained, mount):
    """It is tried three times; then the error names the cause, and what a restart takes."""
    run, _ = trained
    place = mount("full", int(1.7 * size_of(run)))
    full = beginning_with(on(run, "last", place / "checkpoints"), IMPATIENT)
    done = full.run(1)
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error train_fsdp: ")]
    assert line.startswith(f"error train_fsdp: the checkpoint of step 12 was not saved: {FULL}")
    assert "the last whole one is iter_0000004" in line
    assert done.stderr.count("warning checkpoint of step 12: ") == 3
    assert PRUNE in line
    assert full.saved() == ["iter_0000004"]
    assert json.loads(done.stdout)["status"] == "failed"


@pytest.mark.programs
def test_ranks_share_the_reading_before_a_resume(trained):
    """Each reads what it has saved, and what one of them cannot read is passed over by all."""
    run, _ = trained
    shared = run.copy("shared")
    shutil.copytree(run.checkpoints, shared.checkpoints)
    done = beginning_with(shared, UNREADABLE).run(2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_from"] == 8
    assert "iter_0000012: __1_0.distcp cannot be read: Input/output error" in done.stderr
    said = [line for line in done.stderr.splitlines() if " reads " in line]
    read = {line for line in said if line.endswith(".distcp")}
    saves = ("iter_0000008", "iter_0000012")
    assert read == {f"{rank} reads {save}/__{rank}_0.distcp" for rank in (0, 1) for save in saves}


@pytest.mark.programs
def test_lines_wait_until_there_is_room(mount, programs_python):
    """None is lost, cut or doubled."""
    place = mount("small", 1024 * 1024)
    fill(place / "ballast", leave=65536)
    assert python_says(programs_python, LINES, place) == 0
    lines = (place / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(3001))


@pytest.mark.programs
def test_metrics_after_the_resumed_step_go_without_room(mount, programs_python):
    """The steps that are done again are cut off in place, with what a crash left of a line."""
    place = mount("cut", 64 * 1024)
    lines = [json.dumps({"step": step}) + "\n" for step in range(1, 9)]
    (place / "metrics.jsonl").write_text("".join(lines) + '{"step": 9, "lo')
    fill(place / "ballast")
    code = (
        "import json, sys; from pathlib import Path\n"
        "from megatron_eks.programs.trainer import metrics\n"
        "metrics._forget_after(Path(sys.argv[1]), 5); print(json.dumps(None))"
    )
    python_says(programs_python, code, place / "metrics.jsonl")
    assert (place / "metrics.jsonl").read_text() == "".join(lines[:5])


@pytest.mark.long
@pytest.mark.programs
def test_a_rank_that_cannot_copy_its_state_holds_up_nobody(trained):
    """All ranks leave that one save out, and go on together."""
    run, _ = trained
    broken = beginning_with(run.copy("broken"), BROKEN_STAGE)
    done = broken.run(2)
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if line.startswith("warning checkpoint")]
    assert warned == [
        "warning checkpoint of step 4: not enough memory for a copy - training goes on"
    ]
    assert broken.losses() == pytest.approx(run.losses(), abs=CLOSE)
    assert broken.saved() == ["iter_0000008", "iter_0000012"]


@pytest.mark.programs
def test_a_restart_frees_its_own_leftovers_first(trained, mount):
    """What a killed save holds is what the next one needs."""
    run, _ = trained
    place = mount("again", int(3.3 * size_of(run)))
    again = on(run, "again", place / "checkpoints")
    shutil.copytree(run.checkpoints / "iter_0000008", again.checkpoints / "iter_0000008")
    shutil.copy(run.checkpoints / "metrics.jsonl", again.checkpoints)
    (again.checkpoints / checkpoints.TRACKER).write_text("8")
    fill(again.checkpoints / ".saving-iter_0000012" / "__0_0.distcp")
    done = again.run(2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_from"] == 8
    assert again.saved() == ["iter_0000008", "iter_0000012"]
    assert ".saving-iter_0000012: left by work that was cut short, and removed" in done.stderr
    assert again.losses() == pytest.approx(run.losses(), abs=CLOSE)


def test_what_a_killed_save_holds_of_a_checkpoints_name_stays(job, mount):
    """What is a part of a checkpoint, or was put there, is for people to remove."""
    job.save = mount("kept", 2**20)
    checkpoints.note_imported(job.save)
    write_checkpoint(job.save, 200)
    newer = write_checkpoint(job.save, 300, whole=False)
    (job.save / checkpoints.TRACKER).write_text("200")
    fill(job.save / "ballast")
    done = job.run()
    (line,) = errors(done.stderr)
    assert line.startswith(f"error {job.save}: cannot be written: {FULL}0.0 MB free of 1.0 MB")
    assert PRUNE in line
    assert "right to write" not in line
    assert done.returncode == 4
    assert newer.is_dir()


def test_a_file_system_that_is_closed_is_called_so(job, mount):
    """Nobody is sent to look for rights or room."""
    job.save = mount("closed", 2**20)
    write_checkpoint(job.save, 200)
    (job.save / checkpoints.TRACKER).write_text("200")
    words = ["mount", "-o", "remount,ro", str(job.save)]
    subprocess.run(words, check=True)  # noqa: S603 -- the tests of CI run as root
    (line,) = errors(job.run().stderr)
    assert (
        "cannot be written: mounted read-only (Read-only file system) - see the node's dmesg"
        in line
    )
