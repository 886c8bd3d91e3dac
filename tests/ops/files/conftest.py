"""The commands about files as people run them, on an S3 behind a proxy that can fail."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from megatron_eks.project import ROOT
from tests import schemas
from tests.programs.s3_world import World, s3, s3_server

__all__ = ["s3", "s3_server"]

_COMMAND_SECONDS = 240
# The programs' pauses are for S3's worst hours.
_PATH = os.pathsep.join([str(Path(__file__).with_name("quick")), str(ROOT)])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the shipped cluster with one of its jobs; return the cluster file."""
    folder = tmp_path / "project"
    (folder / "jobs").mkdir(parents=True)
    shutil.copy(ROOT / "cluster.yaml", folder)
    shutil.copy(ROOT / "jobs" / "megatron-gpt-7b.yaml", folder / "jobs")
    return folder / "cluster.yaml"


@pytest.fixture
def begin(project: Path, s3: World) -> Callable[..., "subprocess.Popen[str]"]:
    """Return a function that starts a command of meks without a terminal."""

    def call(*words: object, **more: object) -> "subprocess.Popen[str]":
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
        started: subprocess.Popen[str] = subprocess.Popen(  # noqa: S603 -- our own command
            [sys.executable, "-m", "megatron_eks", *map(str, words), "--cluster", str(project)],
            cwd=project.parent,
            env={**os.environ, "PYTHONPATH": _PATH, "COLUMNS": "80", **s3.environment},
            stdin=subprocess.DEVNULL,
            # Ctrl-C is for it, not for the tests.
            start_new_session=True,
            **given,  # type: ignore[call-overload]
        )
        return started

    return call


@pytest.fixture
def meks(begin) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Return a function that runs a command of meks to its end; no traceback is ever shown."""

    def call(*words: object, **more: object) -> "subprocess.CompletedProcess[str]":
        with begin(*words, **more) as process:
            out, err = process.communicate(timeout=_COMMAND_SECONDS)
        assert "Traceback" not in (err or "")
        return subprocess.CompletedProcess([*map(str, words)], process.returncode, out, err)

    return call


@pytest.fixture
def as_json(meks) -> Callable[..., Any]:
    """Return a function that runs a command of `meks ckpt`, and checks the JSON that it prints."""

    def call(*words: object, code: int = 0) -> Any:
        done = meks("ckpt", *words, "-o", "json")
        assert done.returncode == code, done.stderr
        return schemas.read("checkpoints", done.stdout)

    return call


@pytest.fixture
def interrupted(begin, s3: World):
    """Return a function that runs a command and presses Ctrl-C at its first such request."""

    def call(pattern: str, *words: object) -> tuple[int, str]:
        running: list[subprocess.Popen[str]] = []
        s3.before(pattern, lambda: running[0].send_signal(signal.SIGINT))
        running.append(begin(*words))
        _, err = running[0].communicate(timeout=_COMMAND_SECONDS)
        assert "Traceback" not in err
        return running[0].returncode, err

    return call
