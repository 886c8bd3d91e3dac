"""What all training programs do at their start: count EFA devices, and start the watcher."""

import argparse
import os
import signal

import pytest

from megatron_eks.programs.checks.efa_system import System
from megatron_eks.programs.start import gang, guard
from tests.programs.efa_tree import Tree
from tests.programs.megatron_files import Job, errors, megatrons_line
from tests.programs.run_program import run


def _check(tree: Tree, *words: str) -> list[str]:
    parser = argparse.ArgumentParser()
    guard.add_options(parser)
    options = parser.parse_args(words)
    return [str(each) for each in guard.check_efa(options, System(tree.root, {}))]


@pytest.fixture
def tree(tmp_path):
    """Return a pod of a p4d node: GPUs, and four EFA devices."""
    found = Tree(tmp_path, 4)
    found.write("dev/nvidia0", "")
    return found


@pytest.mark.parametrize("words", [[], ["--expect-efa=4"], ["--expect-efa=2"]])
def test_enough_devices(tree, words):
    """Nothing is said, neither where nothing is expected."""
    assert _check(tree, *words) == []


def test_missing_devices(tree):
    """NCCL would use TCP, or fewer cards, without a word."""
    tree.withhold(1)
    said = "error EFA devices: 3 are usable in this pod, 4 expected - run efa_check on this node"
    assert _check(tree, "--expect-efa=4") == [f"{said}, which says why"]


def test_a_pod_without_gpu_needs_no_efa(tree):
    """A trial on CPUs talks over gloo."""
    tree.remove("dev/nvidia0")
    tree.withhold(4)
    assert _check(tree, "--expect-efa=4") == [
        (
            "warning EFA devices: no GPU is in this pod, so none of 4 is looked for - right for a "
            "trial on CPUs"
        ),
    ]


def test_megatron_is_watched(tmp_path):
    """The watcher outlives the rank, and tells the other nodes how Megatron ended."""
    job = Job(tmp_path)
    heartbeats = tmp_path / "heartbeats"
    environment = job.environment(GROUP_RANK="1", GROUP_WORLD_SIZE="2")
    own = ["--heartbeats", str(heartbeats)]
    process = job.popen("--wait-for-signal", own=own, environment=environment)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert megatrons_line("".join(lines))["pid"] == process.pid
    path = gang.path_of(heartbeats, 1)
    while (record := gang.read(path)) is None or record.count < 1:
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert errors(err) == []
    after = gang.read(path)
    assert after is not None
    assert after.state in {"failed", "ended"}


@pytest.mark.parametrize("name", ["train_megatron", "train_bridge", "start.watch"])
def test_help_explains_the_options(name):
    """Each option of the guard says what it is for."""
    done = run(name, "--help")
    assert done.code == 0
    for word in ("--expect-efa", "--expect-gpu-direct", "--heartbeats", "--watch"):
        assert word in done.stdout
