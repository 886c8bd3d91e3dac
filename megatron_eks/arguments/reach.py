"""How commands reach the configured Kubernetes, and the options that several of them share."""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from megatron_eks.arguments.shared import cluster, today
from megatron_eks.ops.aws.console import Console, SystemClock
from megatron_eks.ops.kube import access
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.jobs import NoJob
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import Project, load_project

Act = Callable[[argparse.Namespace, Access, Project, Console], int]


def reach(parser: argparse.ArgumentParser) -> None:
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


def preview(parser: argparse.ArgumentParser) -> None:
    """Let a command take placeholders, for a rehearsal."""
    parser.add_argument(
        "--preview",
        action="store_true",
        help="take placeholders too, on a cluster of `meks local up` alone",
    )


def timeout(parser: argparse.ArgumentParser, minutes: float) -> None:
    """Let a command wait for longer, or shorter."""
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


def console_here(*, yes: bool = False) -> Console:
    """Return the terminal, or what stands in its place."""
    return Console(sys.stdin, sys.stdout, sys.stderr, SystemClock(), yes=yes)


def opened(plan: ClusterPlan, file: Path | None = None, context: str | None = None) -> Access:
    """Open the way to the API server of a cluster. Raises Failure if there is none."""
    try:
        return access.open_access(plan, file, context, os.environ, Path.home())
    except access.ERRORS as error:
        raise access.explained(error) from error


def acts(parser: argparse.ArgumentParser) -> Callable[[Act], Act]:
    """Let the decorated function carry a command out in the configured cluster."""

    def keep(act: Act) -> Act:
        parser.set_defaults(run=lambda given: on_cluster(given, partial(act, given)))
        return act

    return keep


def on_cluster(given: argparse.Namespace, act: Callable[[Access, Project, Console], int]) -> int:
    """Open the configured cluster and act in it; what it refuses becomes a plain failure."""
    project = load_project(given.cluster, today())
    console = console_here(yes=getattr(given, "yes", False))
    found = opened(project.cluster, given.kubeconfig, given.context)
    try:
        return act(found, project, console)
    except NoJob as error:
        raise error.beside([job.name for job in project.jobs]) from error
    except access.ERRORS as error:
        raise access.explained(error) from error
    finally:
        found.client.close()
