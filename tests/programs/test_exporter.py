"""What the exporter tells, of a program that runs in record and of starts one after another."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from megatron_eks.programs.checks.efa_system import System
from megatron_eks.programs.exporter import event_files, run
from megatron_eks.programs.exporter.plan import VARIABLE, Plan
from megatron_eks.programs.exporter.run import Exporter
from megatron_eks.programs.exporter.series import PREFIX, SERIES
from tests.alerts.played import Clock
from tests.programs.efa_tree import Tree
from tests.programs.run_program import command

STEP = "step 10/100 | loss 2.50000 | grad norm 0.750 | lr 1.000e-05 | 6,400 tokens/s | 2.000 s\n"
MEGATRON = (
    " [2026-11-20 10:00:00] iteration       20/     100 | consumed samples:         640 | "
    "elapsed time per iteration (ms): 2000.0 | learning rate: 1.0E-05 | global batch size:    32 | "
    "lm loss: 2.500000E+00 | loss scale: 1.0 | grad norm: 0.750 |\n"
)
# What a step that took 2 s says of a GPU's peak, as the plan has it.
PLAN = Plan("job", "torchrun", 0, tokens=12800, peak_seconds=0.8, step_seconds=1.9, goodput=0.9)


@pytest.fixture
def pod(tmp_path):
    """Return a function that starts the exporter of a pod, in a start of its own, and a clock."""
    clock = Clock()
    made: list[Path] = []
    clock.now = time.time()

    def start(plan=PLAN, node=0, system=None):
        made.append(folder := tmp_path / "logs" / f"{len(made) + 1:04}")
        folder.mkdir(parents=True)
        return Exporter(plan, node, lambda: folder, clock=clock, system=system)

    return start, clock


def told(exporter):
    """Return the values by name and labels of their own."""
    rows = [row.rpartition(" ") for row in exporter.text().splitlines() if row[0] != "#"]
    return {
        name.removeprefix(PREFIX).replace('{job="job",', "{"): float(value)
        for name, _, value in rows
    }


def value(exporter, name):
    """Return a value of a series without labels of its own, or None."""
    return next((v for key, v in told(exporter).items() if key.startswith(f"{name}{{")), None)


def test_a_line_is_told_with_the_plan_beside_it(pod):
    """A line has no MFU: the plan knows the step's FLOPs. What it does not say is not told."""
    start, clock = pod
    exporter = start()
    exporter.see(STEP.encode())
    expected = {"step": 10, "steps": 100, "loss": 2.5, "grad_norm": 0.75, "step_seconds": 2}
    expected |= {"tokens_per_second": 6400, "mfu_ratio": 0.4, "plan_step_seconds": 1.9}
    assert {name: value(exporter, name) for name in expected} == expected
    assert value(exporter, "last_step_timestamp_seconds") == clock.now
    assert value(exporter, "data_wait_seconds") is None
    assert {key.partition("{")[0] for key in told(exporter)} <= SERIES.keys()


def test_megatron_is_told_by_whichever_pod_prints_it(pod):
    """Steps come from the last rank; a loss that is no number is left out of its line."""
    start, _ = pod
    last = start(Plan("job", "megatron", 0, nodes=2, tokens=12800), node=1)
    last.see(MEGATRON.encode())
    assert (value(last, "step"), value(last, "tokens_per_second")) == (20, 6400)
    assert value(last, "grad_norm") == 0.75
    last.see(MEGATRON.replace(" lm loss: 2.500000E+00 |", "").encode())
    assert str(value(last, "loss")) == "nan"


def test_other_programs_tell_on_their_first_node(pod):
    """Where all ranks print the same, one pod tells it."""
    other = pod[0](node=1)
    other.see(STEP.encode())
    assert value(other, "step") is None
    assert value(other, "restarts") == 0


