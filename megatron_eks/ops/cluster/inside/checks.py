"""All checks of a cluster, in the order in which they are shown."""

from megatron_eks.ops.checks import KUBERNETES, Check, Result, judged
from megatron_eks.ops.cluster.inside import node_checks, platform_checks
from megatron_eks.ops.cluster.inside.facts import Live
from megatron_eks.plan.cluster.pools import POOL_LABEL


def _has_nodes(live: Live) -> bool:
    return any(POOL_LABEL in node.labels for node in live.nodes)


CHECKS: tuple[Check[Live], ...] = (
    Check("namespaces", platform_checks.namespaces),
    Check("platform workloads", platform_checks.workloads),
    Check("one plugin a device", platform_checks.device_plugins),
    Check("job definition", platform_checks.definition),
    Check("operator webhook", platform_checks.webhook),
    Check("shared file system", platform_checks.claims),
    Check("mounts", platform_checks.mounts),
    Check("shared directories", platform_checks.directories),
    Check("secrets of jobs", platform_checks.secrets),
    Check("nodes", node_checks.state),
    Check("node types", node_checks.types, _has_nodes),
    Check("GPUs of each node", node_checks.gpus, _has_nodes),
    Check("EFA of each node", node_checks.efa, _has_nodes),
    Check("huge pages of each node", node_checks.huge_pages, _has_nodes),
    Check("taints of GPU nodes", node_checks.taints, _has_nodes),
)


def results(live: Live) -> list[Result]:
    """Make all checks; one that lacks what it needs says so."""
    return judged(CHECKS, live, live.unknown, KUBERNETES)
