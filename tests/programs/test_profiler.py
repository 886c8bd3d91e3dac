"""Traces of real trainings on CPUs, asked for before they run or while they do."""

import json
import os
import subprocess
import sys
import time

import pytest

from megatron_eks.ops.jobs import profile, trace
from megatron_eks.programs.profile_request import FILE, Wish
from megatron_eks.programs.start.profiler import Profiler, _Capture
from tests.programs import run_program, trainer_files
from tests.programs.megatron_run import MegatronRun, prepare
from tests.programs.trainer_files import Run

pytestmark = pytest.mark.programs


def ask(logs, *words):
    """Run profile_request; return its JSON line."""
    command = [sys.executable, "-m", "megatron_eks.programs.profile_request", str(logs), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 -- the program under test
    return json.loads(done.stdout)


def recorded(root, command, *more, **environment):
    """Run a command as a container does, with a record of it; return where that is."""
    logs = root / "logs" / "job"
    ask(logs, "--steps", "5:6", *more)
    (root / "pod").mkdir()
    environment = trainer_files.environment() | environment | {"TMPDIR": str(root / "pod")}
    words = [sys.executable, "-m", "megatron_eks.programs.record", str(logs), "7", *command]
    done = subprocess.run(  # noqa: S603 -- as above
        words,
        env=environment,
        cwd=run_program.ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return logs


def of(logs):
    """Return what the traces of the first start say, after the checks that all have in common."""
    told = ask(logs)
    names = [f"rank-{rank:05}.steps-5-6.json.gz" for rank in (0, 1)]
    assert (told["found"], told["files"]) == (str(logs / "0001" / "profile"), names)
    traces = [trace.read(logs / "0001" / "profile" / name) for name in names]
    for each in traces:
        assert (each.first, each.last, each.on_gpu) == (5, 6, False)
        assert each.computing + each.waiting + each.idle == pytest.approx(each.seconds)
        assert 0 < each.waiting <= each.communicating < each.seconds
        assert "gloo:all_reduce" in {use.name for use in each.uses}
    return traces


def test_train_fsdp_is_traced(tmp_path, programs_python):
    """Two steps of both ranks: the product of two layers' matrices is as often in it as it must."""
    run = Run(tmp_path, programs_python)
    run.config["training"]["max_steps"] = 8
    traces = of(logs := recorded(tmp_path, run.command(2)))
    products = {use.calls for each in traces for use in each.uses if use.name == "aten::mm"}
    # Seven matrices a layer and the head: forward, and backward by weights and by inputs. An
    # operator counts once, whatever it calls.
    assert len(products) == 1, products
    assert "Rank 1: longest operators" in profile.page("job", traces, logs)


@pytest.mark.parametrize("found", [True, pytest.param(False, marks=pytest.mark.long)])
def test_nsys_starts_the_ranks_once(tmp_path, programs_python, found):
    """With their own command, and the exit code stays theirs; without it they only say so.

    A stand-in: nsys is in no package registry that tests use. Like it, it stays above the rank.
    """
    (tools := tmp_path / "tools").mkdir()
    if found:
        lines = 'echo "$@" > "$TMPDIR/$RANK"', 'until [ -x "$1" ]; do shift; done', '"$@"'
        (tools / "nsys").write_text("\n".join(("#!/bin/sh", *lines, "")))
        (tools / "nsys").chmod(0o755)
    run = Run(tmp_path, programs_python)
    run.config["training"]["max_steps"] = 6
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    logs = recorded(tmp_path, run.command(1), "--nsys", PATH=path)
    said = (logs / "0001" / "rank-00000.log").read_text()
    trace = logs / "0001" / "profile" / "rank-00000.steps-5-6"
    assert trace.with_name(f"{trace.name}.nsys-rep").read_bytes() == b""
    assert ("nsys is not in this image - training goes on" in said) == (not found)
    assert ask(logs)["found"] is None
    if found:
        words = (tmp_path / "pod" / "0").read_text()
        assert f"--export=sqlite --force-overwrite=true --output={trace} {programs_python}" in words
        # There is no GPU: its profiler cannot be told to begin.
        assert said.count("training goes on without it") == 1


def test_nsys_collects_the_steps_and_nothing_else(tmp_path, monkeypatch, capsys):
    """From the end of the step before the first; a run that comes too late says so."""
    told, at = [], [0]
    monkeypatch.setattr(_Capture, "_tell", lambda _, what: told.append((what, at[-1])))
    for begin in (1, 9):
        profiler = Profiler(tmp_path, tmp_path / "0001", 0, 4, nsys="10:12")
        for step in range(begin, 15):
            at.append(step)
            profiler.after_step(step)
    assert told == [("start", 9), ("stop", 12)]
    said = capsys.readouterr().err
    assert "rank-00000.steps-10-12.*" in said
    assert said.count("steps 10 to 12 are over") == 1


@pytest.mark.long
def test_megatron_is_traced(tmp_path, tokenizer):
    """Through PyTorch's hook on its optimizer's step, without an option of its own."""
    run = MegatronRun(tmp_path / "run", prepare(tmp_path, tokenizer), tokenizer)
    run.training = {"train_iters": 8}
    of(recorded(tmp_path, run.command(2), MEGATRON_LM=str(megatron_lm())))


def megatron_lm():
    """Return where the demo's Megatron is."""
    return run_program.ROOT / "megatron_eks" / "demo" / "megatron"


@pytest.fixture
def rank(tmp_path, monkeypatch):
    """Return a rank whose traces are names of steps, and the folder of its record."""
    monkeypatch.setattr("megatron_eks.programs.start.profiler._LOOK_SECONDS", 0.01)
    (tmp_path / "0001").mkdir()
    found = Profiler(tmp_path, tmp_path / "0001", 0, 4)
    begun = []
    monkeypatch.setattr(found, "_begin", lambda *steps: begun.append(steps))
    return found, tmp_path, begun


@pytest.mark.parametrize(
    ("ranks", "at", "begun"),
    [
        ((), 8, [(10, 12)]),
        ((), 9, [(11, 12)]),
        ((), 11, []),
        ((0,), 8, [(10, 12)]),
        ((3,), 8, []),
    ],
)
def test_a_request_is_for_some_ranks_and_some_steps(rank, ranks, at, begun, capsys):
    """A step warms up; who learns of it late traces what is left, or says that it is too late."""
    profiler, folder, found = rank
    ask(folder, "--steps", "10:12", *(f"--rank={each}" for each in ranks))
    time.sleep(0.3)
    for step in range(at, at + 3):
        profiler.after_step(step)
        if found:
            break
    assert found == begun
    assert ("steps 10 to 12 are over" in capsys.readouterr().err) == (at == 11)


def test_a_rank_that_has_given_its_trace_gives_no_other(rank):
    """Until somebody asks again, which a restart is not."""
    profiler, folder, _ = rank
    assert ask(folder, "--steps", "10:12")["found"] is None
    assert profiler._place.wish() == Wish(10, 12)  # noqa: SLF001 -- what its thread does
    (folder / "0001" / "profile").mkdir()
    (folder / "0001" / "profile" / "rank-00000.steps-10-12.json.gz").touch()
    assert profiler._place.wish() is None  # noqa: SLF001 -- as above
    (folder / FILE).unlink()
    time.sleep(0.05)
    ask(folder, "--steps", "20:21")
    assert profiler._place.wish() == Wish(20, 21)  # noqa: SLF001 -- as above


def test_a_profiler_that_fails_stops_no_training(rank, monkeypatch, capsys):
    """It is said once, and not tried again at each step."""
    profiler, folder, _ = rank
    ask(folder, "--steps", "10:12")
    time.sleep(0.3)

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(profiler, "_begin", broken)
    for step in (8, 9, 10):
        profiler.after_step(step)
    assert capsys.readouterr().err.count("No space left on device - training goes on") == 1
