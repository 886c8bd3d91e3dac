"""Keeps a pod for somebody to work in, and ends it when nobody does.

dev --idle-minutes N [--gpus] [--code ARCHIVE --directory DIR]
dev --jupyter PORT      starts Jupyter, or finds it, and prints its address as JSON
dev --relay PORT        stdin and stdout become a connection to a port of this pod

It is used while `meks dev` is connected, while somebody types or reads in a terminal, and while
GPUs compute (without `--gpus`: processors). What cannot be measured counts as used.

Exit codes: 0 nobody has used it for so long, 3 no Jupyter, 4 the code cannot be unpacked.
"""

import argparse
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.program import Report, StopError
from megatron_eks.programs.start import preconditions
from megatron_eks.programs.torchrun_node import unpack

CONNECTED = "/tmp/.meks-dev"  # noqa: S108 -- the pod's own
"""What `meks dev` touches every minute for as long as it is connected."""

_LOST_SECONDS = 180
_LOOK_SECONDS = 10
# Of one core; a Jupyter that nobody uses takes a fifth of this.
_BUSY = 0.05
_CHUNK_BYTES = 65536
_START_SECONDS = 60
_JUPYTER = Path("/tmp/.jupyter-dev")  # noqa: S108 -- the pod's own
_USE = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


class Use:
    """Whether somebody, or something, uses the pod."""

    def __init__(self, *, gpus: bool) -> None:
        self._gpus = gpus
        self._looked, self._cpu = time.time(), _cpu_seconds()

    def found(self) -> bool:
        """Look at what has been used since the last time."""
        before, self._looked = self._looked, time.time()
        used, self._cpu = self._cpu, _cpu_seconds()
        share = (self._cpu - used) / max(self._looked - before, 1e-3)
        return (
            _changed(Path(CONNECTED), self._looked - _LOST_SECONDS)
            or any(_changed(each, before) for each in Path("/dev/pts").glob("[0-9]*"))
            or (gpu_used() if self._gpus else share > _BUSY)
        )


def gpu_used() -> bool:
    """Tell whether a GPU computes, or cannot be asked."""
    try:
        done = subprocess.run(_USE, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 -- the driver's
        return any(int(line) for line in done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return True


def _cpu_seconds() -> float:
    """Add up what all processes but this one have used."""
    ticks = 0
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if each.parent.name != str(os.getpid()):
                # What stands in brackets may hold anything.
                fields = each.read_text(errors="replace").rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _changed(path: Path, since: float) -> bool:
    with suppress(OSError):
        found = path.stat()
        return max(found.st_mtime, found.st_atime) > since
    return False


def main(argv: Sequence[str], report: Report) -> None:
    """Wait until nobody uses the pod any more."""
    options = _parser().parse_args(argv)
    if options.relay is not None:
        _relay(options.relay)
    elif options.jupyter is not None:
        report.facts.update(port=options.jupyter, token=_jupyter(options.jupyter))
    else:
        _keep(options, report)


def _keep(options: argparse.Namespace, report: Report) -> None:
    if options.code is not None:
        report.collect(unpack(options.code, options.directory))
    report.collect(preconditions.check_environment(os.environ))
    if report.exit_code:
        return
    program.say(f"it ends when nobody has used it for {options.idle_minutes:g} min")
    use, last = Use(gpus=options.gpus), time.monotonic()
    while (idle := time.monotonic() - last) < options.idle_minutes * 60:
        time.sleep(min(_LOOK_SECONDS, options.idle_minutes * 60 - idle))
        if use.found():
            last = time.monotonic()
    what = "no GPU computed" if options.gpus else "nothing ran"
    program.say(f"nobody was connected and {what} for {options.idle_minutes:g} min: it ends")


def _relay(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as there:

        def send() -> None:
            with suppress(OSError):
                while data := os.read(0, _CHUNK_BYTES):
                    there.sendall(data)
                there.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        out = sys.stdout.buffer
        while data := there.recv(_CHUNK_BYTES):
            out.write(data)
            out.flush()
    # No JSON line: these bytes are another program's.
    os._exit(0)


def _jupyter(port: int) -> str:
    """Return the token of Jupyter, which goes on when whoever started it has left."""
    token, log = _JUPYTER / "token", _JUPYTER / "log"
    if not _answers(port):
        if find_spec("jupyterlab") is None:
            found = f"{sys.executable} has no jupyterlab"
            remedy = (
                "in the shell: python3 -m pip install --user jupyterlab; or add it to the image"
            )
            raise StopError(program.EXIT_NOT_FOUND, "jupyter", found, remedy)
        _JUPYTER.mkdir(mode=0o700, exist_ok=True)
        token.write_text(secrets.token_hex())
        words = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"]
        with log.open("wb") as output:
            subprocess.Popen(  # noqa: S603 -- the image's own
                [*words, f"--port={port}", "--ServerApp.port_retries=0"],
                env={**os.environ, "JUPYTER_TOKEN_FILE": str(token)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        ends = time.monotonic() + _START_SECONDS
        while not _answers(port):
            if time.monotonic() > ends:
                found = f"it does not answer within {_START_SECONDS} s"
                raise StopError(program.EXIT_FAILED, "jupyter", found, f"see {log} in the pod")
            time.sleep(0.5)
    return token.read_text()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _parser() -> argparse.ArgumentParser:
    parser = program.parser(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--idle-minutes", type=float, metavar="N", help="unused for so long it ends")
    what.add_argument("--jupyter", type=int, metavar="PORT", help="start Jupyter")
    what.add_argument("--relay", type=int, metavar="PORT", help="be a connection")
    parser.add_argument("--gpus", action="store_true", help="it is used while its GPUs are")
    parser.add_argument("--code", type=Path, metavar="ARCHIVE", help="a folder, as .tar.gz")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where it is unpacked")
    return parser


if __name__ == "__main__":
    sys.exit(program.run("dev", main, sys.argv[1:]))
