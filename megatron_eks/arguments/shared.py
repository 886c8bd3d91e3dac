"""What the commands' arguments have in common."""

import argparse
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

from megatron_eks.ops.output import FORMATS
from megatron_eks.project import DEFAULT_CLUSTER

Run = Callable[[argparse.Namespace], int]
Commands = argparse._SubParsersAction  # noqa: SLF001 -- argparse has no public name for it


class OrNothing(list[str]):
    """Choices of arguments that may be left out altogether.

    Python 3.11 wants the empty list among them, and would name it to who mistypes one.
    """

    def __contains__(self, value: object) -> bool:
        """Tell whether it may be given."""
        return value == [] or super().__contains__(value)


def command(
    commands: "Commands[argparse.ArgumentParser]", name: str, text: str, examples: str = ""
) -> argparse.ArgumentParser:
    """Add a command; `examples` are shown as they stand, below its options."""
    return commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def runs(parser: argparse.ArgumentParser) -> Callable[[Run], Run]:
    """Let the decorated function carry a command out."""

    def keep(run: Run) -> Run:
        parser.set_defaults(run=run)
        return run

    return keep


def cluster(parser: argparse.ArgumentParser) -> None:
    """Let a command name the cluster file."""
    default = Path(os.environ.get("CLUSTER_CONFIG") or DEFAULT_CLUSTER)
    parser.add_argument(
        "--cluster",
        type=Path,
        default=default,
        metavar="FILE",
        help="the cluster file; its jobs stand in jobs/ beside it "
        "(default: $CLUSTER_CONFIG or cluster.yaml)",
    )


def output(parser: argparse.ArgumentParser, text: str) -> None:
    """Let a command write tables, JSON or YAML."""
    parser.add_argument("-o", "--output", choices=FORMATS, default="table", help=text)


def yes(parser: argparse.ArgumentParser) -> None:
    """Let a command take every answer for yes."""
    parser.add_argument("--yes", action="store_true", help="answer every question with yes")


def count(text: str, least: int = 0) -> int:
    """Read how many of something are wanted."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, {least} or more")
    return int(text)


one_or_more = partial(count, least=1)


def today() -> date:
    """Return the date, which decides what is still supported."""
    return datetime.now(tz=UTC).date()
