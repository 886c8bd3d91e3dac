"""The command line `meks`: parses arguments, calls one command, returns its exit code."""

import argparse
import shlex
import sys
from collections.abc import Sequence

from megatron_eks import __version__
from megatron_eks.arguments import (
    aws,
    checks,
    data,
    files,
    jobs,
    kubernetes,
    local,
    planning,
    shell,
    upkeep,
)
from megatron_eks.config.errors import ConfigError
from megatron_eks.ops.endings import DONE, FAILED, INTERRUPTED, USAGE
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.validate import print_findings
from megatron_eks.programs.printable import drop, guarded

_GROUPS = (planning, local, aws, checks, kubernetes, jobs, files, data, shell, upkeep)

_EPILOG = """\
exit codes: 0 done, 1 failed, 2 configuration or usage wrong, 3 not found,
4 a check failed, 5 not reachable, 130 interrupted
"""


@guarded()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an expected failure is printed as findings, never as a traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`| head`); there is nobody left to tell.
        drop(sys.stdout)
        return DONE
    except OSError as error:
        sys.stderr.write(f"cannot write the result: {error}\n")
        drop(sys.stdout)
        return FAILED


def _run(words: Sequence[str]) -> int:
    given, inner = _split(words)
    options = _parser().parse_args(given, argparse.Namespace(inner=inner))
    try:
        code: int = options.run(options)
    except ConfigError as error:
        print_findings(error.findings, getattr(options, "output", "table"))
        return USAGE
    except Failure as error:
        sys.stderr.write(f"error: {error}\n")
        return error.code
    except KeyboardInterrupt:
        # Commands that leave something running say so themselves.
        again = shlex.join(["meks", *words])
        sys.stderr.write(f"\ninterrupted: what was done stays done; to go on: {again}\n")
        return INTERRUPTED
    return code


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Keep the command for a container apart: argparse would take another `--` out of it."""
    if arguments[:1] != ["shell"] or "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="meks",
        description="Plan and check GPU clusters on EKS and the Megatron jobs that run on them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"meks {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in _GROUPS:
        group.add(commands)
    shell.add_completion(commands, parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
