"""What our trainers send to trackers: a real MLflow server, and W&B's own files."""

import json
import os
import subprocess
import sys
import urllib.request
from contextlib import suppress

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.kubernetes.processes import free_port
from megatron_eks.programs.exporter.plan import VARIABLE, Plan
from tests.programs.run_program import command
from tests.programs.test_exporter import MEGATRON
from tests.programs.trainer_files import Run, python_says

pytestmark = pytest.mark.programs

EXPERIMENT = "techpulse"
ARN = "arn:aws:sagemaker:us-east-2:123456789012:mlflow-tracking-server/team"
# Of a run's file: project and name, each step's figures, the exit code.
READ_WANDB = """
import json, sys
told = []
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore
store = DataStore()
store.open_for_scan(sys.argv[1])
while data := store.scan_data():
    (record := Record()).ParseFromString(data)
    if record.HasField("run") and record.run.project:
        told.append({"began": [record.run.project, record.run.display_name]})
    if record.HasField("history"):
        items = {e.key or e.nested_key[0]: json.loads(e.value_json) for e in record.history.item}
        told.append({"step": record.history.step.num, **items})
    if record.HasField("exit"):
        told.append({"ended": record.exit.exit_code})
print(json.dumps(told))
"""


class Mlflow:
    """A server, and what it has got."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path, **body):
        """Return the answer of its REST API."""
        address = f"{self.address}/api/2.0/mlflow/{path}"
        request = urllib.request.Request(address)  # noqa: S310 -- of a server that was started here
        request.add_header("Content-Type", "application/json")
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(request, data, timeout=60) as answer:  # noqa: S310 -- as above
            return json.load(answer)

    def runs(self, experiment):
        """Return the runs: their names and states, and each figure's steps and values."""
        found = self.ask(f"experiments/get-by-name?experiment_name={experiment}")
        number = found["experiment"]["experiment_id"]
        return [
            (
                run["info"]["run_name"],
                run["info"]["status"],
                {
                    each["key"]: self._history(run["info"]["run_id"], each["key"])
                    for each in run["data"].get("metrics", ())
                },
            )
            for run in self.ask("runs/search", experiment_ids=[number]).get("runs", ())
        ]

    def _history(self, run, key):
        found = self.ask(f"metrics/get-history?run_id={run}&metric_key={key}")["metrics"]
        return {int(each["step"]): each["value"] for each in found}


