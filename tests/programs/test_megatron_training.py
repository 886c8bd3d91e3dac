"""Megatron itself on CPUs: its layouts agree, and a run continues from what it saved."""

import contextlib
import time
from pathlib import Path

import pytest

from megatron_eks.diagnosis.diagnose import diagnose
from megatron_eks.programs import run_log
from tests.programs.megatron_run import (
    INTERVAL,
    ITERATIONS,
    TRACKER,
    MegatronRun,
    from_iteration,
    prepare,
)

pytestmark = pytest.mark.programs

CLOSE = 1e-6
"""Of a resume in the same layout; Megatron prints seven digits."""
ROUNDING = 1e-5
"""Between layouts, which add the same numbers in another order; losses are 5 to 7."""
FIRST = f"iter_{INTERVAL:07d}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tokenizer) -> tuple[MegatronRun, dict[int, float]]:
    """Return an undisturbed run of two ranks, tensor and sequence parallel, and its losses."""
    root = tmp_path_factory.mktemp("megatron")
    run = MegatronRun(root / "trained", prepare(root, tokenizer), tokenizer)
    return run, run.run(2)


def test_it_learns_and_saves(trained):
    """On data of prepare_data the loss falls, and asynchronous saves are whole."""
    run, losses = trained
    assert list(losses) == list(range(1, ITERATIONS + 1))
    assert losses[1] == pytest.approx(6.9, abs=0.1)  # ln 1000: it knows nothing yet
    assert losses[ITERATIONS] < losses[1] - 1
    assert run.saved() == [f"iter_{each:07d}" for each in range(INTERVAL, ITERATIONS + 1, INTERVAL)]
    assert (run.save / TRACKER).read_text() == str(ITERATIONS)


