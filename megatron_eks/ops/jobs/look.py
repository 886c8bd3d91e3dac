"""One look at a job: a handful of requests, however many ranks it has."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.jobs import CONTAINER, Rank, RunningJob
from megatron_eks.plan.cluster.pools import POOL_LABEL
from megatron_eks.programs import run_log
from megatron_eks.programs.run_log import RunLog, Step

TAIL_LINES = 1000
"""What is read of the end of a log: of a run that logs every tenth step, ten thousand steps."""

_HEAD_BYTES = 256 * 1024
_MOST_BYTES = 4 * 1024 * 1024
_LONGEST_LINE = 64 * 1024
_SECONDS = 10
_AT_ONCE = 8
_BRIEF_LINES = 100


@dataclass(frozen=True)
class Logs:
    """What the first and the last rank print: the ends of their logs, and the first's beginning."""

    end: RunLog = field(default_factory=RunLog)
    begin: RunLog = field(default_factory=RunLog)


@dataclass(frozen=True)
class Look:
    """A job as it was read, and when, by the server's clock."""

    job: RunningJob
    ranks: Sequence[Rank]
    events: Sequence[Object]
    """Of its namespace; empty where every rank runs."""
    nodes: Mapping[str, Object]
    """Nodes of the job's pool, by name."""
    logs: Logs
    """Of the containers that run, or ran last."""
    before: Logs
    """Of the containers before those."""
    now: datetime


def look(client: Client, namespace: str, name: str) -> Look:
    """Read what there is to know about a job. Raises Failure if there is none of that name."""
    job = jobs.get(client, namespace, name)
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        labels = f"{POOL_LABEL}={job.pool}" if job.pool else f"!{POOL_LABEL}"
        nodes = workers.submit(client.list, "v1", "Node", labels=labels)
        found = jobs.pods_of(client, job)
        ranks = jobs.ranks(job, found)
        logs = [
            [workers.submit(log, client, namespace, rank, **query) for rank, query in part]
            for part in _reads(ranks)
        ]
        events: list[Object] = []
        states = [(each.pod.phase, each.pod.reason) if each.pod else None for each in ranks]
        run = bool(ranks) and all(each in {("Running", ""), ("Succeeded", "")} for each in states)
        if not (job.ended or run):
            events = client.list("v1", "Event", namespace)
            ranks = jobs.ranks(job, found, events)
        end, end_before, begin, begin_before = (
            run_log.merged(run_log.read(each.result()) for each in part) for part in logs
        )
        return Look(
            job=job,
            ranks=ranks,
            events=events,
            nodes={each["metadata"]["name"]: each for each in nodes.result()},
            logs=Logs(end, begin),
            before=Logs(end_before, begin_before),
            now=client.now(),
        )


def newest_step(client: Client, namespace: str, ranks: Sequence[Rank]) -> Step | None:
    """Return the last step in the logs: Megatron's last rank writes it, or the first of ours."""
    for rank in _ends(ranks)[::-1]:
        if found := run_log.read(log(client, namespace, rank, tailLines=str(_BRIEF_LINES))).last:
            return found
    return None


def _ends(ranks: Sequence[Rank]) -> list[Rank]:
    ends = {rank.number: rank for rank in (*ranks[:1], *ranks[-1:])}
    return [rank for rank in ends.values() if rank.pod is not None]


def _reads(ranks: Sequence[Rank]) -> list[list[tuple[Rank, dict[str, str]]]]:
    """Return which logs to read: their ends, now and before, and the first one's beginnings."""
    ends = _ends(ranks)
    first = [rank for rank in ends if rank.number == 0]
    tail, head = {"tailLines": str(TAIL_LINES)}, {"limitBytes": str(_HEAD_BYTES)}
    before = {"previous": "true"}
    restarted = [rank for rank in ends if rank.pod and rank.pod.restarts]
    return [
        [(rank, tail) for rank in ends],
        [(rank, tail | before) for rank in restarted],
        [(rank, head) for rank in first],
        [(rank, head | before) for rank in first if rank in restarted],
    ]


def log(client: Client, namespace: str, rank: Rank, **query: str) -> list[str]:
    """Return lines of a rank's log, as many as come in time."""
    if rank.pod is None:
        return []
    path = f"/api/v1/namespaces/{namespace}/pods/{rank.pod.name}/log"
    asked = {"container": CONTAINER, "timestamps": "true", "limitBytes": str(_MOST_BYTES), **query}
    lines: list[str] = []
    deadline = time.monotonic() + _SECONDS
    # There may be no log yet, or no kubelet to give it: what it would tell stays unknown.
    with contextlib.suppress(ApiError, UnreachableError):
        for raw in client.stream(path, asked, _SECONDS, _LONGEST_LINE):
            lines.append(raw.decode(errors="replace"))
            if time.monotonic() > deadline:
                break
    return lines
