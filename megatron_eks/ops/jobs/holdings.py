"""What runs in a cluster and is paid for: nodes, and how long ranks of jobs have held them."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.jobs import room
from megatron_eks.ops.jobs.look import newest_step
from megatron_eks.ops.kube import jobs, teams
from megatron_eks.ops.kube.jobs import Rank, RunningJob
from megatron_eks.ops.kube.pods import containers, has_ended, moment
from megatron_eks.plan.cluster.capacity import CapacityKind
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import POOL_LABEL
from megatron_eks.plan.cost import node_price
from megatron_eks.plan.spending import RankTime, RunningNode, hours_between
from megatron_eks.programs.run_log import Step

_AT_ONCE = 8
_TYPE = "node.kubernetes.io/instance-type"
_CAPACITY_LABEL = "eks.amazonaws.com/capacityType"
_CAPACITY: Mapping[str, CapacityKind] = {"SPOT": "spot", "CAPACITY_BLOCK": "capacity_block"}


@dataclass(frozen=True)
class JobHoldings:
    """A job, and what its ranks hold."""

    name: str
    phase: str
    pool: str
    """Empty: on the system nodes."""
    ranks: tuple[RankTime, ...]
    started: datetime | None
    ended: datetime | None
    newest: Step | None
    """That its log tells of, while it runs."""
    namespace: str = ""


@dataclass(frozen=True)
class Holdings:
    """Everything that the API server knows of."""

    nodes: tuple[RunningNode, ...]
    instance_ids: Mapping[str, str]
    """Of EC2, by node."""
    jobs: tuple[JobHoldings, ...]


def read(client: Client, plan: ClusterPlan, now: datetime, only: str | None = None) -> Holdings:
    """Read nodes, and jobs with their pods; raise Failure if there is no job called `only`."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        nodes = threads.submit(client.list, "v1", "Node")
        pods = threads.submit(_pods, client, plan)
        space = plan.platform.namespace
        found = [jobs.get(client, space, only)] if only else teams.everybody(client, plan)
        by_name = {each["metadata"]["name"]: each for each in nodes.result()}
        listed, all_of_them = pods.result()
        reader = _Reader(client, plan, now, by_name, listed)
        holdings = tuple(threads.map(reader.job, found))
    return Holdings(
        # Where others may have pods that are not to be seen, no node is called idle.
        nodes=tuple(
            _node(each, plan, reader.busy if all_of_them else {*by_name})
            for each in by_name.values()
        ),
        instance_ids={
            name: str(each["spec"].get("providerID", "")).rpartition("/")[2]
            for name, each in by_name.items()
        },
        jobs=holdings,
    )


def _pods(client: Client, plan: ClusterPlan) -> tuple[list[Object], bool]:
    """Return pods, and whether they are those of all teams."""
    if plan.is_shared and (found := teams.seen(plan, lambda: client.list("v1", "Pod"), None)):
        return found, True
    return teams.of_jobs(client, plan, "v1", "Pod"), not plan.is_shared


def _node(manifest: Object, plan: ClusterPlan, busy: set[str]) -> RunningNode:
    metadata = manifest["metadata"]
    labels = metadata.get("labels") or {}
    pool = _known(labels.get(POOL_LABEL, ""), plan)
    kind = _CAPACITY.get(labels.get(_CAPACITY_LABEL, ""), "on_demand")
    if kind == "on_demand" and pool and plan.pool(pool).capacity.kind == "reservation":
        # EKS knows no word for it.
        kind = "reservation"
    return RunningNode(
        name=metadata["name"],
        pool=pool,
        instance_type=labels.get(_TYPE, "unknown"),
        capacity=kind,
        since=datetime.fromisoformat(metadata["creationTimestamp"]),
        busy=metadata["name"] in busy,
    )


def _known(pool: str, plan: ClusterPlan) -> str:
    """Return a pool's name, if the cluster file has it."""
    return pool if pool in {each.name for each in plan.pools} else ""


