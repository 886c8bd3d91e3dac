"""Runs a program that ends with its parent: `python launch.py PARENT PROGRAM [ARGUMENT...]`.

Started by its path and with nothing but the standard library, because it stands between the caller
and every process of a cluster.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(parent: int, *program: str) -> None:
    """Tie this process to its parent's life, then become the program."""
    # Survives the exec below; an `atexit` of the parent would not survive its SIGKILL.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent ended before its child had begun")
    os.execv(program[0], program)  # noqa: S606 -- a program without a shell is the point


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
