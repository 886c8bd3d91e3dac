"""train_fsdp and train_ddp on a real text: they learn, say so, and go on anywhere."""

import json
import math
import socket
import subprocess

import pytest

from megatron_eks.programs import run_log
from tests.programs.trainer_files import environment

pytestmark = pytest.mark.programs

# Sums in another order differ in the last digit of fp32.
CLOSE = 1e-6


def test_loss_falls(trained):
    """From almost nothing known about bytes to something, on held-out text as well."""
    run, _ = trained
    losses = run.losses()
    assert losses[0] == pytest.approx(math.log(260), abs=0.2)
    assert losses[-1] < 0.75 * losses[0]
    validated = {
        step["step"]: step["validation_loss"] for step in run.metrics() if "validation_loss" in step
    }
    assert set(validated) == {6, 12}
    assert validated[12] < validated[6] < losses[0]


def test_each_step_says_what_it_was(trained):
    """One object a step, with the figures that people and `meks` ask for."""
    run, _ = trained
    for step in run.metrics():
        assert {*step} - {"validation_loss"} == {
            *("step", "loss", "learning_rate", "grad_norm", "tokens_per_second"),
            *("tflops_per_gpu", "mfu", "seconds", "data_seconds", "memory_gib"),
        }
        # Two ranks of two sequences of 64; no peak is known of a CPU.
        assert step["tokens_per_second"] * step["seconds"] == pytest.approx(256, rel=0.01)
        assert step["mfu"] is None
        assert step["memory_gib"] > 0.1


def test_summary_ends_stdout(trained):
    """One line of JSON, of rank 0 alone."""
    run, out = trained
    (line,) = out.splitlines()
    assert json.loads(line) == {
        "program": "train_fsdp",
        "status": "finished",
        "resumed_from": 0,
        **run.metrics()[-1],
    }


def test_newest_checkpoints_are_kept(trained):
    """Every fourth step is saved, the last two stay, and the tracker names the newest."""
    run, _ = trained
    assert run.saved() == ["iter_0000008", "iter_0000012"]
    assert (run.checkpoints / "latest_checkpointed_iteration.txt").read_text() == "12"
    assert [path.name for path in run.checkpoints.glob(".*")] == []


@pytest.mark.parametrize(
    ("program", "ranks", "per_rank"),
    [
        pytest.param("train_fsdp", 4, 1, marks=pytest.mark.long),
        ("train_fsdp", 1, 4),
        ("train_ddp", 2, 2),
    ],
)
def test_run_goes_on_where_it_was(trained, program, ranks, per_rank):
    """On other numbers of ranks, in the other layout: the same losses, and each step once."""
    run, _ = trained
    resumed = run.resumed(f"{program}-{ranks}", without="iter_0000012")
    resumed.program = ("-m", f"megatron_eks.programs.{program}")
    resumed.config["training"]["train_batch_size"] = per_rank
    done = resumed.run(ranks)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_from"] == 8
    log = run_log.read(done.stderr.splitlines())
    assert [mark.step for mark in log.loads] == [8]
    assert [mark.step for mark in log.saves] == [12]
    assert [step.step for step in log.steps] == [9, 10, 11, 12]
    assert all(step.seconds and step.tokens_per_second for step in log.steps)
    assert resumed.losses() == pytest.approx(run.losses(), abs=CLOSE)


@pytest.mark.long
def test_hybrid_sharding_learns_the_same(trained):
    """Two nodes of two ranks: shards inside a node, copies between them."""
    run, _ = trained
    hybrid = run.copy("hybrid")
    hybrid.config["training"] |= {"train_batch_size": 1, "sharding": "hybrid"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    node = [word for word in hybrid.command(2) if word != "--standalone"]
    place = node.index("torch.distributed.run") + 1
    nodes = [
        subprocess.Popen(  # noqa: S603 -- the program under test
            [
                *node[:place],
                *("--nnodes=2", f"--node-rank={rank}"),
                *("--master-addr=127.0.0.1", f"--master-port={port}"),
                *node[place:],
            ],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=600) for process in nodes]
    assert [process.returncode for process in nodes] == [0, 0], said
    assert hybrid.losses() == pytest.approx(run.losses(), abs=CLOSE)
