"""The command line `meks`: parses arguments, calls one command, returns its exit code."""

import argparse
import os
import shlex
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

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
from megatron_eks.ops.endings import DONE, FAILED, INTERRUPTED, USAGE, CommandError
from megatron_eks.ops.validate import print_findings

if TYPE_CHECKING:
    from collections.abc import Sequence

_GROUPS = (planning, local, aws, checks, kubernetes, jobs, files, data, shell, upkeep)

_EPILOG = """\
exit codes: 0 done, 1 failed, 2 configuration or usage wrong, 3 not found,
4 a check failed, 5 not reachable, 130 interrupted
"""


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run one command; an expected failure is printed as findings, never as a traceback."""
    given, inner = _split(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given, argparse.Namespace(inner=inner))
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal or pipe that cannot show a sign of somebody's file must not stop the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except ConfigError as error:
        print_findings(error.findings, getattr(options, "output", "table"))
        return USAGE
    except CommandError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.code
    except BrokenPipeError:
        # The reader went away (`| head`); there is nobody left to tell.
        _drop_output()
        return DONE
    except OSError as error:
        sys.stderr.write(f"cannot write the result: {error}\n")
        _drop_output()
        return FAILED
    except KeyboardInterrupt:
        # Commands that leave something running say so themselves.
        again = shlex.join(["meks", *(sys.argv[1:] if arguments is None else arguments)])
        sys.stderr.write(f"\ninterrupted: what was done stays done; to go on: {again}\n")
        return INTERRUPTED
    return code


def _split(arguments: "Sequence[str]") -> "tuple[Sequence[str], Sequence[str]]":
    """Keep the command for a container apart: argparse would take another `--` out of it."""
    if arguments[:1] != ["shell"] or "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _drop_output() -> None:
    """Let what is still buffered go nowhere: at exit Python would try to write it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
