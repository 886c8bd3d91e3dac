"""What our trainers send to trackers; the packages are stand-ins that write down what they get."""

import json
import os
import subprocess
import sys

import pytest

from megatron_eks.programs.exporter.plan import VARIABLE, Plan
from tests.programs.run_program import command
from tests.programs.test_exporter import MEGATRON
from tests.programs.trainer_files import Run

pytestmark = pytest.mark.programs

# With the parameters of wandb 0.2x and mlflow 3, so that another call is a TypeError here too.
WANDB = """
import json, os
said = open(os.environ["SAID"], "a")
def tell(**what): print(json.dumps(what), file=said, flush=True)
def init(project=None, name=None, dir=None, config=None):
    if os.environ.get("WANDB_MODE") == "broken": raise RuntimeError("api_key not configured")
    tell(began="wandb", project=os.environ["WANDB_PROJECT"])
    return Run()
class Run:
    def log(self, data, step=None, commit=None): tell(wandb=data, step=step)
    def finish(self, exit_code=None): tell(ended="wandb")
"""
MLFLOW = """
from wandb import tell
def start_run(run_id=None, experiment_id=None, run_name=None): tell(began="mlflow", run=run_name)
def log_metrics(metrics, step=None, synchronous=None, run_id=None): tell(mlflow=metrics, step=step)
def end_run(status="FINISHED"): tell(ended="mlflow")
"""


@pytest.fixture
def run(programs_python, tmp_path, monkeypatch):
    """Return a run of four steps, and a function that gives what its trackers were told."""
    (packages := tmp_path / "packages").mkdir()
    (packages / "wandb.py").write_text(WANDB)
    (packages / "mlflow.py").write_text(MLFLOW)
    (said := tmp_path / "said").touch()
    monkeypatch.setenv("PYTHONPATH", str(packages), prepend=":")
    monkeypatch.setenv("SAID", str(said))
    monkeypatch.setenv("WANDB_PROJECT", "techpulse")
    monkeypatch.setenv("WANDB_NAME", "fsdp-tiny")
    made = Run(tmp_path, programs_python)
    made.config["training"] |= {"max_steps": 4, "log_interval": 2}
    return made, lambda: [json.loads(line) for line in said.read_text().splitlines()]


def test_figures_of_logged_steps_are_sent(run):
    """To both at once, as numbers, and the runs are ended."""
    made, told = run
    done = made.alone("--track=wandb", "--track=mlflow")
    assert done.returncode == 0, done.stderr
    assert {"began": "wandb", "project": "techpulse"} in told()
    assert [each for each in told() if "ended" in each] == [{"ended": "wandb"}, {"ended": "mlflow"}]
    for name in ("wandb", "mlflow"):
        sent = [each for each in told() if name in each]
        assert [each["step"] for each in sent] == [2, 4]
        assert sent[-1][name]["loss"] == pytest.approx(made.losses()[-1])
        assert "mfu" not in sent[-1][name]


def test_a_tracker_that_fails_ends_no_training(run, monkeypatch):
    """It is said once, and the rest goes on."""
    made, told = run
    monkeypatch.setenv("WANDB_MODE", "broken")
    done = made.alone("--track=wandb")
    assert done.returncode == 0, done.stderr
    (line,) = (each for each in done.stderr.splitlines() if "runtime.tracking" in each)
    assert line == (
        "warning runtime.tracking: wandb: api_key not configured - training goes on without it"
    )
    assert (len(made.losses()), told()) == (4, [])


@pytest.mark.parametrize("code", [0, 3])
def test_steps_of_megatron_are_sent_from_its_log(run, tmp_path, code):
    """It writes to no MLflow itself. What the plan knows is added; a failure ends the run, too."""
    _, told = run
    plan = Plan("job", "megatron", 0, tokens=12800, peak_seconds=0.8, mlflow=True)
    script = f"print({MEGATRON!r}, end=''); raise SystemExit({code})"
    words = [*command("record", tmp_path / "logs", 7), sys.executable, "-c", script]
    environment = {**os.environ, "TMPDIR": str(tmp_path), VARIABLE: str(plan)}
    assert subprocess.run(words, env=environment, check=False).returncode == code  # noqa: S603 -- ours
    figures = {"loss": 2.5, "grad_norm": 0.75, "seconds": 2.0}
    figures |= {"tokens_per_second": 6400.0, "mfu": 0.4}
    began, ended = {"began": "mlflow", "run": "job"}, {"ended": "mlflow"}
    assert told() == [began, {"mlflow": figures, "step": 20}, ended]


def test_an_arn_needs_the_plugin(run, monkeypatch):
    """MLflow alone would end with an error of its own, after the GPUs have started."""
    made, _ = run
    monkeypatch.setenv(
        "MLFLOW_TRACKING_URI", "arn:aws:sagemaker:us-east-2:123456789012:mlflow-app/a"
    )
    done = made.alone("--track=mlflow")
    assert done.returncode not in {0, 1}
    assert "this image has no package sagemaker_mlflow" in done.stderr


def test_a_missing_package_is_told_before_anything_starts(programs_python, tmp_path):
    """Nobody looks for curves that are nowhere."""
    done = Run(tmp_path, programs_python).alone("--track=mlflow")
    assert done.returncode not in {0, 1}
    assert "this image has no package mlflow" in done.stderr
    assert not (tmp_path / "checkpoints" / "metrics.jsonl").exists()
