"""Where a demo takes place: its folder, the cluster that runs in it, and the commands it runs."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from megatron_eks.demo.images import stand_in_images
from megatron_eks.kubernetes import kubeconfig
from megatron_eks.kubernetes.client import Client, Object, wait_for
from megatron_eks.localcloud.aws import keys
from megatron_eks.localcloud.aws.server import LocalAws, merged
from megatron_eks.localcloud.kubernetes.build import SELDOM, cache_folder
from megatron_eks.localcloud.kubernetes.processes import free_port, listens
from megatron_eks.localcloud.kubernetes.settings import Settings
from megatron_eks.localcloud.kubernetes.state import (
    SHARED,
    STATE_FILE,
    State,
    is_running,
    read_state,
)
from megatron_eks.project import ROOT

REGION = "us-east-2"

_BIN = ROOT / ".venv" / "bin"
_START_SECONDS = 240
_STOP_SECONDS = 60
_COMMAND_SECONDS = 600
_REQUEST_SECONDS = 30
_TAIL_LINES = 15


class DemoError(Exception):
    """The demo cannot go on; the message says what failed and what it said last."""


@dataclass(frozen=True)
class Command:
    """A command that was started, and where it writes to."""

    words: str
    process: "subprocess.Popen[bytes]"
    log: Path


class Place:
    """The one folder of a user's demos, and what runs in it."""

    def __init__(self) -> None:
        self.folder = cache_folder(os.environ) / "demo"
        self.cluster_file = self.folder / "cluster.yaml"
        self._commands: list[Command] = []
        self._port = free_port()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other demo of this user out."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.folder.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DemoError("another demo of yours is running") from None
            yield

    @property
    def running(self) -> bool:
        """Whether a cluster holds the folder, of a demo that was kept or killed."""
        return is_running(self.folder)

    @cached_property
    def state(self) -> State:
        """What the running cluster tells."""
        return read_state(self.folder)

    @cached_property
    def aws(self) -> LocalAws:
        """The local AWS."""
        return LocalAws(f"http://127.0.0.1:{self._port}", keys.read(self.folder / keys.FILE))

    @cached_property
    def client(self) -> Client:
        """A client of the API server, as `meks kubeconfig` leads there."""
        config = kubeconfig.load([Path(self.state.environment["KUBECONFIG"])])
        context = kubeconfig.contexts(config)[config["current-context"]]
        return context.client(_REQUEST_SECONDS)

    @property
    def environment(self) -> dict[str, str]:
        """What the commands of the demo get, and a shell that looks around afterwards."""
        return {**self.state.environment, "CLUSTER_CONFIG": str(self.cluster_file)}

    def start(self) -> None:
        """Start the cluster, as `meks local up --empty --nodes 1` does."""
        settings = Settings(
            self.folder,
            REGION,
            images=stand_in_images(),
            empty=True,
            without=SELDOM,
            aws_port=self._port,
        )
        with _whole():
            # Ctrl-C is for the demo, which stops it in order; one that is kept outlives it.
            self._supervisor = settings.start()

    def wait_for_aws(self) -> None:
        """Return when AWS answers; from then on commands go there, and nowhere else."""
        self._wait(lambda: listens(self._port))
        environment = merged(os.environ, self.aws, REGION)
        os.environ.clear()
        os.environ.update(environment)

    def wait(self) -> None:
        """Return when the cluster is ready."""
        self._wait((self.folder / STATE_FILE).exists)
        os.environ.update(self.environment)

    def _wait(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not ready():
            if self._supervisor.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"the cluster did not start\n{_tail(self.folder / 'log')}")
            time.sleep(0.05)

    def begin(self, *words: object, folder: Path = ROOT, **more: str) -> Command:
        """Start a command in the background; `finish` it."""
        name = "-".join(Path(str(word)).name for word in words[:4])
        log = self.folder / f"{len(self._commands)}-{name}.log"
        path = f"{_BIN}{os.pathsep}{os.environ.get('PATH', '')}"
        with log.open("ab") as stream, _whole():
            process = subprocess.Popen(  # noqa: S603 -- the project's own commands
                list(map(str, words)),
                cwd=folder,
                env={**os.environ, "PATH": path, **more},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                # So that all that it starts can be ended with it.
                start_new_session=True,
            )
            command = Command(" ".join(map(str, words)), process, log)
            self._commands.append(command)
        return command

    def finish(self, command: Command) -> str:
        """Wait for a command's good end and return what it said."""
        try:
            code = command.process.wait(_COMMAND_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise DemoError(f"{command.words} does not end\n{_tail(command.log)}") from error
        if code:
            raise DemoError(f"{command.words} failed ({code})\n{_tail(command.log)}")
        return command.log.read_text(errors="replace")

    def run(self, *words: object, folder: Path = ROOT, **more: str) -> str:
        """Run a command to its good end and return what it said."""
        return self.finish(self.begin(*words, folder=folder, **more))

    def shared(self) -> Path:
        """Return what pods see as /shared, once the platform's set-up Job has prepared it."""

        def prepared() -> Path | None:
            found = (self.folder / SHARED).glob("*/logs")
            return next((each.parent for each in found), None)

        return wait_for("the directories on /shared", prepared)

    def ranks(self, pod: str, program: str) -> list[int]:
        """Return a pod's ranks of a program, and their data's loaders."""
        found = []
        for pid in _descendants(self.state.pid):
            # It may end while one looks.
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                variables = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
                # Its launcher names the program too, and has no rank.
                is_rank = any(variable.startswith("LOCAL_RANK=") for variable in variables)
                named = any(program in word for word in words)
                if is_rank and named and f"HOSTNAME={pod}" in variables:
                    found.append(pid)
        return found

    def pods(self, job: Object) -> list[Object]:
        """Return a job's pods, the master's first."""
        metadata = job["metadata"]
        labels = f"training.kubeflow.org/job-name={metadata['name']}"
        return self.client.list("v1", "Pod", metadata["namespace"], labels=labels)

    def stop(self, *, keep_files: bool = False) -> None:
        """End commands and cluster, wherever they are, and remove the folder."""
        for command in self._commands:
            if command.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(command.process.pid, signal.SIGKILL)
                command.process.wait()
        if supervisor := getattr(self, "_supervisor", None):
            supervisor.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                supervisor.wait(_STOP_SECONDS)
            supervisor.kill()
            supervisor.wait()
        elif self.running:
            # Its lock goes before the process itself does.
            process = Path(f"/proc/{self.state.pid}")
            os.kill(self.state.pid, signal.SIGTERM)
            wait_for("the end of the cluster", lambda: not process.exists(), _STOP_SECONDS)
        wait_for("the end of the cluster", lambda: not self.running, _STOP_SECONDS)
        if not keep_files:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def _whole() -> Iterator[None]:
    """Put Ctrl-C and its like off, so that no process starts without being known to `stop`."""
    late: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # In Python, not by a mask: a process would inherit that.
    before = {each: signal.signal(each, lambda got, _: late.append(got)) for each in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if late:
            raise KeyboardInterrupt


def _descendants(pid: int) -> Iterator[int]:
    # By thread, because a kubelet starts each pod's from a thread of its own.
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from _descendants(child)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
