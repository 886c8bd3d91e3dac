"""Runs the gate as a build does, and reads what it said."""

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import gate as program_under_test

from megatron_eks.programs.program import Report

GATE = Path(__file__).parents[2] / "assets" / "images" / "gate.py"


@dataclass(frozen=True)
class Ended:
    """How the gate ended."""

    code: int
    findings: list[str]
    versions: dict[str, str]
    stderr: str


def gate(*arguments: object, environment: dict[str, str] | None = None) -> Ended:
    """Run the gate's main function in an environment that has nothing else."""
    report = Report()
    with (
        patch.dict(os.environ, environment or {}, clear=True),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        program_under_test.main([str(each) for each in arguments], report)
    versions = report.facts["versions"]
    assert isinstance(versions, dict)
    found = [str(finding) for finding in report.findings]
    return Ended(report.exit_code, found, versions, said.getvalue())


def gate_process(*arguments: object) -> Ended:
    """Run the gate as a program."""
    done = subprocess.run(  # noqa: S603 -- the program under test
        [sys.executable, str(GATE), *map(str, arguments)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(GATE.parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    summary = json.loads(done.stdout.splitlines()[-1])
    return Ended(done.returncode, summary["findings"], summary["versions"], done.stderr)
