"""What train_fsdp survives: kills, signals, torn checkpoints, full disks; and what ends it."""

import json
import os
import pickle
import random
import shutil
import signal
import time

import pytest

from megatron_eks.programs.checkpoint import manifests
from tests.programs.trainer_files import Run

pytestmark = pytest.mark.programs

CLOSE = 1e-6
# More of them for a long look: KILLS=100 pytest tests/programs/test_train_fsdp_faults.py -k killed
KILLS = int(os.environ.get("KILLS", "2"))


class Touch:
    """Makes a file when it is read back."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        """Name the command."""
        return os.system, (f"touch {self.path}",)


def wait_for(process, happened, what: str) -> None:
    """Wait until something has happened in a run, or it is at its end."""
    deadline = time.monotonic() + 300
    while not happened() and process.poll() != 0:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"no {what} in 300 s"
        time.sleep(0.001)


def steps_done(run: Run) -> int:
    """Return how many lines of metrics there are."""
    path = run.checkpoints / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def newest(run: Run) -> int:
    """Return the step of the newest whole checkpoint."""
    return int(max(run.saved(), default="_0").split("_")[1])


def kill_somewhere(run: Run, anywhere: random.Random) -> None:
    """Start it and kill a rank, or all at once: while it starts, after some steps, in mid-save."""
    step = newest(run) + anywhere.randint(2, 4)
    started = time.monotonic() + anywhere.uniform(0, 4)
    process = run.start(2)
    moments = {
        "start": lambda: time.monotonic() > started,
        "step": lambda: run.checkpoints.exists() and steps_done(run) >= step,
        "save": lambda: any(run.checkpoints.glob(f"*iter_{step:07d}")),
    }
    moment = anywhere.choices([*moments], [1, 2, 3])[0]
    wait_for(process, moments[moment], moment)
    time.sleep(anywhere.choice([0, anywhere.uniform(0, 0.2)]))
    run.kill(process, anywhere.choice([None, 0, 1]))


@pytest.mark.long
def test_killed_run_ends_as_if_nothing_had_been(trained):
    """Killed anywhere, with a save under way nearly always, it never resumes from half a state."""
    run, _ = trained
    if KILLS > 3:
        run = run.copy("undisturbed")
        run.config["training"]["max_steps"] = run.config["checkpoint"]["interval"] = 12 * KILLS
        assert run.run(2).returncode == 0
    killed = run.copy("killed")
    killed.config["checkpoint"]["interval"] = 1
    anywhere = random.Random(KILLS)  # noqa: S311 -- no secret
    for _ in range(KILLS):
        kill_somewhere(killed, anywhere)
    saved = newest(killed)
    # Nothing disturbs the rest, and a thousand saves take minutes.
    killed.config["checkpoint"]["interval"] = run.config["checkpoint"]["interval"]
    done = killed.run(2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_from"] == saved
    assert killed.losses() == pytest.approx(run.losses(), abs=CLOSE)


def test_torn_checkpoint_is_passed_over(trained):
    """A file cut short, a tracker cut short and a save left halfway: the one before is whole."""
    run, _ = trained
    torn = run.resumed("torn", without="iter_0000012")
    shutil.copytree(run.checkpoints / "iter_0000012", torn.checkpoints / "iter_0000012")
    shutil.copytree(run.checkpoints / "iter_0000012", torn.checkpoints / ".saving-iter_0000012")
    part = torn.checkpoints / "iter_0000012" / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:-1])
    (torn.checkpoints / "latest_checkpointed_iteration.txt").write_text("1")
    with (torn.checkpoints / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 13, "lo')
    done = torn.run(2)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_from"] == 8
    assert torn.losses() == pytest.approx(run.losses(), abs=CLOSE)
    assert torn.saved() == ["iter_0000008", "iter_0000012"]
    assert list(torn.checkpoints.glob(".saving-*")) == []


@pytest.mark.parametrize("damages", [("cut", "other bytes"), ("last file gone", "cut")])
def test_run_never_begins_anew_where_a_checkpoint_was(trained, damages):
    """All are damaged: what is wrong with each is said, and nothing is touched."""
    run, _ = trained
    lost = run.copy(damages[0].replace(" ", "-"))
    shutil.copytree(run.checkpoints, lost.checkpoints)
    for damage, path in zip(damages, sorted(lost.checkpoints.glob("iter_*")), strict=True):
        part = path / "__1_0.distcp"
        if damage == "cut":
            os.truncate(part, 1000)
        elif damage == "other bytes":
            part.write_bytes(bytes(part.stat().st_size))
        else:
            (path / "metadata.json").unlink()
            (path / "manifest.json").unlink()
    before = sorted(path.name for path in lost.checkpoints.iterdir())
    done = lost.alone()
    assert done.returncode == 4
    assert "checkpoints are there, and none can be loaded: iter_0000012: " in done.stderr
    assert "; iter_0000008: " in done.stderr
    assert "to start over on purpose move them away" in done.stderr
    assert sorted(path.name for path in lost.checkpoints.iterdir()) == before


def test_hostile_checkpoint_runs_nothing(trained, tmp_path):
    """Whoever may write here may let a pickle name a command; it is refused, manifest or not."""
    run, _ = trained
    hostile = run.copy("hostile")
    path = hostile.checkpoints / "iter_0000012"
    shutil.copytree(run.checkpoints / "iter_0000012", path)
    (path / ".metadata").write_bytes(pickle.dumps(Touch(tmp_path / "it-ran")))
    (path / "manifest.json").unlink()
    done = hostile.alone()
    assert done.returncode == 4
    assert "it names posix.system, which no checkpoint needs" in done.stderr
    manifest = manifests.of_directory(path, threads=1)
    manifests.write(path, manifest)
    done = hostile.alone()
    assert done.returncode == 4
    assert "it names posix.system, which no checkpoint needs" in done.stderr
    assert not (tmp_path / "it-ran").exists()


def test_sigterm_saves_and_ends(trained):
    """Of all ranks the same step is saved, though the signal reaches them at different times."""
    run, _ = trained
    stopped = run.copy("stopped")
    stopped.config["training"]["max_steps"] = 100000
    stopped.config["checkpoint"]["interval"] = 100000
    process = stopped.start(2)
    wait_for(process, lambda: steps_done(stopped) >= 2, "step")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    # torchrun itself ends by the signal, so the job is not taken for finished.
    assert process.returncode != 0
    summary = json.loads(out)
    assert summary["status"] == "stopped", err
    assert stopped.saved() == [f"iter_{summary['step']:07d}"]
    assert len(stopped.losses()) == summary["step"]


def test_loss_that_is_no_number_ends_the_run(trained):
    """With a message and exit code 4, and nothing of it in a checkpoint."""
    run, _ = trained
    wild = run.copy("wild")
    wild.config["training"] |= {"learning_rate": 1e30, "warmup_iters": 0, "clip_grad": 0}
    wild.config["checkpoint"]["interval"] = 1
    done = wild.alone()
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error")]
    step = len(wild.losses()) + 1
    assert line.startswith(f"error train_fsdp: step {step}: loss ")
    assert line.endswith("or look at the data of this step")
    assert max(wild.saved(), default="") < f"iter_{step:07d}"
