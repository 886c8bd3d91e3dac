"""The program that removes old checkpoints beside a training."""

import os
import subprocess
import sys
import time
from pathlib import Path

from megatron_eks.programs.checkpoint import checkpoints
from tests.programs.megatron_files import write_checkpoint
from tests.programs.run_program import command
from tests.programs.test_retention import save

SLEEPING_PARENT = """
import os, subprocess, sys, time
print(subprocess.Popen([*sys.argv[1:], f"--parent={os.getpid()}"]).pid, flush=True)
time.sleep(60)
"""


def start(root: Path, parent: int) -> "subprocess.Popen[str]":
    """Start the program as `train_megatron.py` does, only with less patience."""
    return subprocess.Popen(  # noqa: S603 -- the program under test
        [
            *command("checkpoint.retention"),
            *(f"--directory={root}", "--keep-last=1", f"--parent={parent}", "--interval=0.05"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, seconds: float = 20.0) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_program_survives_errors(tmp_path):
    """What is no directory is said, and looked after when it becomes one."""
    root = tmp_path / "save"
    root.write_text("")
    process = start(root, os.getpid())
    assert process.stderr is not None
    assert "cannot look after" in process.stderr.readline()
    time.sleep(0.3)
    (tmp_path / "staging").mkdir()
    checkpoints.note_imported(tmp_path / "staging")
    write_checkpoint(tmp_path / "staging", 50)
    save(tmp_path / "staging", 100, 200)
    root.unlink()
    (tmp_path / "staging").rename(root)
    wait_for(lambda: not (root / "iter_0000100").exists())
    said: list[str] = []
    while len(said) < 3:
        line = process.stderr.readline().rstrip()
        said += [line] if "cannot look after" not in line else []
    process.terminate()
    process.communicate(timeout=20)
    assert said == [
        "retention: iter_0000050 is whole",
        "retention: removed iter_0000050, older than the 1 newest checkpoints",
        "retention: removed iter_0000100, older than the 1 newest checkpoints",
    ]


def test_program_ends_with_its_parent(tmp_path):
    """A killed training process leaves no process behind."""
    save(tmp_path, 100)
    parent = subprocess.Popen(  # noqa: S603 -- the program under test
        [
            *(sys.executable, "-c", SLEEPING_PARENT),
            *command("checkpoint.retention"),
            *(f"--directory={tmp_path}", "--keep-last=1"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = Path("/proc") / parent.stdout.readline().strip()
    assert child.exists()
    time.sleep(0.5)
    parent.kill()
    parent.communicate(timeout=20)
    wait_for(lambda: not child.exists() or "\nState:\tZ" in (child / "status").read_text())