class _Reader:
    """Sorts pods to jobs and nodes."""

    def __init__(
        self,
        client: Client,
        plan: ClusterPlan,
        now: datetime,
        nodes: Mapping[str, Object],
        pods: Iterable[Object],
    ) -> None:
        self._client, self._plan, self._now, self._nodes = client, plan, now, nodes
        self._pods = jobs.by_job(pods)
        self.busy = {
            pod["spec"].get("nodeName", "")
            for found in self._pods.values()
            for pod in found
            if not has_ended(pod)
        }
        """Nodes that hold a pod which belongs to a job and has not ended."""

    def job(self, job: RunningJob) -> JobHoldings:
        """Say what a job holds and has held."""
        ranks = jobs.ranks(job, self._pods.get((job.kind, job.name), []))
        phase = job.phase(ranks)
        pool = _known(job.pool, self._plan)
        # A task on the system nodes costs nothing: they run anyway.
        starts = (_started(rank.manifest) for rank in ranks)
        times = tuple(self._rank(job, rank, pool) for rank in ranks) if pool else ()
        return JobHoldings(
            name=job.name,
            phase=phase,
            pool=pool,
            ranks=times,
            started=min(filter(None, starts), default=None) or _began(job),
            ended=_ended(job),
            newest=newest_step(self._client, job.namespace, ranks) if phase == "Running" else None,
            namespace=job.namespace,
        )

    def _rank(self, job: RunningJob, rank: Rank, pool: str) -> RankTime:
        spec = job.pod_specs[0][1] if rank.manifest is None else rank.manifest["spec"]
        node = self._nodes.get(spec.get("nodeName", ""))
        start, end = _span(job, rank.manifest, self._now)
        runs = rank.manifest is not None and start is not None and end is None
        hours = hours_between(start, end or self._now) if start else 0.0
        return RankTime(hours, self._share(spec, node, pool), self._price(node, pool), runs)

    def _share(self, spec: Object, node: Object | None, pool: str) -> float:
        """Return the part of a node that a pod asks for: of what it asks for most of."""
        wanted = room.requests(spec)
        if node is not None:
            offered = room.amounts(node["status"].get("allocatable") or {})
            parts = [float(wanted[name] / offered[name]) for name in wanted if offered.get(name)]
            return min(1.0, max(parts, default=1.0))
        gpus = self._plan.pool(pool).instance.gpus
        return min(1.0, float(wanted.get(room.GPU, gpus)) / gpus)

    def _price(self, node: Object | None, pool: str) -> float | None:
        planned = self._plan.pool(pool)
        if node is None:
            return node_price(planned.instance.name, planned.capacity.kind, self._plan)
        found = _node(node, self._plan, self.busy)
        return node_price(found.instance_type, found.capacity, self._plan)


def _span(
    job: RunningJob, pod: Object | None, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return when a rank started and ended; of a pod that is gone, when the job ran."""
    if pod is None:
        ended = _ended(job)
        return (_began(job), ended) if ended else (None, None)
    # What a set made before its last restart is gone, and was paid for.
    start = _began(job) if job.restarts else _started(pod)
    if not has_ended(pod):
        return start, None
    states = (each.get("state", {}) for each in containers(pod))
    ends = (each.get("terminated", {}).get("finishedAt") for each in states)
    last = max(map(datetime.fromisoformat, filter(None, ends)), default=None)
    return start, last or _ended(job) or now


def _started(pod: Object | None) -> datetime | None:
    """Return when a node was first held: once the kubelet has it."""
    return moment((pod or {}).get("status", {}).get("startTime"))


def _began(job: RunningJob) -> datetime | None:
    """Return when an ended job last began to run; the time it waited for nodes costs nothing.

    A set does not say it: of one whose pods are gone that time is not known, and counts.
    """
    conditions = job.manifest.get("status", {}).get("conditions") or ()
    running = [each for each in conditions if each["type"] == "Running"]
    # A condition that no longer holds has changed at the end, so its time says nothing.
    holds = running and running[-1]["status"] == "True"
    found = running[-1].get("lastTransitionTime") if holds else None
    begun = found or job.manifest.get("status", {}).get("startTime")
    return moment(begun or job.manifest["metadata"].get("creationTimestamp"))


def _ended(job: RunningJob) -> datetime | None:
    if not job.ended:
        return None
    status = job.manifest.get("status", {})
    times = [status.get("completionTime")]
    times += [
        found.get("lastTransitionTime")
        for kind in ("Failed", "Complete", "Completed", "Succeeded")
        if (found := job.condition(kind))
    ]
    return moment(next(filter(None, times), None))
