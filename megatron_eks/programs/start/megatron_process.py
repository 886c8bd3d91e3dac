"""Runs Megatron's program in this process, so that an error ends the process at once.

python -m megatron_eks.programs.start.megatron_process PROGRAM ARGUMENTS

With --exit-signal-handler Megatron's data loader workers ignore SIGTERM too
(megatron/training/datasets/data_samplers.py, core 0.19). A process that ends by an exception sends
them SIGTERM and waits for them: for ever, as other ranks' GPUs wait for it.

Exit codes: Megatron's own, and 2 where it refuses its arguments, which it does before ranks meet.
"""

import multiprocessing
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from megatron_eks.programs.program import EXIT_USAGE, usage_error

# Where Megatron reads its arguments, and makes its configurations of them.
_ARGUMENTS = ("/megatron/training/arguments.py", "/megatron/training/argument_utils.py")


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
    except Exception as problem:  # noqa: BLE001 -- whatever Megatron ends with
        sys.excepthook(*sys.exc_info())
        places = traceback.extract_tb(problem.__traceback__)
        refused = any(each.filename.endswith(_ARGUMENTS) for each in places)
        if refused:
            # Some of its assertions say nothing but what they assert.
            said = str(problem).strip() or places[-1].line or type(problem).__name__
            remedy = "change extra_args, or the key that it speaks of"
            sys.stderr.write(f"{usage_error('Megatron', said, remedy)}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        for child in multiprocessing.active_children():
            child.kill()
        # Not sys.exit: queues of the killed processes would be waited for as well.
        os._exit(EXIT_USAGE if refused else 1)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
