"""What the cluster knows of a job's end: its ranks' logs, the pods' states, events and nodes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from megatron_eks.diagnosis.diagnose import Diagnosis, diagnose
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.jobs import ended, logs
from megatron_eks.ops.kube import jobs, pods
from megatron_eks.ops.kube.jobs import Rank, RunningJob
from megatron_eks.plan.cluster.cluster import ClusterPlan

_TAIL = 2000
"""Lines of each container, where nobody asks for another number: what ended it stands there."""
_READERS = 16


def of_job(client: Client, plan: ClusterPlan, name: str, options: logs.Options) -> Diagnosis:
    """Explain what became of a job. Raises Failure if there is no such job, or no such rank."""
    job = jobs.get(client, plan.platform.namespace, name)
    found = jobs.ranks(job, jobs.pods_of(client, job))
    chosen = logs.chosen(found, name, options.rank)
    read = partial(_printed, client, job.namespace, options)
    with ThreadPoolExecutor(_READERS) as readers:
        printed = [line for lines in readers.map(read, chosen) for line in lines]
    return _explained(client, job, chosen, printed)


def of_record(
    client: Client, plan: ClusterPlan, name: str, options: logs.Options, lines: Sequence[str]
) -> Diagnosis:
    """Explain what became of a job by what its ranks have printed before their pods went."""
    live = jobs.find(client, plan.platform.namespace, name)
    there = jobs.ranks(live, jobs.pods_of(client, live)) if live else []
    job = live or next(map(RunningJob, ended.kept(lines, jobs.KINDS)), None)
    ranks = ended.ranks(job, there, lines)
    found = [rank for rank in ranks if options.rank in {None, rank.number}]
    return _explained(client, job, found, ended.printed(lines), ended.kept(lines, {"Event"}))


def _explained(
    client: Client,
    job: RunningJob | None,
    ranks: Sequence[Rank],
    printed: Sequence[str],
    kept: Sequence[Object] = (),
) -> Diagnosis:
    living = client.list("v1", "Event", job.namespace) if job else []
    events = {each["metadata"]["uid"]: each for each in (*kept, *living)}.values()
    nodes = client.list("v1", "Node")
    told = [line for rank in ranks for line in _told(rank, list(events), nodes)]
    ends = [line for rank in ranks for line in _ends(rank)]
    return diagnose([*told, *printed, *ends, *([f"event {job.message()}"] if job else [])])


def _printed(client: Client, namespace: str, options: logs.Options, rank: Rank) -> list[str]:
    """Return what a rank printed, in its container before this one too."""
    if rank.pod is None:
        return []
    before = (True, False) if rank.pod.restarts and not options.previous else (options.previous,)
    tail = options.tail if options.tail is not None else _TAIL
    lines: list[str] = []
    for previous in before:
        wanted = logs.Options(tail=tail, since_seconds=options.since_seconds, previous=previous)
        lines += logs.printed(client, namespace, rank, wanted)
    return [f"[{rank.number}] {line}" for line in lines]


def _told(rank: Rank, events: Sequence[Object], nodes: Sequence[Object]) -> Iterator[str]:
    """Yield what the kubelet and the controllers say of a rank."""
    if rank.pod is None or rank.manifest is None:
        return
    at = f"[{rank.number}] "
    uid = rank.manifest["metadata"]["uid"]
    own = [each for each in events if each["involvedObject"].get("uid") == uid]
    for event in sorted((each for each in own if each.get("type") == "Warning"), key=pods.when):
        text = f"{event.get('reason', '')}: {event.get('message', '')}"
        yield f"{at}event {pods.one_line(text)}"
    for condition in rank.manifest.get("status", {}).get("conditions") or ():
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            yield f"{at}DisruptionTarget {condition.get('reason')}: {condition.get('message')}"
    for node in nodes:
        if node["metadata"]["name"] == rank.pod.node:
            yield from _node(at, node)


def _ends(rank: Rank) -> Iterator[str]:
    """Yield how a rank's containers ended, which is after all that they printed."""
    status = (rank.manifest or {}).get("status", {})
    for container in status.get("containerStatuses") or ():
        for state in (container.get("lastState", {}), container.get("state", {})):
            if (last := state.get("terminated")) and last.get("exitCode"):
                end = f"{last.get('reason', '')} exit code: {last['exitCode']}"
                yield f"[{rank.number}] container {container['name']} ended: {end}"


def _node(at: str, node: Object) -> Iterator[str]:
    """Yield what makes a node useless."""
    for condition in node.get("status", {}).get("conditions") or ():
        kind, status = condition["type"], condition["status"]
        if kind == "Ready" and status != "True":
            yield f"{at}node {node['metadata']['name']} is not ready: {condition.get('message')}"
        elif kind.endswith("Ready") and kind != "Ready" and status == "False":
            reason, message = condition.get("reason"), condition.get("message")
            yield f"{at}node condition {kind} is False: {reason} {message}"
