"""The command line `meks`: parses arguments, calls one command, returns its exit code."""

import argparse
import os
import sys
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks import __version__
from megatron_eks.config.errors import ConfigError
from megatron_eks.ops import check, explain, local, plan, predict, search, validate
from megatron_eks.ops.output import FORMATS
from megatron_eks.project import DEFAULT_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

_EPILOG = """\
exit codes: 0 done, 1 failed, 2 configuration or usage wrong, 3 not found, 130 interrupted
"""


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run one command; an expected failure is printed as findings, never as a traceback."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        # A terminal or pipe that cannot show a sign of somebody's file must not stop the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _run(options)
        sys.stdout.flush()
    except ConfigError as error:
        validate.print_findings(error.findings, options.output)
        return USAGE
    except BrokenPipeError:
        # The reader went away (`| head`); there is nobody left to tell.
        _drop_output()
        return DONE
    except OSError as error:
        sys.stderr.write(f"cannot write the result: {error}\n")
        _drop_output()
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _drop_output() -> None:
    """Let what is still buffered go nowhere: at exit Python would try to write it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "validate":
            return validate.run(options.files, options.cluster, options.output, today())
        case "plan":
            return _plan(options)
        case "predict":
            return predict.run(options.file, options.output)
        case "local":
            return local.run(options.action, options.cluster, options.nodes, options.output)
        case "explain":
            return explain.run(options.code, options.output, sys.stdout)
        case _:
            return check.run(options.paths, options.output, sys.stdout)


def _plan(options: argparse.Namespace) -> int:
    if options.search is None:
        return plan.run(options.cluster, options.output, today())
    return search.run(options.cluster, options.search, options.write, options.output, today())


def today() -> "date":
    """Return the date, which decides what is still supported."""
    return datetime.now(tz=UTC).date()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="meks",
        description="Plan and check GPU clusters on EKS and the Megatron jobs that run on them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"meks {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    command = _command(commands, "validate", "Check a cluster file and its job files.")
    command.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="cluster or job files; default: all of the project",
    )
    _cluster(command)
    _output(command, "findings one a line, or as a list")

    command = _command(
        commands, "plan", "Print what will exist, what it costs, and whether jobs fit."
    )
    command.add_argument(
        "--search",
        nargs="?",
        const="",
        metavar="JOB",
        help="the fastest layouts that fit, of one Megatron job or of all",
    )
    command.add_argument(
        "--write", type=Path, metavar="FILE", help="with --search JOB: the job with the best layout"
    )
    _cluster(command)
    _output(command, "tables, or everything")

    command = _command(
        commands, "predict", "Predict memory and speed of a run on hardware of your own."
    )
    command.add_argument(
        "file", type=Path, metavar="FILE", help="GPU, model, layout and batch; docs/predictions.md"
    )
    _output(command, "tables, or the same as data")

    command = _command(commands, "check", "Apply the rules to templates and manifests on disk.")
    command.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files or folders")
    _output(command, "findings one a line, or as a list")

    command = _command(commands, "explain", "Say what a code means, why, and what to do.")
    command.add_argument("code", metavar="CODE", help="such as MEKS-0502, or 0502")
    _output(command, "text, or the same as data")

    command = _command(
        commands, "local", "Run a Kubernetes control plane on this machine, without any account."
    )
    command.add_argument(
        "action",
        choices=("up", "down", "status"),
        help="start one (the first time builds it, in about six minutes); stop it; describe it",
    )
    command.add_argument(
        "--nodes",
        type=_node_count,
        default=0,
        metavar="N",
        help="run pods as processes here, on N nodes of each pool; default: simulate all nodes",
    )
    _cluster(command)
    _output(command, "text, or the same as data")
    return parser


def _node_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes, 1 or more")
    return int(text)


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str
) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=text, description=text)


def _cluster(command: argparse.ArgumentParser) -> None:
    default = Path(os.environ.get("CLUSTER_CONFIG") or DEFAULT_CLUSTER)
    command.add_argument(
        "--cluster",
        type=Path,
        default=default,
        metavar="FILE",
        help="the cluster file; its jobs stand in jobs/ beside it "
        "(default: $CLUSTER_CONFIG or cluster.yaml)",
    )


def _output(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("-o", "--output", choices=FORMATS, default="table", help=text)


if __name__ == "__main__":
    sys.exit(main())
