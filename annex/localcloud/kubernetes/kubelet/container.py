"""One container: joins its pod's namespaces and becomes the program in them. A process.

`python -m ...container FD` reads a `Container` as JSON from stdin. On file descriptor FD it writes
the id of the program's process, and then why the program cannot start if it cannot. It ends as the
program does, with 128 and the signal's number where a signal ended it. The program is process 1 of
its own process namespace, so all that it started ends with it; and it ends with this process.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from megatron_eks.localcloud.kubernetes.kubelet import linux, rootfs

if TYPE_CHECKING:
    # Not at run time: it would take 60 ms of each container's start.
    from megatron_eks.kubernetes.client import Object

START_ERROR = 128
"""containerd's exit code of a container whose program cannot be started."""


@dataclass(frozen=True)
class Container:
    """What a container runtime is told."""

    sandbox: int
    root: str
    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    user: int
    group: int
    read_only: bool
    mounts: "Sequence[Object]"


def main(report: int) -> int:
    """Run the container and return its exit code."""
    spec = Container(**json.load(sys.stdin))
    # Joining changes the credentials, and so ends the tie to the parent.
    linux.enter(spec.sandbox, "user", "net", "ipc", "uts", "mnt")
    linux.end_with_parent()
    linux.unshare(linux.NEW_MOUNTS | linux.NEW_PROCESSES)
    linux.keep_mounts_private()
    alive, mine = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(mine)
        _become_program(spec, alive, report)
    os.close(alive)

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    os.write(report, f"{child}\n".encode())
    os.close(report)
    _, status = os.waitpid(child, 0)
    return linux.exit_code(os.waitstatus_to_exitcode(status))


def _become_program(spec: Container, alive: int, report: int) -> None:
    """Enter the container's file tree and run its program; does not return."""
    try:
        linux.end_with_parent()
        os.set_blocking(alive, False)
        _leave_if_orphaned(alive)
        root = Path(spec.root)
        mounts = [rootfs.Mount(**each) for each in spec.mounts]
        rootfs.build(root, mounts, spec.directory)
        if spec.read_only:
            linux.protect(root, recursive=False)
        linux.change_root(root)
        os.chdir(spec.directory)
        linux.become(spec.user, spec.group)
        linux.end_with_parent()
        _leave_if_orphaned(alive)
        linux.restore_signals()
        os.set_inheritable(report, False)  # noqa: FBT003 -- it takes no keyword
        os.execvpe(spec.command[0], list(spec.command), dict(spec.environment))  # noqa: S606 -- it is what a container does
    except OSError as error:
        os.write(report, f"cannot start {spec.command[0]}: {error}\n".encode())
        os._exit(START_ERROR)


def _leave_if_orphaned(alive: int) -> None:
    """End if the parent did before it was tied to this process; `getppid` is 0 either way."""
    try:
        os.read(alive, 1)
    except BlockingIOError:
        return
    os._exit(START_ERROR)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
