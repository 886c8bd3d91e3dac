"""The queues of the teams: what each has of which nodes, and whose jobs come first."""

from collections.abc import Mapping, Sequence

import cdk8s
from constructs import Construct

from megatron_eks.catalog import kueue
from megatron_eks.charts.pods import add_object
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import POOL_LABEL, PoolPlan
from megatron_eks.plan.cluster.queues import QueuePlan, topology, topology_levels

_EFA = "vpc.amazonaws.com/efa"

Spec = Mapping[str, object]


class KueueQueues(cdk8s.Chart):
    """A queue for each team, in one cohort; flavors are the pools, with their networks."""

    def __init__(self, scope: Construct, chart_id: str, *, plan: ClusterPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        self._cohort = plan.name
        levels = {topology(pool): topology_levels(pool) for pool in plan.pools}
        for name, labels in sorted(levels.items()):
            spec = {"levels": [{"nodeLabel": each} for each in labels]}
            self._add("Topology", name, spec=spec)
        for pool in plan.pools:
            self._add("ResourceFlavor", pool.name, spec=_flavor(pool, plan))
        resources = ["nvidia.com/gpu"]
        if any(pool.instance.efa_interfaces for pool in plan.pools):
            resources.append(_EFA)
        scaled = [pool.name for pool in plan.scaled_pools]
        if scaled:
            check = {"controllerName": kueue.CHECK_CONTROLLER}
            self._add("AdmissionCheck", kueue.NODES_CHECK, spec=check)
        for queue in plan.queues:
            self._queue(queue, resources, scaled)

    def _queue(self, queue: QueuePlan, resources: Sequence[str], scaled: Sequence[str]) -> None:
        may_borrow = queue.team is None or queue.team.may_borrow
        # Without a limit a team may borrow all that others leave idle.
        limits = {} if may_borrow else {"borrowingLimit": 0}
        flavors = [
            {
                "name": share.pool,
                "resources": [
                    {"name": name, "nominalQuota": number, **limits}
                    for name, number in zip(resources, (share.gpus, share.efa), strict=False)
                ],
            }
            for share in queue.shares
        ]
        groups = [{"coveredResources": [*resources], "flavors": flavors}]
        if queue.team is None:
            # What is nobody's share lies with the cohort, to be borrowed.
            self._add("Cohort", self._cohort, spec={"resourceGroups": groups})
            return
        team = queue.team
        space = {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}}
        spec: dict[str, object] = {
            "cohortName": self._cohort,
            "namespaceSelector": space,
            "resourceGroups": groups,
            # A team gets its share back at once, and what it borrows goes by shares.
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                "reclaimWithinCohort": "Any",
            },
            "fairSharing": {"weight": team.gpus},
        }
        if scaled:
            checks = [{"name": kueue.NODES_CHECK, "onFlavors": [*scaled]}]
            spec["admissionChecksStrategy"] = {"admissionChecks": checks}
        self._add("ClusterQueue", team.name, spec=spec)
        self._add("LocalQueue", team.name, team.namespace, spec={"clusterQueue": team.name})
        for name, value in queue.priorities:
            text = f"Jobs of team {team.name}; more comes first, and takes the place of less."
            self._add("WorkloadPriorityClass", name, value=value, description=text)

    def _add(self, kind: str, name: str, namespace: str | None = None, **parts: object) -> None:
        metadata = cdk8s.ApiObjectMetadata(name=name, namespace=namespace)
        add_object(self, f"{kind}-{name}", kueue.API_VERSION, kind, metadata, **parts)


def _flavor(pool: PoolPlan, plan: ClusterPlan) -> Spec:
    taint = {"key": plan.platform.gpu_taint, "operator": "Exists", "effect": "NoSchedule"}
    return {
        "nodeLabels": {POOL_LABEL: pool.name},
        "tolerations": [taint],
        # Kueue then counts on the nodes that are there what is free, and not up to max_nodes.
        "topologyName": topology(pool),
    }
