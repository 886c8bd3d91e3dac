"""`meks preflight`: everything that can be known before GPUs are paid for, read and judged."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.config.errors import Finding
from megatron_eks.ops.checks import KUBERNETES, Result
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube.access import ERRORS, Access, explained
from megatron_eks.ops.kube.preflight import checks as kube_checks
from megatron_eks.ops.kube.preflight.read import read as read_cluster
from megatron_eks.project import MISSING_CLUSTER, Project, read_document

if TYPE_CHECKING:
    from megatron_eks.ops.aws.preflight.read import Reach
    from megatron_eks.ops.aws.tools import Tools


def account(
    tools: "Tools", *, reach: "Reach | None", own_address: Callable[[], str]
) -> tuple[list[Result], bool]:
    """Check the account; say too whether there is a cluster to look into."""
    from megatron_eks.ops.aws.preflight import checks  # noqa: PLC0415 -- boto3
    from megatron_eks.ops.aws.preflight.facts import Subject  # noqa: PLC0415 -- boto3
    from megatron_eks.ops.aws.preflight.read import read  # noqa: PLC0415 -- boto3

    plan, outputs = tools.plan, tools.project.outputs
    facts = read(tools.aws, plan, outputs, reach=reach, own_address=own_address)
    subject = Subject(facts, plan, outputs, tools.console.clock.now())
    found = located(checks.results(subject), tools.cluster_file)
    return found, facts.cluster is not None


def cluster(access: Access, project: Project) -> list[Result]:
    """Check what is inside a cluster; raise what the client raises where it does not answer."""
    return kube_checks.results(read_cluster(access, project))


def cluster_if_reached(way: Access | Failure, project: Project) -> list[Result]:
    """Check what is inside a cluster, or say in one finding why nobody can look."""
    if not isinstance(way, Failure):
        try:
            return cluster(way, project)
        except ERRORS as error:
            way = explained(error)
    finding = Finding(way.finding, ("cluster",), way.found, way.remedy, file=KUBERNETES)
    return [Result("inside the cluster", (finding,))]


def located(results: Sequence[Result], cluster_file: Path) -> list[Result]:
    """Put findings about keys of the cluster file on their lines."""
    document = read_document(cluster_file, MISSING_CLUSTER)
    return [
        replace(
            result,
            findings=tuple(
                finding if finding.file else next(document.locate([finding]))
                for finding in result.findings
            ),
        )
        for result in results
    ]
