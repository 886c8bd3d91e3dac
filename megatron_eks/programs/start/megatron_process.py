"""Runs Megatron's program in this process, so that an error ends the process at once.

python -m megatron_eks.programs.start.megatron_process PROGRAM ARGUMENTS

With --exit-signal-handler Megatron's data loader workers ignore SIGTERM too
(megatron/training/datasets/data_samplers.py, core 0.19). A process that ends by an exception sends
them SIGTERM and waits for them: for ever, as other ranks' GPUs wait for it.
"""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run(program: str, words: Sequence[str]) -> int:
    """Run the program in its own place on the command line; return its exit code."""
    sys.argv = [program, *words]
    sys.path[0] = str(Path(program).parent)
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
            return 1
        return end.code or 0
    except Exception:  # noqa: BLE001 -- whatever Megatron ends with
        sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        for child in multiprocessing.active_children():
            child.kill()
        # Not sys.exit: queues of the killed processes would be waited for as well.
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
