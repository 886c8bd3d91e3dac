"""`meks shell`: a shell, or one command, in the container of a rank, or of all ranks."""

import contextlib
import os
import select
import signal
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import TextIO

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes import execution
from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.kubernetes.execution import Channel, Execution
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, FAILED, INTERRUPTED, NOT_FOUND, Failure
from megatron_eks.ops.jobs import logs
from megatron_eks.ops.kube import access, jobs
from megatron_eks.ops.kube.jobs import CONTAINER, Rank, RunningJob
from megatron_eks.ops.kube.pods import containers
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.programs.printable import log_line, printable

_SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")
_AT_ONCE = 32
# As shells have it, also that in the container that passes input on.
_NO_PROGRAM = 127


class Terminal:
    """Standard input, which goes into the container, and the size of the screen."""

    def __init__(self, stdin: TextIO | None, stdout: TextIO) -> None:
        self._input = _number(stdin)
        typed = self._input is not None and os.isatty(self._input)
        self.is_one = typed and stdout.isatty()
        """Whether somebody types, and sees what comes back."""
        self.has_input = self.is_one or (self._input is not None and not typed)
        """Whether there is anything to send: with the output in a file, nobody types a file."""

    @contextlib.contextmanager
    def serve(self, begun: Execution) -> Iterator[None]:
        """Send input and size to a command until the caller is done with it."""
        if self._input is None or not self.has_input:
            yield
            return
        reader, writer = os.pipe()
        thread = threading.Thread(target=self._send, args=(begun, self._input, reader), daemon=True)
        with self._raw(self._input, writer) if self.is_one else contextlib.nullcontext():
            thread.start()
            try:
                yield
            finally:
                os.write(writer, _ENDED)
                # A command that takes no input keeps it waiting.
                thread.join(1)
        os.close(writer)

    @contextlib.contextmanager
    def _raw(self, number: int, writer: int) -> Iterator[None]:
        """Have every key reach the container, and be told of a changed size."""

        def resized(_number: int, _frame: FrameType | None) -> None:
            # Not here: the thread that this interrupts may hold the connection.
            os.write(writer, _RESIZED)

        settings = termios.tcgetattr(number)
        before = signal.signal(signal.SIGWINCH, resized)
        os.write(writer, _RESIZED)
        try:
            # What was typed already is for the container too.
            tty.setraw(number, termios.TCSADRAIN)
            yield
        finally:
            termios.tcsetattr(number, termios.TCSADRAIN, settings)
            signal.signal(signal.SIGWINCH, before)

    def _send(self, begun: Execution, number: int, told: int) -> None:
        sources = [told, number]
        while True:
            ready, _, _ = select.select(sources, [], [])
            if told in ready:
                word = os.read(told, 1)
                if word == _ENDED:
                    os.close(told)
                    return
                size = os.get_terminal_size(number)
                begun.resize(size.columns, size.lines)
            elif number in ready:
                data = os.read(number, _PIECE_BYTES)
                if data:
                    begun.write(data)
                else:
                    begun.end_input()
                    sources.remove(number)


def run(
    client: Client,
    plan: ClusterPlan,
    name: str,
    console: Console,
    *,
    rank: int = 0,
    all_ranks: bool = False,
    command: Sequence[str] = (),
) -> int:
    """Run the command, or a shell, and return its exit code; of all ranks 1 if it failed in one."""
    job = jobs.get(client, plan.platform.namespace, name)
    ranks = jobs.ranks(job, jobs.pods_of(client, job))
    try:
        if all_ranks:
            return _everywhere(client, job, ranks, command, console)
        (chosen,) = logs.chosen(ranks, name, rank)
        return _in_one(client, job, chosen, command, console)
    except KeyboardInterrupt:
        where = "--all-ranks" if all_ranks else f"--rank {rank}"
        console.say(f"\nthe command may go on: meks shell {name} {where} -- ps ax")
        return INTERRUPTED


def _in_one(
    client: Client, job: RunningJob, rank: Rank, command: Sequence[str], console: Console
) -> int:
    terminal = Terminal(console.stdin, console.stdout)
    begun = _start(client, job, rank, command or _SHELL, terminal)
    with contextlib.closing(begun), terminal.serve(begun):
        for channel, data in _output(begun, rank, command or _SHELL):
            _write(console.stderr if channel is Channel.STDERR else console.stdout, data, terminal)
    return begun.exit_code or DONE


