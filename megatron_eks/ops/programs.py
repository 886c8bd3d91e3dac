"""Our programs, run for a command: on this machine, or in a pod (`ops/data/shared_pod.py`)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import FrameType
from typing import Protocol

from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import Failure
from megatron_eks.project import GET_PROGRAMS, ROOT

_END_SECONDS = 60
# What the environment of this command line does not have.
_NEEDS = {"prepare_data": "numpy"}
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

Tell = Callable[[str], None] | None
"""Gets a program's lines; None: they are kept back, and shown if its result is missing."""


@dataclass(frozen=True)
class Ended:
    """How a program ended, and its last line, which is one JSON object."""

    code: int
    summary: Mapping[str, Json] = field(default_factory=dict)
    kept_back: tuple[str, ...] = ()

    def rows(self, fact: str) -> list[dict[str, Json]]:
        """Return a list of objects of the summary."""
        found = self.summary.get(fact)
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def names(self, fact: str) -> list[str]:
        """Return a list of texts of the summary."""
        found = self.summary.get(fact)
        return [str(each) for each in found] if isinstance(found, list) else []


class Place(Protocol):
    """Where a program runs."""

    name: str
    """As people call files there."""

    def run(self, program: str, args: Sequence[str], tell: Tell) -> Ended:
        """Run one of our programs to its end; `tell` gets all lines but the last."""
        ...


class Here:
    """The user's machine, with their own credentials."""

    name = "local"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def run(self, program: str, args: Sequence[str], tell: Tell) -> Ended:
        """Run it in a process of its own; unless kept back, its words go straight to stderr."""
        with (
            interruptible(),
            subprocess.Popen(  # noqa: S603 -- this project's own program
                [_python(program), "-m", f"{PACKAGE}.{program}", *args],
                env={**self._environment, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if tell is None else None,
                text=True,
                errors="replace",
                # Ctrl-C reaches it once, through us: a second one would end its cleaning up.
                start_new_session=True,
            ) as process,
        ):
            last = Last(program, tell)
            try:
                assert process.stdout is not None  # noqa: S101 -- it is a pipe
                for line in process.stdout:
                    last.take(line.rstrip("\n"))
                process.wait()
            except BaseException:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                raise
        return last.ended(process.returncode)


def _python(program: str) -> str:
    """Return the interpreter that has what a program imports. Raises Failure if there is none."""
    needed = _NEEDS.get(program)
    python = python_with(needed) if needed else sys.executable
    if python is None:
        found = f"{program} needs {needed}, which is not installed on this machine"
        there = "or name files on the shared file system, where the image has it"
        remedy = f"{GET_PROGRAMS}; {there}"
        raise Failure(Code.PROGRAM_FAILED, found, remedy)
    return python


def python_with(module: str) -> str | None:
    """Return an interpreter that has a module: this one, or what `make programs` installs."""
    with suppress(ModuleNotFoundError):
        if find_spec(module):
            return sys.executable
    other = ROOT / ".venv-programs" / "bin" / "python"
    return str(other) if other.exists() else None


class Last:
    """Tells a program's lines, and keeps the one that says how it ended."""

    def __init__(self, program: str, tell: Tell) -> None:
        self._kept: list[str] = []
        self._program, self._tell = program, tell or self._kept.append
        self._summary: Mapping[str, Json] = {}

    def take(self, line: str) -> None:
        """Tell a line, unless it is the program's JSON."""
        with suppress(ValueError):
            found = json.loads(line) if line.startswith("{") else None
            if isinstance(found, dict) and found.get("program") == self._program:
                self._summary = found
                return
        self._tell(line)

    def ended(self, code: int) -> Ended:
        """Return how it ended."""
        return Ended(code, self._summary, tuple(self._kept))


def run(
    place: Place, program: str, args: Sequence[str], console: Console, *, quiet: bool = False
) -> Ended:
    """Run a program and say what it says; raise Failure if it does not come to its result.

    Quietly, only its findings are said.
    """
    ended = place.run(program, args, None if quiet else console.say)
    if not ended.summary:
        for line in ended.kept_back:
            console.say(line)
        found = f"{program} ended with exit code {ended.code} and without its result"
        remedy = "see its lines above; an image of another version may lack it: meks build"
        raise Failure(Code.PROGRAM_FAILED, found, remedy)
    if quiet:
        for finding in ended.names("findings"):
            console.say(finding)
    return ended


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end what is done here as Ctrl-C does, with its cleanup."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {}
    for number in _SIGNALS:
        try:
            # One that is ignored (nohup) stays so.
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, interrupt)
        except ValueError:  # not in the main thread, which alone gets signals
            break
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def environment_for(region: str | None) -> dict[str, str]:
    """Return this process's variables, with the cluster's region where no other is named."""
    found = dict(os.environ)
    if region and not (found.get("AWS_REGION") or found.get("AWS_DEFAULT_REGION")):
        found["AWS_DEFAULT_REGION"] = region
    return found
