"""How long `meks logs --explain --file` takes of a 50 MB log, beside one pass of grep over it."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing import ROOT, Row, verdict

BYTES = 50_000_000
MOST_MIB = 60
RANKS = 8


def rows() -> list[Row]:
    """Measure, and return what, how much, the bar, and whether it holds."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "run.log")
        _write(log)
        explain = [sys.executable, "-m", "megatron_eks", "logs", "--explain", "--file", str(log)]
        seconds, mib = _run(explain)
        bare, _ = _run(["grep", "-cE", "out of memory|Traceback|Error:", str(log)])
    found = f"{seconds:.1f} s, {mib:.0f} MiB; grep {bare:.2f} s (ratio {seconds / bare:.0f})"
    holds = verdict(holds=mib <= MOST_MIB)
    return [("explaining a log of 50 MB", found, f"at most {MOST_MIB} MiB", holds)]


def _run(command: list[str]) -> tuple[float, float]:
    """Return the seconds that a command took, and the most memory that it had."""
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)  # noqa: S603 -- ours
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - start, used.ru_maxrss / 1024


def _write(path: Path) -> None:
    """Write a run of eight ranks: steps, lines of NCCL, and an end."""
    step = 0
    with path.open("w", encoding="utf-8") as log:
        while log.tell() < BYTES:
            step += 1
            for rank in range(RANKS - 1):
                log.write(
                    f"[{rank}] node-{rank}:{4000 + rank}:{step % 977} [{rank}] NCCL INFO channel"
                    f" {step % 32} send buffer {step * 7919} of {rank} registered, step {step}\n"
                )
            log.write(
                f"[{RANKS - 1}]  [2026-11-20 {step // 3600:02}:{step // 60 % 60:02}:{step % 60:02}]"
                f" iteration {step:8}/  900000 | consumed samples: {step * 64:12} | lm loss: 2.1 |"
                " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
            )
        log.write("[3] [rank3]: torch.OutOfMemoryError: CUDA out of memory.\n")
