"""Starts one rank of a program of the user's, in the place of this process.

torchrun -m megatron_eks.programs.torchrun_rank [OPTIONS] [--script FILE | --module NAME] -- WORD...

WORDs are the arguments of the script or module, or a whole command. The first rank of a node counts
EFA devices and starts the watcher (see start/watch.py), which ends the node's ranks where they
cannot go on. The program takes over the process: signals and exit code are its own.

Exit codes of the checks: 2 the command line is wrong, 4 a check failed, 127 there is no such
command. The last line on stdout of a refusal is one JSON object, from the first rank of each node.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.printable import guarded
from megatron_eks.programs.program import Report, error
from megatron_eks.programs.start import guard

_NO_COMMAND = 127


@guarded()
def main(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Check, and become the program; return an exit code where that is refused."""
    parser = program.parser(__doc__)
    parser.add_argument("--directory", type=Path, metavar="DIR", help="where the program starts")
    own = parser.add_mutually_exclusive_group()
    own.add_argument("--script", metavar="FILE", help="a Python file, seen from there")
    own.add_argument("--module", metavar="NAME", help="what `python -m` runs")
    how = "how long a rank may use no CPU time, and NCCL may take to choose a network"
    parser.add_argument("--distributed-timeout-minutes", type=float, metavar="N", help=how)
    parser.add_argument("words", nargs="*", metavar="WORD", help="arguments, or a command")
    guard.add_options(parser)
    options = parser.parse_args(argv)
    report = Report()
    report.collect(guard.start(options, environment, options.distributed_timeout_minutes))
    report.write_findings()
    if report.exit_code:
        if environment.get("LOCAL_RANK", "0") == "0":
            report.write_summary({"program": "torchrun_rank", "status": "refused"})
        return report.exit_code
    words = [*options.words]
    if options.script is not None:
        words = [sys.executable, "-u", options.script, *words]
    elif options.module is not None:
        words = [sys.executable, "-u", "-m", options.module, *words]
    try:
        if options.directory is not None:
            os.chdir(options.directory)
        os.execvp(words[0], words)  # noqa: S606 -- what the job file says
    except OSError as problem:
        remedy = "name what is in the image, or in the folder of code"
        program.say(str(error(problem.filename or words[0], str(problem.strerror), remedy)))
    return _NO_COMMAND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
