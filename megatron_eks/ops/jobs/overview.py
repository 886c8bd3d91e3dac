"""`meks status`: pools, jobs, and what of the platform does not work."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime

from megatron_eks.config.load import Json
from megatron_eks.kubernetes.client import Client
from megatron_eks.ops.cluster import readiness
from megatron_eks.ops.jobs import queues, room
from megatron_eks.ops.jobs.look import newest_step
from megatron_eks.ops.jobs.status_view import SCHEMA_VERSION, step_json, time_text
from megatron_eks.ops.jobs.waiting import Around, Wait, waits
from megatron_eks.ops.kube import jobs, teams
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.ops.kube.objects import CLUSTER_LABEL
from megatron_eks.ops.output import picked, table
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import POOL_LABEL
from megatron_eks.programs.run_log import Step

_AT_ONCE = 8
# What the platform consists of that can be ready or not.
_PLATFORM = (
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    ("v1", "PersistentVolumeClaim"),
    ("batch/v1", "Job"),
)


@dataclass(frozen=True)
class JobState:
    """A job in one line."""

    name: str
    phase: str
    ranks: int
    running: int
    restarts: int
    progress: Step | None
    waits_for: tuple[Wait, ...]
    team: str | None
    """Whose it is, where a cluster has teams."""


@dataclass(frozen=True)
class Overview:
    """A cluster, as it was read."""

    cluster: str
    kubernetes: str
    """The API server's version."""
    pools: tuple[dict[str, Json], ...]
    """The nodes of each; without a name, those of no pool."""
    jobs: tuple[JobState, ...]
    not_ready: tuple[str, ...]
    """What of the platform does not work."""
    now: datetime


def read(client: Client, plan: ClusterPlan) -> Overview:
    """Look at the cluster."""
    whose = {each.namespace: each.name for each in plan.teams if plan.is_shared}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        version = pool.submit(client.request, "GET", "/version")
        listed = pool.submit(client.list, "v1", "Node")
        found = pool.submit(teams.everywhere, client, plan, "v1", "Pod")
        events = pool.submit(teams.of_jobs, client, plan, "v1", "Event")
        parts = [pool.submit(_not_ready, client, plan, *each) for each in _PLATFORM]
        known = teams.everybody(client, plan)
        pods = found.result()
        spaces = plan.platform.namespaces
        owners = jobs.by_job(each for each in pods if each["metadata"]["namespace"] in spaces)

        def state(job: RunningJob) -> JobState:
            ranks = jobs.ranks(job, owners.get((job.kind, job.name), []), events.result())
            phase, space = job.phase(ranks), job.namespace
            around = Around(queue=queues.why(client, job), now=client.now())
            return JobState(
                name=job.name,
                phase=phase,
                ranks=len(ranks),
                running=sum(rank.runs for rank in ranks),
                restarts=job.restarts + sum(rank.pod.restarts for rank in ranks if rank.pod),
                progress=newest_step(client, space, ranks) if phase == "Running" else None,
                waits_for=tuple(waits(job, ranks, events.result(), around)),
                team=whose.get(space),
            )

        states = tuple(pool.map(state, known))
        unready = tuple(line for part in parts for line in part.result())
    rooms = room.rooms(listed.result(), pods)
    return Overview(
        cluster=plan.name,
        kubernetes=str(version.result()["gitVersion"]),
        pools=tuple(_pool(name, rooms) for name in (*(each.name for each in plan.pools), "")),
        jobs=states,
        not_ready=unready,
        now=client.now(),
    )


def _pool(name: str, rooms: Sequence[room.NodeRoom]) -> dict[str, Json]:
    own = [each for each in rooms if each.labels.get(POOL_LABEL, "") == name]
    return {
        "pool": name,
        "nodes": len(own),
        "ready": sum(each.usable for each in own),
        "gpus": int(sum(each.allocatable.get(room.GPU, 0) for each in own)),
        "free_gpus": int(sum(each.free.get(room.GPU, 0) for each in own if each.ready)),
    }


def _not_ready(client: Client, plan: ClusterPlan, version: str, kind: str) -> list[str]:
    lines = []
    for each in teams.everywhere(client, plan, version, kind, f"{CLUSTER_LABEL}={plan.name}"):
        if why := readiness.unready(client, {**each, "apiVersion": version, "kind": kind}):
            place = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
            lines.append(f"{kind} {place}: {why}")
    return lines


def lines(found: Overview) -> Iterator[str]:
    """Yield all of it."""
    yield f"Cluster {found.cluster}, Kubernetes {found.kubernetes}"
    yield ""
    pools = [[str(value) or "-" for value in each.values()] for each in found.pools]
    yield from table(("POOL", "NODES", "READY", "GPUS", "FREE"), pools, right=(1, 2, 3, 4))
    yield ""
    if not found.jobs:
        yield "No jobs."
    else:
        size = 6 if any(each.team for each in found.jobs) else 5
        rows = [("JOB", "PHASE", "RUN", "RESTARTS", "STEP", "TEAM")[:size]]
        for each in found.jobs:
            run, step = f"{each.running}/{each.ranks}", str(each.progress or "")
            row = (each.name, each.phase, run, str(each.restarts), step, each.team or "-")
            rows.append(row[:size])
        yield from table(rows[0], rows[1:], right=(2, 3))
    for each in found.jobs:
        yield from (f"{each.name}, {wait.line}" for wait in each.waits_for)
    if found.not_ready:
        yield ""
        yield "Not ready:"
        yield from found.not_ready


def as_json(found: Overview) -> dict[str, Json]:
    """Return it as plain values; docs/schemas/status.json says which."""
    known = [{**asdict(each), "progress": step_json(each.progress)} for each in found.jobs]
    return {
        "schema_version": SCHEMA_VERSION,
        "at": time_text(found.now),
        **picked(found, "cluster", "kubernetes"),
        "pools": [*found.pools],
        # Without teams there is no such key.
        "jobs": [{k: v for k, v in each.items() if k != "team" or v} for each in known],
        "not_ready": [*found.not_ready],
    }