def test_refused_arguments_end_it_before_ranks_meet(trained):
    """With Megatron's own sentence, and the exit code of a wrong command line."""
    run, _ = trained
    refused = run.another("refused")
    refused.extra = ("--eval-global-batch-size", "3")
    done = refused.alone(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    assert done.returncode == 2, done.stderr[-4000:]
    assert done.stderr.splitlines()[-1] == (
        "error Megatron: eval_global_batch_size (3) must be divisible by eval_micro_batch_size (2) "
        "* data_parallel_size (1) - change extra_args, or the key that it speaks of"
    )


def test_its_log_tells_what_it_did(trained):
    """What `meks status` reads of it: steps and checkpoints, of all ranks of a pod together."""
    run, losses = trained
    resumed = run.another("told", resuming=FIRST)
    resumed.run(2)
    for each, first in ((run, 0), (resumed, INTERVAL)):
        log = run_log.read(each.said.splitlines())
        assert [step.step for step in log.steps] == list(range(first + 1, ITERATIONS + 1))
        assert {step.steps for step in log.steps} == {ITERATIONS}
        assert all(step.seconds and step.samples for step in log.steps)
        saves = range(first + INTERVAL, ITERATIONS + 1, INTERVAL)
        assert [mark.step for mark in log.saves] == list(saves)
        assert [mark.step for mark in log.loads] == ([first] if first else [])
    told = {step.step: step.loss for step in log.steps}
    assert told == pytest.approx(from_iteration(losses, INTERVAL), abs=ROUNDING)


def test_more_iterations_and_another_schedule_go_on(trained):
    """What the job file says by now holds, and the checkpoint's schedule is no refusal."""
    run, losses = trained
    more = run.another("more", resuming=f"iter_{ITERATIONS:07d}")
    more.training = {
        "train_iters": 2 * ITERATIONS,
        "global_batch_size": 16,
        "lr_schedule": "linear",
        "warmup_iters": 1,
        "weight_decay": 0.01,
    }
    found = more.run(2)
    assert list(found) == list(range(ITERATIONS + 1, 2 * ITERATIONS + 1))
    assert found[2 * ITERATIONS] < losses[1] - 1


@pytest.mark.parametrize(
    "rate", ["learning_rate", pytest.param("min_learning_rate", marks=pytest.mark.long)]
)
def test_another_rate_ends_a_resume_with_its_reason(trained, rate):
    """Core finds the optimizer's state by both, whatever is said of the schedule."""
    resumed = trained[0].another(rate, resuming=FIRST, tensor=1)
    resumed.training = {rate: 1e-3}
    process = resumed.start(1)
    said, _ = process.communicate(timeout=300)
    assert process.returncode
    assert diagnose(said.splitlines()).cause.startswith("The learning rate or its minimum differs")


@pytest.mark.long
def test_another_rate_begins_a_run_from_the_weights(trained):
    """As the message about it says: in another directory, from what the old one has learnt."""
    run, losses = trained
    anew = run.another("anew", tensor=1)
    anew.pretrained = run.save
    anew.training = {"learning_rate": 1e-3, "warmup_iters": 1, "train_iters": 2}
    found = anew.run(1)
    assert list(found) == [1, 2]
    assert found[1] < losses[1] - 1
    assert "learning rate: 1.000000E-03" in anew.said


@pytest.mark.long
def test_data_parallel_learns_the_same(trained):
    """Two replicas take the steps that two halves of a layer take, from the same weights."""
    run, losses = trained
    assert run.another("data", tensor=1).run(2) == pytest.approx(losses, abs=ROUNDING)


@pytest.mark.long
@pytest.mark.parametrize(
    ("ranks", "layout"),
    [
        pytest.param(1, {"tensor": 1}, id="one rank"),
        pytest.param(4, {"pipeline": 2}, id="pipeline of 2 and 2 replicas"),
    ],
)
def test_checkpoint_is_taken_to_another_layout(trained, ranks, layout):
    """Saved by two tensor parallel ranks, resumed by others: the losses stay the same."""
    run, losses = trained
    name = "-".join(map(str, [ranks, *layout]))
    moved = run.another(name, resuming=FIRST, **layout)
    assert moved.run(ranks) == pytest.approx(from_iteration(losses, INTERVAL), abs=ROUNDING)


@pytest.mark.long
def test_planned_arguments_train(trained):
    """As a job file of fp8 leads to them, over a pipeline from its first iteration, in bf16."""
    run, _ = trained
    planned = run.another("planned", pipeline=2)
    planned.precision, planned.left_out, planned.extra = "fp8", frozenset(), ()
    losses = planned.run(2)
    assert list(losses) == list(range(1, ITERATIONS + 1))
    assert losses[ITERATIONS] < losses[1] - 1


@pytest.mark.long
def test_continued_pre_training(trained):
    """A new run starts at iteration 1, with the base's weights."""
    run, losses = trained
    tuned = run.another("tuned")
    tuned.pretrained = run.save
    found = tuned.run(2)
    assert list(found) == list(range(1, ITERATIONS + 1))
    # What the base has learnt of these documents; random weights have 6.9.
    assert found[1] < (losses[1] + losses[ITERATIONS]) / 2


@pytest.mark.long
def test_killed_in_mid_save(trained):
    """A half checkpoint and a torn tracker are passed over, base weights too: the same losses."""
    run, losses = trained
    killed = run.another("killed", resuming=FIRST)
    killed.pretrained = run.save
    second = killed.save / f"iter_{2 * INTERVAL:07d}"
    process = killed.start(2)
    _wait_until(lambda: _has_entries(second), process)
    killed.kill(process)
    assert not (second / "metadata.json").exists()
    (killed.save / TRACKER).write_text("")
    assert killed.run(2) == pytest.approx(from_iteration(losses, INTERVAL), abs=CLOSE)
    assert (second / "metadata.json").exists()


def _has_entries(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return any(folder.iterdir())
    return False


def _wait_until(happened, process) -> None:
    deadline = time.monotonic() + 300
    while not happened():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.001)
