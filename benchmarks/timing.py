"""Times whole processes, in turn, so that a drift of the machine meets all of them alike."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Command = Sequence[str]

Row = tuple[str, str, str, str]
"""What was measured, how much, the bar, and whether it holds."""


def verdict(*, holds: bool) -> str:
    """Return the last column of a row."""
    return "ok" if holds else "missed"


def interleaved(
    commands: Mapping[str, Command], runs: int, env: Mapping[str, str], cwd: Path = ROOT
) -> dict[str, float]:
    """Run each command once to warm up, then all of them `runs` times in turn; return medians."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            done = subprocess.run(  # noqa: S603 -- the project's own commands
                command, cwd=cwd, env={**os.environ, **env}, capture_output=True, check=False
            )
            if done.returncode:
                sys.stderr.write(done.stderr.decode())
                raise SystemExit(f"{name} failed: {' '.join(command)}")
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
