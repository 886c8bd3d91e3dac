"""What the cluster knows of a job's end: its ranks' logs, the pods' states, events and nodes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import zip_longest

from megatron_eks.catalog.workloads import WORKLOADS
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
    there = jobs.pods_of(client, job)
    found = jobs.ranks(job, there)
    chosen = logs.chosen(found, name, options.rank)
    read = partial(_printed, client, job.namespace, options)
    with ThreadPoolExecutor(_READERS) as readers:
        printed = [line for lines in readers.map(read, chosen) for line in lines]
    return _explained(client, job, chosen, printed, there)


def of_record(
    client: Client, plan: ClusterPlan, name: str, options: logs.Options, lines: Sequence[str]
) -> Diagnosis:
    """Explain what became of a job by what its ranks have printed before their pods went."""
    live = jobs.find(client, plan.platform.namespace, name)
    there = jobs.pods_of(client, live) if live else []
    job = live or next(map(RunningJob, ended.kept(lines, WORKLOADS)), None)
    ranks = ended.ranks(job, jobs.ranks(live, there) if live else [], lines)
    found = [rank for rank in ranks if options.rank in {None, rank.number}]
    kept = ended.kept(lines, {"Pod", "Event"})
    return _explained(client, job, found, ended.printed(lines), [*kept, *there])


def _explained(
    client: Client,
    job: RunningJob | None,
    ranks: Sequence[Rank],
    printed: Sequence[str],
    known: Sequence[Object],
) -> Diagnosis:
    living = client.list("v1", "Event", job.namespace) if job else []
    living += client.list("v1", "Event", "default", fields="involvedObject.kind=Node")
    objects = {each["metadata"]["uid"]: each for each in (*known, *living)}.values()
    events = [each for each in objects if "involvedObject" in each]
    pods_of = jobs.by_rank(job, [each for each in objects if "spec" in each]) if job else {}
    nodes = client.list("v1", "Node")
    told: list[str] = []
    ends: list[str] = []
    for rank in ranks:
        early, late = said_of_nodes(rank, pods_of.get(rank.number, ()), events)
        told += [*early, *_told(rank, events, nodes)]
        ends += [*late, *_ends(rank)]
    if job is None:
        return diagnose([*told, *printed, *ends])
    found = diagnose([*told, *printed, *ends, f"event {job.message()}"])
    return in_phase(found, job.phase(ranks))


def in_phase(found: Diagnosis, phase: str) -> Diagnosis:
    """Say that a job runs or has succeeded, where its lines tell no cause."""
    if found.code or found.ended_well:
        return found
    step = "" if found.last_step is None else f", step {found.last_step}"
    if phase == "Succeeded":
        return replace(
            found,
            certain=True,
            cause=f"the run ended well{step}",
            why="The cluster counts the job as succeeded.",
            remedy="nothing; what stands below did not end it" if found.cascades else "nothing",
            evidence=(),
            ended_well=True,
        )
    if phase != "Running":
        return found
    remedy = f"nothing while its steps go on; else {found.remedy}"
    return replace(found, cause=f"it runs{step}: {found.cause}", remedy=remedy)


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


def said_of_nodes(
    rank: Rank, known: Sequence[Object], events: Sequence[Object]
) -> tuple[list[str], list[str]]:
    """Return what was said of nodes while a rank's pods were there: before, and around its end.

    Of a pod that its node took along no end is known but that the next one was made: all that was
    said from then on is around it.
    """
    found = {each["metadata"]["uid"]: each for each in known}
    if rank.manifest is not None:
        # Its log may tell how the newest one ended.
        found[rank.manifest["metadata"]["uid"]] = rank.manifest
    there = list(found.values())
    known_stays = (_stay(pod, after) for pod, after in zip_longest(there, there[1:]))
    stays = [each for each in known_stays if each.node]
    said: tuple[list[str], list[str]] = [], []
    for event in sorted(events, key=pods.when):
        about, when = event["involvedObject"], pods.moment(pods.when(event))
        if about.get("kind") != "Node" or when is None:
            continue
        own = [each for each in stays if each.node == about.get("name") and each.spans(when)]
        for stay in own[-1:]:
            # What ended an earlier pod comes before what the newest one printed.
            around = stay.failed and (stay.end is None or when > stay.end - _AROUND)
            text = f"{event.get('reason')} at {when:%H:%M}: {event.get('message', '')}"
            line = f"[{rank.number}] node {stay.node}: {pods.one_line(text)}"
            said[around and stay is stays[-1]].append(line)
    return said


@dataclass(frozen=True)
class _Stay:
    """The time of a pod on its node."""

    node: str
    begin: datetime | None
    end: datetime | None
    failed: bool

    def spans(self, when: datetime) -> bool:
        """Tell whether a time is between its beginning and a while after its end."""
        has_begun = self.begin is None or when >= self.begin
        return has_begun and (self.end is None or when <= self.end + _AROUND)


def _stay(pod: Object, after: Object | None) -> _Stay:
    """Return when a pod was on its node; `after` is the one that took its place."""
    state = pods.state(pod)
    states = ((each.get("state") or {}).values() for each in pods.containers(pod))
    end = max((str(each.get("finishedAt") or "") for part in states for each in part), default="")
    begin, replaced = (
        pods.moment(each["metadata"].get("creationTimestamp")) if each else None
        for each in (pod, after)
    )
    failed = state.phase == "Failed" or (replaced is not None and state.phase != "Succeeded")
    return _Stay(state.node, begin, pods.moment(end) or replaced, failed)


def _ends(rank: Rank) -> Iterator[str]:
    """Yield how a rank's containers ended, which is after all that they printed."""
    for container in pods.containers(rank.manifest):
        for state in (container.get("lastState", {}), container.get("state", {})):
            if (last := state.get("terminated")) and last.get("exitCode"):
                end = f"{last.get('reason', '')} exit code: {last['exitCode']}"
                yield f"[{rank.number}] container {container['name']} ended: {end}"


def _node(at: str, node: Object) -> Iterator[str]:
    for condition in node.get("status", {}).get("conditions") or ():
        kind, status = condition["type"], condition["status"]
        if kind == "Ready" and status != "True":
            yield f"{at}node {node['metadata']['name']} is not ready: {condition.get('message')}"
        elif kind.endswith("Ready") and kind != "Ready" and status == "False":
            reason, message = condition.get("reason"), condition.get("message")
            yield f"{at}node condition {kind} is False: {reason} {message}"
