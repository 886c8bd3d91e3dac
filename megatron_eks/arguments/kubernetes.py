"""Arguments of the commands that talk to Kubernetes."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from megatron_eks.arguments.shared import Commands, cluster, command, today
from megatron_eks.ops.aws.console import Console, SystemClock
from megatron_eks.ops.kube import access, apply
from megatron_eks.ops.kube.access import Access
from megatron_eks.project import Project, load_project


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _apply(commands)


def _apply(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "apply",
        "Bring manifests into the cluster, in order; show what changes, ask, wait.",
        "  meks apply                     the platform; what is no longer in it is removed\n"
        "  meks apply --diff              only show what would change\n"
        "  meks apply dist/validation     the checks of each pool\n",
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="manifests or folders of them; default: dist/platform, as `make synth` wrote it",
    )
    parser.add_argument("--diff", action="store_true", help="show what would change, and end")
    _yes(parser)
    _preview(parser)
    _timeout(parser, 10)
    _cluster(parser)

    def run(given: argparse.Namespace) -> int:
        options = apply.Options(
            paths=given.paths,
            only_diff=given.diff,
            previews=given.preview,
            wait_seconds=given.timeout * 60,
        )
        return _on_cluster(given, lambda *found: apply.run(*found[:2], options, found[2]))

    parser.set_defaults(run=run)


def _cluster(parser: argparse.ArgumentParser) -> None:
    """Let a command name the cluster file, and how to reach the cluster."""
    cluster(parser)
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="how to reach the cluster (default: $KUBECONFIG or ~/.kube/config)",
    )
    parser.add_argument(
        "--context", metavar="NAME", help="a context of it (default: its current one)"
    )


def _yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="answer every question with yes")


def _preview(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--preview",
        action="store_true",
        help="take placeholders too, on a cluster of `meks local up` alone",
    )


def _timeout(parser: argparse.ArgumentParser, minutes: float) -> None:
    parser.add_argument(
        "--timeout",
        type=_minutes,
        default=minutes,
        metavar="MINUTES",
        help=f"how long to wait (default: {minutes:g})",
    )


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = -1
    if not 0 < minutes <= 24 * 60 * 14:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes")
    return minutes


def _on_cluster(given: argparse.Namespace, act: Callable[[Access, Project, Console], int]) -> int:
    """Open the configured cluster and act in it; what it refuses becomes a plain failure."""
    project = load_project(given.cluster, today())
    console = Console(
        sys.stdin, sys.stdout, sys.stderr, SystemClock(), yes=getattr(given, "yes", False)
    )
    try:
        found = access.open_access(
            project.cluster, given.kubeconfig, given.context, os.environ, Path.home()
        )
        return act(found, project, console)
    except access.ERRORS as error:
        raise access.explained(error) from error
