"""The processes that a kubelet starts: sandboxes, containers and their logs."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from megatron_eks.localcloud.kubernetes.kubelet import linux
from megatron_eks.localcloud.kubernetes.kubelet.container import Container
from megatron_eks.localcloud.kubernetes.kubelet.sandbox import READY, Sandbox

_ROOT = Path(__file__).parents[4]
_PACKAGE = __package__ or ""


class SandboxError(Exception):
    """A pod's namespaces cannot be made."""


def python(module: str, *arguments: str) -> list[str]:
    """Return the command of a module of this package, without site-packages: 15 ms, not 60."""
    return [sys.executable, "-S", "-s", "-m", f"{_PACKAGE}.{module}", *arguments]


def bare_environment() -> dict[str, str]:
    """Return what such a module needs; a container's own variables are told to it by the caller."""
    return {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(_ROOT)}


class SandboxProcess:
    """A pod's namespaces. They end with the thread that made them."""

    def __init__(self, spec: Sandbox) -> None:
        self._process = subprocess.Popen(  # noqa: S603 -- our own module
            python("sandbox"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=bare_environment(),
            text=True,
        )
        _tell(self._process, json.dumps(asdict(spec)))
        if _pipe(self._process.stdout).readline() != READY:
            # The last line of a traceback says what happened.
            said = _pipe(self._process.stderr).read().strip()
            self._process.wait()
            raise SandboxError(said.rpartition("\n")[2])

    @property
    def pid(self) -> int:
        """The process whose namespaces they are."""
        return self._process.pid

    def end(self) -> None:
        """Let go of the namespaces."""
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdout, self._process.stderr):
            _pipe(end).close()


class ContainerProcess:
    """One run of a container. It ends with the thread that started it, at the latest."""

    def __init__(
        self, spec: Container, log: Path, ended: "Callable[[ContainerProcess], None]"
    ) -> None:
        self.code = 0
        """The exit code, once it has ended."""
        self.start_error = ""
        """Why its program could not be started."""
        self.pid = 0
        """The program's process; 0 until it is known."""
        self.spec = spec
        self.started = threading.Event()
        """Set once its program runs, or cannot."""
        log.parent.mkdir(parents=True, exist_ok=True)
        # Whoever asks for the log of a container that runs must find one.
        log.touch()
        reader, writer = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603 -- our own module
            python("container", str(writer)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=bare_environment(),
            pass_fds=[writer],
            text=True,
            errors="replace",
            # A signal for the kubelet's group is not one for the container.
            start_new_session=True,
        )
        os.close(writer)
        _tell(self._process, json.dumps(asdict(spec)))
        threading.Thread(target=self._follow, args=(reader, log, ended), daemon=True).start()

    def signal(self, number: int) -> None:
        """Send the program a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the program and everything that it started."""
        self._process.kill()

    def _follow(self, report: int, log: Path, ended: "Callable[[ContainerProcess], None]") -> None:
        with os.fdopen(report, encoding="utf-8") as lines:
            for line in lines:
                if line.strip().isdigit():
                    self.pid = int(line)
                else:
                    self.start_error = line.strip()
        self.started.set()
        # Line by line as in /var/log/pods of a real node: time, stream, whole or part, text.
        with (
            log.open("a", encoding="utf-8", buffering=1) as file,
            _pipe(self._process.stdout) as output,
        ):
            assert isinstance(output, TextIOWrapper)  # noqa: S101 -- of Popen
            # A carriage return ends no line there.
            output.reconfigure(newline="\n")
            for line in output:
                stamp = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                text, whole = (line[:-1], "F") if line.endswith("\n") else (line, "P")
                file.write(f"{stamp} stdout {whole} {text}\n")
        self.code = linux.exit_code(self._process.wait())
        ended(self)


def _tell(process: "subprocess.Popen[str]", message: str) -> None:
    # One that has ended already says why elsewhere.
    with contextlib.suppress(BrokenPipeError):
        stdin = _pipe(process.stdin)
        stdin.write(message)
        stdin.close()


def _pipe(end: IO[str] | None) -> IO[str]:
    if end is None:
        raise ValueError("no pipe")
    return end
