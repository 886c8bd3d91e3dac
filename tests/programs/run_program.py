"""Runs a program of assets/programs as the images do: alone, in a process of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parents[2] / "assets" / "programs"


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def summary(self) -> dict[str, object]:
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


def command(name: str, *words: object, python: str = sys.executable) -> list[str]:
    """Return the command line of a program."""
    return [python, str(PROGRAMS / name), *map(str, words)]


def run(name: str, *words: object, timeout: float = 120, **environment: str) -> Ended:
    """Run a program to its end."""
    done = subprocess.run(  # noqa: S603 -- the program under test
        command(name, *words),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
