"""Runs a program of ours as the images do: alone, in a process of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAMS = "megatron_eks.programs"
TORCHRUN = ROOT / ".venv-programs" / "bin" / "torchrun"
"""Of the environment that `make programs` installs."""


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def summary(self) -> dict[str, Any]:
        """Return the last line of stdout, which has to be JSON."""
        summary = json.loads(self.stdout.splitlines()[-1])
        assert isinstance(summary, dict)
        return summary

    @property
    def findings(self) -> list[str]:
        """Return the findings of the JSON line."""
        findings = self.summary["findings"]
        assert isinstance(findings, list)
        return findings


def command(name: str, *words: object) -> list[str]:
    """Return the command line of a program."""
    return [sys.executable, "-m", f"{PROGRAMS}.{name}", *map(str, words)]


def run(name: str, *words: object, environment: dict[str, str] | None = None) -> Ended:
    """Run a program to its end."""
    return _run(command(name, *words), environment or {})


def torchrun(ranks: int, name: str, *words: object) -> Ended:
    """Run a program under torchrun, which ends with 1 where a rank does not end with 0."""
    start = [str(TORCHRUN), f"--nproc-per-node={ranks}", "--standalone"]
    return _run([*start, *command(name, *words)[1:]], {"OMP_NUM_THREADS": "1"})


def _run(words: list[str], environment: dict[str, str]) -> Ended:
    done = subprocess.run(  # noqa: S603 -- the program under test
        words,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
