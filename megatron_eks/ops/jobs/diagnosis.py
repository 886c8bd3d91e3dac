"""What the cluster knows of a job's end: its ranks' logs, the pods' states, events and nodes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
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
_AROUND = timedelta(minutes=10)
"""Of the end of a pod: what was said of its node by then may be why."""


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
    living += client.list("v1", "Event", "default", fields="involvedObject.kind=Node")
    events = {each["metadata"]["uid"]: each for each in (*kept, *living)}.values()
    nodes = client.list("v1", "Node")
    told = [line for rank in ranks for line in _told(rank, list(events), nodes)]
    ends = [line for rank in ranks for line in _ends(rank, list(events))]
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
    yield from _of_node(rank, events, late=False)
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


def _of_node(rank: Rank, events: Sequence[Object], *, late: bool) -> Iterator[str]:
    """Yield what was said of a rank's node while its pod was there; `late` is that around its end.

    Of a pod that its node took along no end is known: what was said then is late.
    """
    if rank.pod is None or rank.manifest is None or not rank.pod.node:
        return
    begun = pods.moment(rank.manifest["metadata"].get("creationTimestamp"))
    statuses = rank.manifest.get("status", {}).get("containerStatuses") or ()
    states = [state for each in statuses for state in (each.get("state") or {}).values()]
    ended = max((str(state.get("finishedAt") or "") for state in states), default="")
    end = pods.moment(ended)
    for event in sorted(events, key=pods.when):
        about, when = event["involvedObject"], pods.moment(pods.when(event))
        of_it = (about.get("kind"), about.get("name")) == ("Node", rank.pod.node)
        if not of_it or when is None or (begun and when < begun) or (end and when > end + _AROUND):
            continue
        is_late = rank.pod.phase == "Failed" and (end is None or when > end - _AROUND)
        if is_late is late:
            said = f"{event.get('reason')} at {when:%H:%M}: {event.get('message', '')}"
            yield f"[{rank.number}] node {rank.pod.node}: {pods.one_line(said)}"


def _ends(rank: Rank, events: Sequence[Object]) -> Iterator[str]:
    """Yield how a rank's containers ended, which is after all that they printed."""
    yield from _of_node(rank, events, late=True)
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