def test_a_save_is_told_with_its_duration(pod):
    """Megatron says when it begins; our trainers say how long it took."""
    start, clock = pod
    exporter = start()
    exporter.see(b"saving checkpoint at iteration      20 to /shared/c in torch_dist format\n")
    clock.now += 7
    exporter.see(b"  successfully saved checkpoint from iteration      20 to /shared/c\n")
    assert (value(exporter, "checkpoint_step"), value(exporter, "checkpoint_seconds")) == (20, 7)
    exporter.see(b"saved checkpoint of step 40 to /shared/c in 3.5 s\n")
    assert (value(exporter, "checkpoint_step"), value(exporter, "checkpoint_seconds")) == (40, 3.5)
    assert value(exporter, "checkpoint_timestamp_seconds") == clock.now


def test_how_long_a_trainer_waits_for_data_is_in_its_own_file(pod, tmp_path):
    """Its lines say all else, also where a full file system takes none of the file's."""
    file = tmp_path / "metrics.jsonl"
    exporter = pod[0](Plan("job", "ddp", 0, metrics_file=str(file)))
    exporter.see(STEP.encode())
    exporter.look()
    assert (value(exporter, "step"), value(exporter, "data_wait_seconds")) == (10, None)
    rows = ({"step": step, "data_seconds": step / 4} for step in (9, 10))
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"step": 11, "da')
    exporter.look()
    assert (value(exporter, "step"), value(exporter, "data_wait_seconds")) == (10, 2.5)


def test_a_restart_goes_on_counting(pod):
    """Goodput is of the time since the first start, steps that are done again count once."""
    start, clock = pod
    first = start()
    first.see(STEP.encode())
    clock.now += 100
    first.see(STEP.replace("step 10/", "step 50/").encode())
    assert value(first, "goodput_ratio") == pytest.approx(0.82)
    first.look()
    assert 0 < value(first, "shared_free_bytes") < value(first, "shared_bytes")
    second = start()
    second.look()
    clock.now += 100
    second.see(STEP.replace("step 10/", "step 30/").encode())
    assert value(second, "goodput_ratio") == pytest.approx(0.41)
    second.see(STEP.replace("step 10/", "step 60/").encode())
    assert value(second, "goodput_ratio") == pytest.approx(0.51)
    assert value(second, "restarts") == 1
    assert value(second, "restart_timestamp_seconds") == clock.now - 100


def test_a_job_that_is_submitted_later_is_another(pod, tmp_path):
    """Its name and its folder of logs are the same."""
    start, clock = pod
    start().look()
    (left,) = tmp_path.glob("logs/0001/metrics-*.json")
    os.utime(left, (clock.now - 700, clock.now - 700))
    again = start()
    again.look()
    assert value(again, "restarts") == 0
    assert value(again, "restart_timestamp_seconds") is None


def test_efa_is_told_by_device_and_counter(pod, tmp_path):
    """Of the devices that the pod may use, and only where several nodes need them."""
    tree = Tree(tmp_path / "node", 2)
    tree.withhold(1)
    for device in (0, 1):
        tree.set("ports/1/hw_counters/tx_bytes", "123\n", device)
    system = System(tree.root, {})
    several = told(pod[0](Plan("job", "ddp", 0, nodes=2), system=system))
    labels = f'kind="ddp",device="{tree.names[0]}",counter="tx_bytes"'
    efa = {key: found for key, found in several.items() if key.startswith("efa")}
    assert efa == {f"efa_hw_counter_total{{{labels}}}": 123}
    alone = told(pod[0](Plan("job", "ddp", 0), system=system))
    assert not any(key.startswith("efa") for key in alone)


def test_a_rehearsal_on_cpus_is_not_held_against_the_plan(pod):
    """No GPU is a thousand times slower than its peak."""
    exporter = pod[0](Plan("job", "ddp", 0, peak_seconds=0.001, step_seconds=0.002))
    exporter.see(STEP.encode())
    assert value(exporter, "step_seconds") == 2
    assert value(exporter, "mfu_ratio") is value(exporter, "plan_step_seconds") is None


