"""Runs meks as people do: in a process of its own, without a terminal."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from cyclopts import App

from megatron_eks.cli.app import app
from megatron_eks.project import ROOT

import_module("megatron_eks.__main__")  # brings all commands

Done = subprocess.CompletedProcess[str]


def commands(of: App = app, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command, of `meks` itself first, and of those behind it."""
    yield words
    for name, each in of.resolved_commands().items():
        if not name.startswith("-"):
            yield from commands(each, (*words, name))


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