@pytest.fixture(scope="module")
def mlflow(programs_python, tmp_path_factory):
    """Start a server, which is ended afterwards."""
    folder = tmp_path_factory.mktemp("mlflow")
    port = free_port()
    words = ["server", "--workers=1", f"--port={port}", f"--artifacts-destination={folder}"]
    words += [f"--backend-store-uri=sqlite:///{folder}/runs.db"]
    with (folder / "log").open("wb") as log:
        command = [programs_python, "-m", "mlflow", *words]
        server = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 -- the real one
    found = Mlflow(f"http://127.0.0.1:{port}")

    def answers():
        assert server.poll() is None, (folder / "log").read_text()
        with suppress(OSError):
            return found.ask("experiments/search?max_results=1")

    try:
        wait_for("the server", answers, 180)
        yield found
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture
def run(programs_python, tmp_path, monkeypatch, request):
    """Return a run of four steps."""
    for name, value in {
        "MLFLOW_EXPERIMENT_NAME": request.node.name,
        "WANDB_PROJECT": EXPERIMENT,
        "WANDB_NAME": "fsdp-tiny",
        "WANDB_DIR": str(tmp_path),
        "WANDB_MODE": "offline",
        "HOME": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    made = Run(tmp_path, programs_python)
    made.config["training"] |= {"max_steps": 4, "log_interval": 2}
    return made


def test_figures_of_logged_steps_are_sent(run, mlflow, monkeypatch, request):
    """To both at once, as numbers, and the runs are ended."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow.address)
    done = run.alone("--track=wandb", "--track=mlflow")
    assert done.returncode == 0, done.stderr
    ((_, status, figures),) = mlflow.runs(request.node.name)
    assert status == "FINISHED"
    assert [*figures["loss"]] == [2, 4]
    assert figures["loss"][4] == pytest.approx(run.losses()[-1])
    assert "mfu" not in figures
    (file,) = run.root.glob("wandb/offline-run-*/*.wandb")
    began, *sent, ended = python_says(run.python, READ_WANDB, file)
    assert (began, ended) == ({"began": [EXPERIMENT, "fsdp-tiny"]}, {"ended": 0})
    assert [each["step"] for each in sent] == [2, 4]
    assert "mfu" not in sent[-1]
    assert sent[-1]["loss"] == pytest.approx(run.losses()[-1])


def test_a_tracker_that_fails_ends_no_training(run, monkeypatch):
    """It is said once, and the rest goes on."""
    monkeypatch.setenv("WANDB_MODE", "online")
    done = run.alone("--track=wandb")
    assert done.returncode == 0, done.stderr
    (line,) = (each for each in done.stderr.splitlines() if "runtime.tracking" in each)
    assert line == (
        "warning runtime.tracking: wandb: No API key configured. Use `wandb login` to log in."
        " - training goes on without it"
    )
    assert len(run.losses()) == 4
    assert not [*run.root.glob("wandb/*run-*")]


def test_a_run_that_failed_is_told_so(run, mlflow, monkeypatch, request):
    """Whoever looks at the tracker alone sees that it did not come to its end."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow.address)
    run.config["training"] |= {"learning_rate": 1e30, "min_learning_rate": 1e29, "warmup_iters": 0}
    assert run.alone("--track=mlflow").returncode
    ((_, status, _),) = mlflow.runs(request.node.name)
    assert status == "FAILED"


@pytest.mark.parametrize("code", [0, 3])
def test_steps_of_megatron_are_sent_from_its_log(run, mlflow, tmp_path, request, code):
    """It writes to no MLflow itself. What the plan knows is added; the run ends as the job did."""
    plan = Plan("job", "megatron", 0, tokens=12800, peak_seconds=0.8, mlflow=True)
    script = f"print({MEGATRON!r}, end=''); raise SystemExit({code})"
    words = [*command("record", tmp_path / "logs", 7), sys.executable, "-c", script]
    environment = {**os.environ, "TMPDIR": str(tmp_path), VARIABLE: str(plan)}
    environment["MLFLOW_TRACKING_URI"] = mlflow.address
    words[0] = str(run.python)
    assert subprocess.run(words, env=environment, check=False).returncode == code  # noqa: S603 -- ours
    figures = {"loss": 2.5, "grad_norm": 0.75, "seconds": 2.0}
    figures |= {"tokens_per_second": 6400.0, "mfu": 0.4}
    sent = {name: {20: value} for name, value in figures.items()}
    state = "FAILED" if code else "FINISHED"
    assert mlflow.runs(request.node.name) == [("job", state, sent)]


def test_sagemakers_server_is_named_by_an_arn(run, mlflow, monkeypatch, request):
    """Its plugin signs each request, and this server does not ask for that."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", ARN)
    monkeypatch.setenv("SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT", mlflow.address)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    done = run.alone("--track=mlflow")
    assert done.returncode == 0, done.stderr
    ((_, status, figures),) = mlflow.runs(request.node.name)
    assert (status, [*figures["loss"]]) == ("FINISHED", [2, 4])


@pytest.mark.parametrize(
    ("package", "uri"), [("mlflow", "https://mlflow.example.com"), ("sagemaker_mlflow", ARN)]
)
def test_a_missing_package_is_told_before_anything_starts(run, monkeypatch, package, uri):
    """Nobody looks for curves that are nowhere; a server by ARN needs MLflow's plugin, too."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    (run.root / "sitecustomize.py").write_text(f"import sys; sys.modules[{package!r}] = None")
    monkeypatch.setenv("PYTHONPATH", str(run.root), prepend=":")
    done = run.alone("--track=mlflow")
    assert done.returncode not in {0, 1}
    assert f"this image has no package {package}" in done.stderr
    assert not (run.checkpoints / "metrics.jsonl").exists()