@pytest.mark.parametrize("text", ["step " + "9" * 5000 + "/10 | loss 1", "step \0/\xff", "step"])
def test_no_line_stops_it(pod, text):
    """Whatever a program prints."""
    exporter = pod[0]()
    exporter.see(text.encode("latin-1"))
    assert value(exporter, "step") is None


def test_a_plan_travels_as_json():
    """What a newer version renders for an older image is left out."""
    text = str(PLAN)
    assert Plan.read(text) == PLAN
    assert Plan.read(json.dumps({**json.loads(text), "of_tomorrow": 1})) == PLAN


def test_nothing_ends_the_rounds(pod, monkeypatch):
    """Readers raise errors of their own, and the next start needs what the rounds keep."""
    exporter, looks, done = pod[0](), [], threading.Event()

    def look():
        looks.append(1)
        if len(looks) == 1:
            raise RuntimeError("of a reader")
        done.set()

    monkeypatch.setattr(exporter, "look", look)
    monkeypatch.setattr(run, "_ROUND_SECONDS", 0.1)
    exporter.start()
    assert done.wait(10)


def test_event_files_that_nothing_can_read_are_told_of(pod, monkeypatch, capfd):
    """TensorBoard's package is the reader, and an image may have none."""
    monkeypatch.setattr(event_files, "find_spec", lambda _: None)
    for node in (0, 1):
        pod[0](Plan("job", "torchrun", 0, event_files="/shared/events"), node)
    found = "warning event files below /shared/events: not read, as this Python has no package "
    assert capfd.readouterr().err.startswith(f"{found}tensorboard - pip install tensorboard")


@pytest.fixture
def recorded(tmp_path):
    """Return a function that starts a script in record, with an exporter, and a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def start(script):
        plan = Plan("job", "torchrun", port, tokens=12800)
        words = [*command("record", tmp_path / "logs", 7), sys.executable, "-uc", script]
        environment = {**os.environ, "TMPDIR": str(tmp_path), VARIABLE: str(plan)}
        return subprocess.Popen(  # noqa: S603 -- the program under test
            words,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start, port


def scraped(port, path="/metrics", seconds=20.0):
    """Return what is told, as soon as somebody answers."""
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as problem:
            return str(problem.code)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def test_a_program_is_told_of_while_it_runs_and_until_its_end_was_seen(recorded):
    """It has no variable of ours, its output is its own, and the last scrape says finished."""
    start, port = recorded
    script = f"""import os, sys; print({STEP!r}, end='')
assert {VARIABLE!r} not in os.environ; sys.stdin.read()"""
    with start(script) as process:
        while "meks_step{" not in (text := scraped(port)):
            time.sleep(0.05)
        assert 'meks_step{job="job",kind="torchrun"} 10.0\n' in text
        assert 'meks_finished{job="job",kind="torchrun"} 0.0\n' in text
        assert scraped(port, "/") == "404"
        process.stdin.close()
        while 'meks_finished{job="job",kind="torchrun"} 1.0\n' not in scraped(port):
            time.sleep(0.05)
        assert process.wait(timeout=25) == 0
        assert (process.stdout.read(), process.stderr.read()) == (STEP, "")


def test_a_taken_port_costs_the_metrics_alone(recorded):
    """It is said once, in the job's log."""
    start, port = recorded
    with socket.socket() as other:
        other.bind(("", port))
        other.listen()
        process = start("print('done')")
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "done\n")
    assert err.startswith(f"warning metrics port {port}: Address already in use - training goes on")


def test_a_failure_waits_for_nobody(recorded):
    """Ranks start again at once; who scraped sees the series stop."""
    start, port = recorded
    process = start("import time; time.sleep(1); raise SystemExit(3)")
    scraped(port)
    # After a success it would wait longer than this for a last scrape.
    process.communicate(timeout=25)
    assert process.returncode == 3
