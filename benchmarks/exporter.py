"""What a job's exporter costs a rank whose steps take a second: the processor time it uses.

A rank has its own process, so all that the exporter can take from it are cores. `record` runs the
same program with and without; a step of it is 1 s of sleep, ten lines of noise and one of figures.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from urllib.request import urlopen

from benchmarks.timing import Row, verdict
from megatron_eks.localcloud.kubernetes.processes import free_port
from megatron_eks.programs.exporter.plan import VARIABLE, Plan

_STEPS, _ROUNDS = 20, 3
_BAR, _SCRAPE_SECONDS = 0.01, 5
_PROGRAM = f"""
import time
for step in range(1, {_STEPS + 1}):
    time.sleep(1)
    print(*["a line of some other part of the program " * 3] * 10, sep="\\n")
    print(f"step {{step}}/{_STEPS} | loss 2.5 | grad norm 0.7 | 900 tokens/s | 1.000 s", flush=True)
"""


def rows() -> list[Row]:
    """Return the share of a second that a step's telling takes, scrapes of every five included."""
    shares = [(_cpu_seconds(told=True) - _cpu_seconds(told=False)) / _STEPS for _ in range(_ROUNDS)]
    share = statistics.median(shares)
    bar = f"at most {_BAR:.0%}"
    return [("exporter, of a step of 1 s", f"{share:.2%}", bar, verdict(holds=share <= _BAR))]


def _cpu_seconds(*, told: bool) -> float:
    """Return the processor time of record and its program."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder}
        if told:
            environment[VARIABLE] = str(Plan("job", "torchrun", port))
        words = ["megatron_eks.programs.record", folder, "7", sys.executable, "-c", _PROGRAM]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-m", *words], env=environment, stdout=subprocess.DEVNULL
        ) as process:
            while told and process.poll() is None:
                time.sleep(_SCRAPE_SECONDS)
                _scrape(port)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _scrape(port: int) -> None:
    # It may have ended since.
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        answer.read()
