"""Guards of queues: from a job's label down to the network above its nodes.

Where a name leads to nothing, Kueue lets jobs wait for ever, and says so in an object's status.
"""

from collections.abc import Iterator

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import Manifests, manifest_guard
from megatron_eks.guards.values import Value, report

_SPACE = "kubernetes.io/metadata.name"
_QUEUE = (
    ("resourceGroups", (), "it has no nodes, and jobs wait for ever"),
    ("preemption withinClusterQueue", ("LowerPriority",), "no class of jobs comes before another"),
)


@manifest_guard
def queues(manifests: Manifests) -> Iterator[Finding]:
    """Let every queue lead to nodes, and every job with a queue have one."""
    for kind, value, space in _names(manifests):
        known = [each.name for each in manifests.of(kind) if each.namespace in {"", space}]
        found = f"no {kind} {value.text!r}: jobs wait for ever"
        missing = known and value.text not in known
        yield from report(
            Rule.MISSING_OBJECT, (missing, value, found, f"use one of {', '.join(known)}")
        )
    for queue in manifests.of("ClusterQueue"):
        spec, uses = queue["spec"], manifests.of("LocalQueue")
        spaces = [e.namespace for e in uses if e["spec"]["clusterQueue"].text == queue.name]
        labels = spec["namespaceSelector"]["matchLabels"]
        if labels and spaces:
            here: list[Json] = [{_SPACE: each} for each in spaces]
            yield from labels.must_be(Rule.MISSING_OBJECT, *here, why="no job ever starts")
        yield from spec.must_hold(Rule.MISSING_OBJECT, _QUEUE)
    if any(manifests.of("LocalQueue")):
        # The pods of a TrainJob stand in the runtime of its name.
        devices = {each.owner.name for each in manifests.pods if each.asks("nvidia.com/gpu")}
        for job in manifests.of(*WORKLOADS):
            place = job["metadata"]
            lost = job.name in devices and not place["labels"][kueue.QUEUE_LABEL]
            found = "a job with GPUs in no queue takes the nodes of those that wait"
            yield from report(Rule.MISSING_OBJECT, (lost, place, found, "add its label"))


def _names(manifests: Manifests) -> Iterator[tuple[str, Value, str]]:
    """Yield what names another object: of which kind, and from which namespace."""
    for job in manifests.of(*WORKLOADS):
        labels = job["metadata"]["labels"]
        for kind, label in (
            ("LocalQueue", kueue.QUEUE_LABEL),
            ("WorkloadPriorityClass", kueue.PRIORITY_LABEL),
        ):
            if labels[label]:
                yield kind, labels[label], job.namespace
    for each in manifests.of("LocalQueue"):
        yield "ClusterQueue", each["spec"]["clusterQueue"], ""
    for each in manifests.of("ClusterQueue", "Cohort"):
        for group in each["spec"]["resourceGroups"]:
            yield from (("ResourceFlavor", flavor["name"], "") for flavor in group["flavors"])
    for each in manifests.of("ResourceFlavor"):
        yield "Topology", each["spec"]["topologyName"], ""
