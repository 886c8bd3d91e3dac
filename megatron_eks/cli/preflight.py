"""How `meks preflight` reaches the account and the cluster that it checks."""

from typing import TYPE_CHECKING

from megatron_eks.cli.args import Reach
from megatron_eks.cli.opening import Opened, on_aws, on_cluster, opened
from megatron_eks.ops import preflight
from megatron_eks.ops.checks import report
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube.access import Access

if TYPE_CHECKING:
    from megatron_eks.ops.aws.tools import Tools


def run(reach: Reach, part: str | None, output: str) -> int:
    """Check one part, or both as far as there is a cluster; return the exit code."""

    def cluster(on: Opened) -> int:
        return report(on.plan, preflight.cluster(on.access, on.project), output, on.console)

    if part == "cluster":
        return on_cluster(reach, cluster)
    return on_aws(reach.cluster, lambda tools: _account(tools, reach, output, alone=part == "aws"))


def _account(tools: "Tools", reach: Reach, output: str, *, alone: bool) -> int:
    from megatron_eks.ops.aws.identity import public_address
    from megatron_eks.ops.aws.preflight.reach import why_not

    try:
        way: Access | Failure = opened(tools.plan, reach)
    except Failure as failure:
        way = failure
    # In a rehearsal the cluster of this machine stands for the one that AWS knows.
    is_local = not isinstance(way, Failure) and way.is_local
    reached = None if is_local else why_not
    try:
        results, deployed = preflight.account(tools, reach=reached, own_address=public_address)
        if deployed and not alone:
            results += preflight.cluster_if_reached(way, tools.project)
    finally:
        if not isinstance(way, Failure):
            way.client.close()
    return report(tools.plan, results, output, tools.console)
