"""What runs in a cluster and is paid for: nodes, and how long ranks of jobs have held them."""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

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

_Offer = tuple[room.Amounts, float | None]
"""What a node has for pods, and its price an hour."""


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
        listed = threads.submit(client.list, "v1", "Node")
        pods = threads.submit(_pods, client, plan)
        space = plan.platform.namespace
        found = [jobs.get(client, space, only)] if only else teams.everybody(client, plan)
        known, all_of_them = pods.result()
        of_jobs = jobs.by_job(known)
        nodes = listed.result()
        busy = {
            pod["spec"].get("nodeName", "")
            for own in of_jobs.values()
            for pod in own
            if not has_ended(pod)
        }
        # Where others may have pods that are not to be seen, no node is called idle.
        idle = {each["metadata"]["name"] for each in nodes} - busy if all_of_them else set()
        running = [_node(each, plan, idle) for each in nodes]
        offers = {
            node.name: _offer(each, node, plan) for each, node in zip(nodes, running, strict=True)
        }

        def held(job: RunningJob) -> JobHoldings:
            ranks = jobs.ranks(job, of_jobs.get((job.kind, job.name), []))
            phase, pool = job.phase(ranks), _known(job.pool, plan)
            times: list[RankTime] = []
            # A task on the system nodes costs nothing: they run anyway.
            if pool:
                instance, kind = plan.pool(pool).instance, plan.pool(pool).capacity.kind
                price = node_price(instance.name, kind, plan)
                gone = ({room.GPU: Fraction(instance.gpus)}, price)
                times = [_rank(job, rank, offers, gone, now) for rank in ranks]
            started = filter(None, (_started(rank.manifest) for rank in ranks))
            return JobHoldings(
                name=job.name,
                phase=phase,
                pool=pool,
                ranks=tuple(times),
                started=min(started, default=None) or _began(job),
                ended=_ended(job),
                newest=newest_step(client, job.namespace, ranks) if phase == "Running" else None,
                namespace=job.namespace,
            )

        return Holdings(
            nodes=tuple(running),
            instance_ids={
                each["metadata"]["name"]: str(each["spec"].get("providerID", "")).rpartition("/")[2]
                for each in nodes
            },
            jobs=tuple(threads.map(held, found)),
        )


def _pods(client: Client, plan: ClusterPlan) -> tuple[list[Object], bool]:
    """Return pods, and whether they are those of all teams."""
    if plan.is_shared and (found := teams.seen(plan, lambda: client.list("v1", "Pod"), None)):
        return found, True
    return teams.of_jobs(client, plan, "v1", "Pod"), not plan.is_shared


def _node(manifest: Object, plan: ClusterPlan, idle: Collection[str]) -> RunningNode:
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
        busy=metadata["name"] not in idle,
    )


def _offer(manifest: Object, node: RunningNode, plan: ClusterPlan) -> _Offer:
    price = node_price(node.instance_type, node.capacity, plan)
    return room.amounts(manifest["status"].get("allocatable") or {}), price


def _known(pool: str, plan: ClusterPlan) -> str:
    return pool if pool in {each.name for each in plan.pools} else ""


def _rank(
    job: RunningJob, rank: Rank, offers: Mapping[str, _Offer], gone: _Offer, now: datetime
) -> RankTime:
    spec = job.pod_specs[0][1] if rank.manifest is None else rank.manifest["spec"]
    offered, price = offers.get(spec.get("nodeName", ""), gone)
    # The part of a node that it asks for: of what it asks for most of.
    wanted = room.requests(spec)
    parts = (float(wanted[each] / offered[each]) for each in wanted if offered.get(each))
    share = max(parts, default=1.0)
    start, end = _times(job, rank.manifest, now)
    runs = rank.manifest is not None and start is not None and end is None
    hours = hours_between(start, end or now) if start else 0.0
    return RankTime(hours, min(1.0, share), price, runs)


def _times(
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
    ends = filter(None, map(job.condition, ("Failed", "Complete", "Completed", "Succeeded")))
    times = [job.manifest.get("status", {}).get("completionTime")]
    times += [each.get("lastTransitionTime") for each in ends]
    return moment(next(filter(None, times), None))