def _everywhere(
    client: Client, job: RunningJob, ranks: Sequence[Rank], command: Sequence[str], console: Console
) -> int:
    width, lock = len(str(len(ranks) - 1)), threading.Lock()

    def one(rank: Rank) -> str:
        """Run it in one rank; return what went wrong."""
        try:
            begun = _start(client, job, rank, command, None)
            with contextlib.closing(begun):
                for channel, line in _lines(_output(begun, rank, command)):
                    stream = console.stderr if channel is Channel.STDERR else console.stdout
                    with lock:
                        stream.write(f"[{rank.number:{width}}] {log_line(line)}\n")
                        stream.flush()
        except Failure as error:
            return str(error)
        except access.ERRORS as error:
            return str(access.explained(error))
        return f"exit code {begun.exit_code}" if begun.exit_code else ""

    wrong = _at_once(one, ranks)
    for rank, text in zip(ranks, wrong, strict=True):
        if text:
            console.say(f"rank {rank.number}: {text}")
    failed = sum(map(bool, wrong))
    if failed:
        console.say(f"failed in {failed} of {len(ranks)} ranks")
    return FAILED if failed else DONE


def _at_once(act: Callable[[Rank], str], ranks: Sequence[Rank]) -> list[str]:
    """Return what a function returns for each rank, several at a time.

    Its threads end with the process: whoever interrupts it does not wait for the containers.
    """
    # Each rank of a list is the next one for one thread alone.
    waiting, found = iter([*ranks]), dict[int, str]()

    def work() -> None:
        for rank in waiting:
            found[rank.number] = act(rank)

    threads = [threading.Thread(target=work, daemon=True) for _ in ranks[:_AT_ONCE]]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [found[each.number] for each in ranks]


def pod_of(job: RunningJob, rank: Rank) -> str:
    """Return the pod of a rank whose container runs."""
    if rank.pod is None:
        raise _not_running(job, rank, "it has no pod")
    known = containers(rank.manifest)
    if not any(each["name"] == CONTAINER and "running" in each["state"] for each in known):
        raise _not_running(job, rank, rank.pod.reason or f"its pod is {rank.pod.phase}")
    return rank.pod.name


def _start(
    client: Client, job: RunningJob, rank: Rank, command: Sequence[str], terminal: Terminal | None
) -> Execution:
    pod = pod_of(job, rank)
    begin = partial(execution.start, client, job.namespace, pod, CONTAINER, command)
    try:
        if terminal is None:
            return begin()
        return begin(stdin=terminal.has_input, tty=terminal.is_one)
    except ApiError as error:
        # It has ended since it was looked at.
        gone = {HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST, HTTPStatus.INTERNAL_SERVER_ERROR}
        if error.status in gone:
            raise _not_running(job, rank, str(error)) from error
        raise


def _output(
    begun: Execution, rank: Rank, command: Sequence[str]
) -> Iterator[tuple[Channel, bytes]]:
    try:
        yield from begun.output()
    except ApiError as error:
        found = f"`{command[0]}` did not start in rank {rank.number}: {error}"
        remedy = "name a program that the image has; look with: meks shell JOB"
        raise Failure(Code.COMMAND_NOT_STARTED, found, remedy, exit_code=_NO_PROGRAM) from error


def _lines(output: Iterator[tuple[Channel, bytes]]) -> Iterator[tuple[Channel, bytes]]:
    """Yield whole lines of each stream, and at the end what has no line end."""
    left = {Channel.STDOUT: b"", Channel.STDERR: b""}
    for channel, data in output:
        *whole, left[channel] = (left[channel] + data).split(b"\n")
        for line in whole:
            yield channel, line
    for channel, line in left.items():
        if line:
            yield channel, line


def _not_running(job: RunningJob, rank: Rank, why: str) -> Failure:
    found = f"rank {rank.number} of {job.name} does not run: {why}"
    remedy = f"see why: meks status {job.name}; what it printed: meks logs {job.name}"
    return Failure(
        Code.RANK_NOT_RUNNING, found, f"{remedy} --rank {rank.number}", exit_code=NOT_FOUND
    )


def _write(stream: TextIO, data: bytes, terminal: Terminal) -> None:
    """Write bytes as they are: they may be a file, or what moves the cursor of somebody's editor.

    A terminal on which nobody types is shown text.
    """
    stream.flush()
    buffer = getattr(stream, "buffer", None)
    if buffer is None or (stream.isatty() and not terminal.is_one):
        stream.write(printable(data.decode(errors="backslashreplace")))
        stream.flush()
    else:
        buffer.write(data)
        buffer.flush()


_PIECE_BYTES = 16 * 1024
_RESIZED, _ENDED = b"r", b"e"


def _number(stream: TextIO | None) -> int | None:
    """Return the file behind a stream; there is none where it was closed, and in a test."""
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError):
        return None
