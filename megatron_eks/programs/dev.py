"""Keeps a pod for somebody to work in, and ends it when nobody does.

dev --idle-minutes N [--gpus] [--code ARCHIVE --directory DIR]
dev --relay PORT        stdin and stdout become a connection to a port of this pod

It is used while `meks dev` is connected, while a terminal is, and with --gpus while one computes.
A GPU that does not say whether it does counts as used.

Exit codes: 0 nobody has used it for so long, 4 the code cannot be unpacked.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.program import Report
from megatron_eks.programs.start import preconditions
from megatron_eks.programs.torchrun_node import unpack

CONNECTED = "/tmp/.meks-dev"  # noqa: S108 -- the pod's own
"""Is there once the pod is ready; `meks dev` touches it each minute for as long as it runs."""

_LOST_SECONDS = 180
_LOOK_SECONDS = 10
_CHUNK_BYTES = 65536
_USE = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


def main(argv: Sequence[str], report: Report) -> None:
    """Wait until nobody uses the pod any more."""
    parser = program.parser(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--idle-minutes", type=float, metavar="N", help="unused for so long it ends")
    what.add_argument("--relay", type=int, metavar="PORT", help="be a connection")
    parser.add_argument("--gpus", action="store_true", help="it is used while its GPUs are")
    parser.add_argument("--code", type=Path, metavar="ARCHIVE", help="a folder, as .tar.gz")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where it is unpacked")
    options = parser.parse_args(argv)
    if options.relay is not None:
        _relay(options.relay)
    if options.code is not None:
        report.collect(unpack(options.code, options.directory))
    report.collect(preconditions.check_environment(os.environ))
    if report.exit_code:
        return
    Path(CONNECTED).touch()
    last, minutes = time.time(), options.idle_minutes
    while (idle := time.time() - last) < minutes * 60:
        before = time.time()
        time.sleep(min(_LOOK_SECONDS, minutes * 60 - idle))
        if _connected(before) or (options.gpus and gpu_used()):
            last = time.time()
    computed = " and no GPU computed" if options.gpus else ""
    program.say(f"nobody was connected{computed} for {minutes:g} min: it ends")


def _connected(since: float) -> bool:
    """Tell whether a `meks dev` is there, or a terminal was used meanwhile."""
    terminals = ((each, since) for each in Path("/dev/pts").glob("[0-9]*"))
    for path, begin in ((Path(CONNECTED), time.time() - _LOST_SECONDS), *terminals):
        with suppress(OSError):
            found = path.stat()
            if max(found.st_mtime, found.st_atime) > begin:
                return True
    return False


def gpu_used() -> bool:
    """Tell whether a GPU computes, or cannot be asked."""
    try:
        done = subprocess.run(_USE, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 -- the driver's
        return any(int(line) for line in done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return True


def _relay(port: int) -> None:
    """Be a connection to a port; does not return."""
    with socket.create_connection(("127.0.0.1", port)) as there:

        def send() -> None:
            with suppress(OSError):
                while data := os.read(0, _CHUNK_BYTES):
                    there.sendall(data)
                there.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        while data := there.recv(_CHUNK_BYTES):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    # Without a JSON line: these bytes are another program's.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(program.run("dev", main, sys.argv[1:]))
