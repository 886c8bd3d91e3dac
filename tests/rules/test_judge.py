"""The second process of an entry point, which judges what the first one writes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.judge import Judge

MANIFESTS = "megatron_eks.rules.manifests:findings_for_manifests"
START = f"""\
import os
from megatron_eks.judge import Judge
judge = Judge({MANIFESTS!r})
"""
INTERRUPTED = """\
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.killpg(0, signal.SIGINT)
print(judge.findings())
"""
KILLED = f"os.kill(os.getpid(), {signal.SIGKILL.value})"


def test_judges_every_batch_by_itself(tmp_path: Path) -> None:
    """What is found in each batch comes back in order; an empty one ends nothing."""
    judge = Judge(MANIFESTS)
    files = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    for file in files:
        file.write_text(json.dumps({"kind": "ConfigMap", "metadata": {"name": "example"}}))
        judge.hand([file])
        judge.hand([])

    assert [(each.file, each.code) for each in judge.findings()] == [
        (str(file), Code.NOT_AN_OBJECT) for file in files
    ]


def test_ends_with_a_process_that_is_killed() -> None:
    """Nothing is left of a synthesis that somebody killed: its output ends, which both hold."""
    assert _run(START + KILLED) == (-signal.SIGKILL, "", "")


def test_leaves_the_answer_to_ctrl_c_to_the_first_process() -> None:
    """The terminal interrupts both, and only the first one says so."""
    assert _run(START + INTERRUPTED) == (0, "[]\n", "")


def _run(program: str) -> tuple[int, str, str]:
    done = subprocess.run(  # noqa: S603 -- a program of this file
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        start_new_session=True,
    )
    return done.returncode, done.stdout, done.stderr
