"""`meks preflight`: everything that can be known before GPUs are paid for, read and judged."""

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from megatron_eks.config.errors import Finding
from megatron_eks.ops import opening
from megatron_eks.ops.checks import KUBERNETES, Result, report
from megatron_eks.ops.cluster.inside import checks as kube_checks
from megatron_eks.ops.cluster.inside.live import Live
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube.access import ERRORS, Access, explained
from megatron_eks.project import MISSING_CLUSTER, Project, read_document

if TYPE_CHECKING:
    from megatron_eks.ops.aws.tools import Tools


def run(reach: opening.Reach, part: str | None, output: str) -> int:
    """Check one part, or both as far as there is a cluster; return the exit code."""

    def inside(on: opening.Opened) -> int:
        return report(on.plan, cluster(on.access, on.project), output, on.console)

    def whole(tools: "Tools") -> int:
        results, deployed = account(tools)
        if deployed and part is None:
            results += _inside(tools, reach)
        return report(tools.plan, results, output, tools.console)

    if part == "cluster":
        return opening.on_cluster(reach, inside)
    return opening.on_aws(reach.cluster, whole, makes=True)


def account(tools: "Tools") -> tuple[list[Result], bool]:
    """Check the account; say too whether there is a cluster to look into."""
    from botocore.exceptions import ClientError

    from megatron_eks.ops.cluster.account import checks
    from megatron_eks.ops.cluster.account.account import Account

    now = tools.console.clock.now()
    looked = Account(tools.aws, tools.plan, tools.project.outputs, now)
    results = checks.results(looked)
    document = read_document(tools.cluster_file, MISSING_CLUSTER)

    def placed(finding: Finding) -> Finding:
        return finding if finding.file else next(document.locate([finding]))

    found = [replace(each, findings=tuple(map(placed, each.findings))) for each in results]
    with contextlib.suppress(ClientError):  # which is among the results
        return found, looked.cluster is not None
    return found, False


def _inside(tools: "Tools", reach: opening.Reach) -> list[Result]:
    try:
        way = opening.opened(tools.plan, reach)
    except Failure as failure:
        return cluster_if_reached(failure, tools.project)
    with contextlib.closing(way.client):
        return cluster_if_reached(way, tools.project)


def cluster(access: Access, project: Project) -> list[Result]:
    """Check what is inside a cluster; raise what the client raises where it does not answer."""
    return kube_checks.results(Live(access, project))


def cluster_if_reached(way: Access | Failure, project: Project) -> list[Result]:
    """Check what is inside a cluster, or say in one finding why nobody can look."""
    if not isinstance(way, Failure):
        try:
            return cluster(way, project)
        except ERRORS as error:
            way = explained(error)
    finding = Finding(way.finding, ("cluster",), way.found, way.remedy, file=KUBERNETES)
    return [Result("inside the cluster", (finding,))]
