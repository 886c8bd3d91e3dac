"""Runs meks as people do: in a process of its own, without a terminal."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from megatron_eks.project import ROOT

Done = subprocess.CompletedProcess[str]


def meks(*words: object, cwd: Path = ROOT, env: Mapping[str, str] = os.environ) -> Done:
    """Run a command to its end."""
    return subprocess.run(  # noqa: S603 -- our own command
        [sys.executable, "-m", "megatron_eks", *map(str, words)],
        cwd=cwd,
        env={**env, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
