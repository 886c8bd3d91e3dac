"""Arguments of the commands that check what exists: preflight, fix and verify."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.arguments.aws import on_aws
from megatron_eks.arguments.reach import on_cluster, reach
from megatron_eks.arguments.shared import Commands, command, output
from megatron_eks.ops.failure import Failure

if TYPE_CHECKING:
    from megatron_eks.ops.aws.console import Console
    from megatron_eks.ops.aws.tools import Tools
    from megatron_eks.ops.kube.access import Access
    from megatron_eks.project import Project

_AWS, _CLUSTER = "aws", "cluster"


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _preflight(commands)


def _preflight(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "preflight",
        "Check account and cluster, read only: every finding at once, with its remedy.",
        "  meks preflight                before a deployment; after one the cluster too\n"
        "  meks preflight aws            permissions, quotas, capacity, network, storage\n"
        "  meks preflight cluster        nodes, devices, platform; needs no AWS\n"
        "  meks preflight -o json | jq '.checks[] | select(.verdict == \"failed\")'\n",
    )
    parser.add_argument(
        "part",
        nargs="?",
        choices=[_AWS, _CLUSTER],
        metavar="PART",
        help="aws or cluster; default: both, as far as there is a cluster",
    )
    output(parser, "all checks with their findings")
    reach(parser)

    def run(given: argparse.Namespace) -> int:
        if given.part == _CLUSTER:
            return on_cluster(given, lambda *found: _cluster(given, *found))
        return on_aws(given, lambda tools: _both(given, tools))

    parser.set_defaults(run=run)


def _cluster(
    given: argparse.Namespace, access: "Access", project: "Project", console: "Console"
) -> int:
    from megatron_eks.ops import preflight  # noqa: PLC0415 -- few commands need it

    return preflight.show(preflight.cluster(access, project), project, given.output, console)


def _both(given: argparse.Namespace, tools: "Tools") -> int:
    from megatron_eks.ops import preflight  # noqa: PLC0415 -- few commands need it
    from megatron_eks.ops.aws.address import public_address  # noqa: PLC0415 -- with it
    from megatron_eks.ops.aws.preflight.reach import why_not  # noqa: PLC0415 -- with it

    try:
        way: Access | Failure = _opened(given, tools)
    except Failure as failure:
        way = failure
    # In a rehearsal the cluster of this machine stands for the one that AWS knows.
    is_local = not isinstance(way, Failure) and way.is_local
    reached = None if is_local else why_not
    results, deployed = preflight.account(tools, reach=reached, own_address=public_address)
    if deployed and given.part != _AWS:
        results += preflight.cluster_if_reached(way, tools.project)
    return preflight.show(results, tools.project, given.output, tools.console)


def _opened(given: argparse.Namespace, tools: "Tools") -> "Access":
    """Open the way to the API server. Raises Failure if there is none."""
    from megatron_eks.ops.kube import access  # noqa: PLC0415 -- few commands need it

    try:
        return access.open_access(
            tools.plan, given.kubeconfig, given.context, os.environ, Path.home()
        )
    except access.ERRORS as error:
        raise access.explained(error) from error
