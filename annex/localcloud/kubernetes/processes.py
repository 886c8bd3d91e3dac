"""The processes of one cluster: started together, watched, and never left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_LAUNCHER = Path(__file__).with_name("launch.py")
_TAIL_BYTES = 3000
_POLL_SECONDS = 0.02
_STOP_SECONDS = 10.0


class ProcessError(Exception):
    """A program ended, or did not become ready; the message ends with its last output."""


class Processes:
    """Programs by name, each with a log file of its own.

    The kernel ends a program with the *thread* that started it, so start them all from a thread
    that lives as long as the cluster: the main one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._again: dict[str, Callable[[], None]] = {}
        self._to_kill: set[str] = set()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name, of what has been started and not stopped."""
        return {name: process.pid for name, process in self._running.items()}

    def start(
        self,
        name: str,
        *program: str | Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        cleans_up: bool = True,
    ) -> None:
        """Start a program under a name, in a folder; its output is appended to NAME.log.

        One that does not clean up after itself is killed when all are stopped.
        """
        self._again[name] = lambda: self.start(
            name, *program, environment=environment, folder=folder, cleans_up=cleans_up
        )
        if not cleans_up:
            self._to_kill.add(name)
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603 -- programs that `build` built
                # Isolated and without site-packages: 15 ms instead of 60.
                [sys.executable, "-I", "-S", _LAUNCHER, str(os.getpid()), *map(str, program)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                # Ctrl-C in the terminal is for the caller, who stops the programs in order.
                start_new_session=True,
            )

    def wait(self, name: str, ready: Callable[[], bool], seconds: float = 90) -> None:
        """Return when a program is ready; raise with the end of its log if it will not be."""
        deadline = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise ProcessError(f"{name} was not ready after {seconds:.0f} s\n{self.tail(name)}")
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise if a program has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise ProcessError(
                    f"{name} ended with exit code {process.returncode}\n{self.tail(name)}"
                )

    def ended(self, name: str) -> bool:
        """Say whether a program has ended by itself."""
        return self._running[name].poll() is not None

    def tail(self, name: str) -> str:
        """Return the end of a program's log, and where the whole of it lies."""
        data = self._log(name).read_bytes()[-_TAIL_BYTES:]
        return f"{data.decode(errors='replace').rstrip()}\n({self._log(name)})"

    def restart(self, name: str) -> None:
        """Start a program again as it was, after stopping it if it runs."""
        if name in self._running:
            self.stop(name)
        self._again[name]()

    def kill(self, name: str) -> None:
        """Kill a program that is meant to die; nobody counts on it any more."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, *names: str) -> None:
        """Stop the named programs, or all: the last one started first, each given 10 s."""
        # One that was started again keeps its place.
        order = [name for name in reversed(self._again) if name in self._running]
        # Stable: those that clean up keep their order, and the others follow.
        for name in names or sorted(order, key=self._to_kill.__contains__):
            if not names and name in self._to_kill:
                self.kill(name)
                continue
            process = self._running.pop(name)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """Say whether somebody listens on a port of the loopback interface."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
