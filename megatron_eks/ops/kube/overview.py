"""`meks status`: pools, jobs, and what of the platform does not work."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.endings import DONE
from megatron_eks.ops.kube import jobs, readiness, room
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.ops.kube.objects import CLUSTER_LABEL
from megatron_eks.ops.kube.progress import Progress, progress
from megatron_eks.ops.kube.status import waits
from megatron_eks.ops.output import structured, table
from megatron_eks.plan.cluster import ClusterPlan
from megatron_eks.plan.pools import POOL_LABEL

_AT_ONCE = 8
_GPU = "nvidia.com/gpu"
# What the platform consists of that can be ready or not.
_PLATFORM = (
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "StatefulSet"),
    ("v1", "PersistentVolumeClaim"),
    ("batch/v1", "Job"),
)


@dataclass(frozen=True)
class PoolState:
    """The nodes of a pool; without a name, those of no pool."""

    pool: str
    nodes: int
    ready: int
    gpus: int
    free_gpus: int


@dataclass(frozen=True)
class JobState:
    """A job in one line."""

    name: str
    phase: str
    ranks: int
    running: int
    restarts: int
    progress: Progress | None
    waits_for: tuple[str, ...]


def run(client: Client, plan: ClusterPlan, output: str, console: Console) -> int:
    """Print the state of the cluster."""
    namespace = plan.platform.namespace
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        version = pool.submit(client.request, "GET", "/version")
        nodes = pool.submit(client.list, "v1", "Node")
        pods = pool.submit(client.list, "v1", "Pod")
        events = pool.submit(client.list, "v1", "Event", namespace)
        parts = [pool.submit(_not_ready, client, plan, *each) for each in _PLATFORM]
        found = jobs.everything(client, namespace)
        owners = _by_job(pods.result(), namespace)

        def state(job: RunningJob) -> JobState:
            own = owners.get((job.kind, job.name), [])
            return _job(client, job, own, events.result())

        states = list(pool.map(state, found))
        unready = [line for part in parts for line in part.result()]
    rooms = room.rooms(nodes.result(), pods.result())
    pools = [_pool(name, rooms) for name in (*(each.name for each in plan.pools), "")]
    git_version = version.result()["gitVersion"]
    if output == "table":
        title = f"Cluster {plan.name}, Kubernetes {git_version}"
        console.write("\n".join(_lines(title, pools, states, unready)) + "\n")
        return DONE
    result = {
        "cluster": plan.name,
        "kubernetes": git_version,
        "pools": [asdict(each) for each in pools],
        "jobs": [{**asdict(each), "waits_for": [*each.waits_for]} for each in states],
        "not_ready": [*unready],
    }
    console.write(structured(result, output))
    return DONE


def _by_job(pods: Iterable[Object], namespace: str) -> dict[tuple[str, str], list[Object]]:
    """Sort the pods of a namespace to their jobs."""
    found: dict[tuple[str, str], list[Object]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        for kind, (_, label) in jobs.KINDS.items():
            if metadata["namespace"] == namespace and label in labels:
                found.setdefault((kind, labels[label]), []).append(pod)
    return found


def _job(
    client: Client, job: RunningJob, pods: Sequence[Object], events: Sequence[Object]
) -> JobState:
    ranks = jobs.ranks(job, pods, events)
    phase = job.phase(ranks)
    return JobState(
        name=job.name,
        phase=phase,
        ranks=len(ranks),
        running=sum(rank.pod is not None and rank.pod.phase == "Running" for rank in ranks),
        restarts=sum(rank.pod.restarts for rank in ranks if rank.pod),
        progress=progress(client, job.namespace, ranks) if phase == "Running" else None,
        waits_for=tuple(waits(job, ranks, events)),
    )


def _pool(name: str, rooms: Sequence[room.NodeRoom]) -> PoolState:
    own = [each for each in rooms if each.labels.get(POOL_LABEL, "") == name]
    return PoolState(
        pool=name,
        nodes=len(own),
        ready=sum(each.ready and not each.cordoned for each in own),
        gpus=int(sum(each.allocatable.get(_GPU, 0) for each in own)),
        free_gpus=int(sum(each.free.get(_GPU, 0) for each in own if each.ready)),
    )


def _not_ready(client: Client, plan: ClusterPlan, version: str, kind: str) -> list[str]:
    found = client.list(version, kind, labels=f"{CLUSTER_LABEL}={plan.name}")
    lines = []
    for each in found:
        place = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        why = readiness.unready(client, {**each, "apiVersion": version, "kind": kind})
        if why:
            lines.append(f"{kind} {place}: {why}")
    return lines


def _lines(
    title: str,
    pools: Sequence[PoolState],
    states: Sequence[JobState],
    unready: Sequence[str],
) -> Iterator[str]:
    yield title
    yield ""
    rows = [
        (each.pool or "-", *map(str, (each.nodes, each.ready, each.gpus, each.free_gpus)))
        for each in pools
    ]
    yield from table(("POOL", "NODES", "READY", "GPUS", "FREE"), rows, right=(1, 2, 3, 4))
    yield ""
    if states:
        lines = [
            (
                each.name,
                each.phase,
                f"{each.running}/{each.ranks}",
                str(each.restarts),
                str(each.progress or ""),
            )
            for each in states
        ]
        yield from table(("JOB", "PHASE", "RUN", "RESTARTS", "STEP"), lines, right=(2, 3))
    else:
        yield "No jobs."
    for each in states:
        yield from (f"{each.name}, {line}" for line in each.waits_for)
    if unready:
        yield ""
        yield "Not ready:"
        yield from unready
