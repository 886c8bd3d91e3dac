"""One more command in a container that runs, as `kubectl exec` asks for it. A process.

`python -m ...execute FD PROGRAM` reads a `Command` as JSON from the socket FD, and joins the
namespaces of PROGRAM, the container's process 1. With a terminal it sends the controlling side
through the socket; then why the command cannot be started, if it cannot. It ends as the command
does, with 128 and the signal's number where a signal ended it.
"""

import fcntl
import json
import os
import socket
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.localcloud.kubernetes.kubelet import linux

NOT_FOUND, NOT_EXECUTABLE = 127, 126
_LONGEST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Command:
    """What a container runtime is told to run beside the container's own program."""

    sandbox: int
    words: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    user: int
    group: int
    tty: bool


def main(number: int, program: int) -> int:
    """Run the command and return its exit code."""
    control = socket.socket(fileno=number)
    with control.makefile("r") as lines:
        command = Command(**json.loads(lines.readline(_LONGEST_BYTES)))
    linux.enter(command.sandbox, "user")
    linux.enter(program, "net", "ipc", "uts", "pid", "mnt")
    terminal = None
    if command.tty:
        # The container's own, so that its programs find it in their /dev.
        controlling, terminal = os.openpty()
        socket.send_fds(control, [b"t"], [controlling])
        os.close(controlling)
    child = os.fork()
    if child == 0:
        _become(command, terminal, control)
    control.close()
    for each in (0, 1, 2, *([terminal] if terminal is not None else [])):
        os.close(each)
    _, status = os.waitpid(child, 0)
    return linux.exit_code(os.waitstatus_to_exitcode(status))


def _become(command: Command, terminal: int | None, control: socket.socket) -> None:
    try:
        os.setsid()
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            for each in (0, 1, 2):
                os.dup2(terminal, each)
        os.chdir(command.directory)
        linux.become(command.user, command.group)
        linux.restore_signals()
        control.set_inheritable(False)
        variables = {"TERM": "xterm", **command.environment} if command.tty else command.environment
        os.execvpe(command.words[0], list(command.words), dict(variables))  # noqa: S606 -- it is what exec does
    except OSError as error:
        control.sendall(f"{command.words[0]}: {error.strerror}".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
