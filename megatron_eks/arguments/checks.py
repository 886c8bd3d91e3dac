"""Arguments of the commands that check what exists: preflight, fix and verify."""

import argparse
from typing import TYPE_CHECKING

from megatron_eks.arguments.account import on_aws
from megatron_eks.arguments.reach import acts, on_cluster, opened, preview, reach, timeout
from megatron_eks.arguments.shared import Commands, command, output, runs, yes
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.checks import report
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.verify import CHECKS
from megatron_eks.project import MANIFESTS, Project

if TYPE_CHECKING:
    from megatron_eks.ops.aws.tools import Tools

_AWS, _CLUSTER = "aws", "cluster"


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _preflight(commands)
    _fix(commands)
    _verify(commands)


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

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        if given.part == _CLUSTER:
            return on_cluster(given, lambda *found: _cluster(given, *found))
        return on_aws(given, lambda tools: _both(given, tools))


def _cluster(given: argparse.Namespace, access: Access, project: Project, console: Console) -> int:
    from megatron_eks.ops import preflight  # noqa: PLC0415 -- few commands need it

    found = preflight.cluster(access, project)
    return report(project.cluster, found, given.output, console)


def _both(given: argparse.Namespace, tools: "Tools") -> int:
    from megatron_eks.ops import preflight  # noqa: PLC0415 -- few commands need it
    from megatron_eks.ops.aws.identity import public_address  # noqa: PLC0415 -- with it
    from megatron_eks.ops.aws.preflight.reach import why_not  # noqa: PLC0415 -- with it

    try:
        way: Access | Failure = opened(tools.plan, given.kubeconfig, given.context)
    except Failure as failure:
        way = failure
    # In a rehearsal the cluster of this machine stands for the one that AWS knows.
    is_local = not isinstance(way, Failure) and way.is_local
    reached = None if is_local else why_not
    try:
        results, deployed = preflight.account(tools, reach=reached, own_address=public_address)
        if deployed and given.part != _AWS:
            results += preflight.cluster_if_reached(way, tools.project)
    finally:
        if not isinstance(way, Failure):
            way.client.close()
    return report(tools.plan, results, given.output, tools.console)


def _fix(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "fix",
        "Apply the remedy of a finding inside the cluster: shown, asked for, checked.",
        "  meks fix MEKS-0845            put the taint back on GPU nodes\n"
        "  meks fix 0842                 start the GPU plugin again where GPUs lack\n",
    )
    parser.add_argument("code", metavar="CODE", help="as `meks preflight` prints it")
    yes(parser)
    preview(parser)
    timeout(parser, 2)
    reach(parser)

    @acts(parser)
    def act(given: argparse.Namespace, access: Access, project: Project, console: Console) -> int:
        from megatron_eks.ops.kube import fix  # noqa: PLC0415 -- few commands need it

        folder = given.cluster.with_name(MANIFESTS) / "platform"
        options = fix.Options(folder, previews=given.preview, wait_seconds=given.timeout * 60)
        return fix.run(access, project, given.code, options, console)


def _verify(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "verify",
        "Run the checks of each pool on its nodes; exit code 4 below a pass mark.",
        "  meks verify                       all checks of all pools, in some 10 minutes\n"
        "  meks verify p4d --check all-reduce -o json > report.json\n"
        "  meks verify --job megatron-cpt-techpulse      the checklist of a running job\n",
    )
    parser.add_argument("pools", nargs="*", metavar="POOL", help="default: all")
    parser.add_argument(
        "--check",
        action="append",
        choices=CHECKS,
        metavar="CHECK",
        help=f"only this one, of {', '.join(CHECKS)}; may be repeated",
    )
    parser.add_argument("--job", metavar="NAME", help="the checklist of a job instead")
    output(parser, "a table, or the report with all numbers")
    preview(parser)
    timeout(parser, 30)
    reach(parser)

    @acts(parser)
    def act(given: argparse.Namespace, access: Access, project: Project, console: Console) -> int:
        from megatron_eks.ops.kube import checklist, verify  # noqa: PLC0415 -- few need it

        if given.job:
            return checklist.run(access.client, project.cluster, given.job, given.output, console)
        options = verify.Options(
            given.cluster.with_name(MANIFESTS) / "validation",
            pools=given.pools,
            checks=[each for each in CHECKS if not given.check or each in given.check],
            previews=given.preview,
            wait_seconds=given.timeout * 60,
        )
        return verify.run(access, project, options, given.output, console)
