"""When a job that waits in a queue is likely to start, by the steps and plans of what runs."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from megatron_eks.kubernetes.client import Client
from megatron_eks.ops.console import duration
from megatron_eks.ops.jobs import pace, queues, room
from megatron_eks.ops.jobs.look import newest_step
from megatron_eks.ops.jobs.queues import Entry, Queues
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.plan.cluster.pools import POOL_LABEL
from megatron_eks.plan.jobs.job import JobPlan

_AT_ONCE = 8

Seconds = float | None
"""From now; None where nobody can say."""


@dataclass(frozen=True)
class Start:
    """When a job starts, and after whom, or why that is not known."""

    seconds: Seconds
    because: str

    def __str__(self) -> str:
        """Write the end of a sentence about why it waits."""
        if self.seconds is None:
            return f"when it starts is not known: {self.because}"
        return f"it starts in about {duration(self.seconds)}, {self.because}"


def starts(client: Client, plans: Sequence[JobPlan], found: Queues) -> dict[str, Start]:
    """Return when those that wait are likely to start, by uid, if nothing fails."""
    wanted = {each.pool for each in found.waiting}
    if not wanted:
        return {}
    held = [each for each in found.entries if each.has_place and each.pool in wanted]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        listed = threads.submit(client.list, "v1", "Node", labels=POOL_LABEL)
        left = [*threads.map(partial(_left, client, plans), held)]
    nodes: dict[str, int] = {}
    for each in room.rooms(listed.result(), ()):
        pool = each.labels.get(POOL_LABEL, "")
        nodes[pool] = nodes.get(pool, 0) + each.usable * int(each.allocatable.get(room.GPU, 0))
    ends = {each.uid: seconds for each, seconds in zip(held, left, strict=True)}
    own = {(each.name, each.queue): each for each in plans}
    lengths = {each.uid: _whole(own.get((each.job, each.team))) for each in found.waiting}
    return {
        uid: start
        for pool in wanted
        for uid, start in in_turn(found, pool, {**lengths, **ends}, nodes.get(pool, 0))
    }


def why(client: Client, plans: Sequence[JobPlan], job: RunningJob) -> str:
    """Say why a job waits in its queue, and when it starts; empty where it does not wait."""
    found = queues.waiting(client, job)
    return of_entry(client, plans, *found) if found else ""


def of_entry(client: Client, plans: Sequence[JobPlan], found: Queues, entry: Entry) -> str:
    """Say it of a job that waits, or would; empty where it would not."""
    if not (why := found.why(entry)):
        return ""
    there = found if found.of(entry.uid) else replace(found, entries=(*found.entries, entry))
    start = starts(client, plans, there).get(entry.uid)
    return f"{why}; {start}" if start else why


def in_turn(
    found: Queues, pool: str, ends: Mapping[str, Seconds], nodes: int
) -> Iterator[tuple[str, Start]]:
    """Yield when each starts: an end gives GPUs back, and the first job that they suffice for goes.

    `ends` says how long what runs still takes, and what waits altogether; `nodes`, how many GPUs
    the nodes have that are there.
    """
    shares = {each.team: each for each in found.shares if each.pool == pool}
    used = {team: each.used for team, each in shares.items()}
    here = [each for each in found.entries if each.pool == pool and each.team in shares]
    total = found.total(pool) if pool in found.scaled else min(found.total(pool), nodes)
    running = [(ends.get(each.uid), each) for each in here if each.has_place or each.nodes]
    waiting = [each for each in found.waiting if each in here and not each.nodes]

    def fits(entry: Entry) -> bool:
        share, after = shares[entry.team], used[entry.team] + entry.gpus
        may = after <= share.gpus or share.may_borrow
        return may and entry.gpus <= total - sum(used.values())

    for each in [*filter(fits, waiting)]:
        waiting.remove(each)
        yield each.uid, Start(None, "GPUs enough are free, and Kueue has not let it in yet")
    while known := [(end, each) for end, each in running if end is not None]:
        now, ended = min(known, key=lambda place: place[0])
        running.remove((now, ended))
        used[ended.team] -= ended.gpus
        for each in [*waiting]:
            if fits(each):
                waiting.remove(each)
                used[each.team] += each.gpus
                length = ends.get(each.uid)
                running.append((None if length is None else now + length, each))
                way = "ends" if ended.leaves_in is None else "has given its place back"
                yield each.uid, Start(now, f"when {ended.job} {way}")
    unknown = sorted(each.job for _, each in running)
    for each in waiting:
        why = "jobs that you may not see have the rest"
        if each.gpus > total:
            why = f"it takes {each.gpus} GPUs, and the nodes of pool {pool} have {total}"
        elif unknown:
            why = f"nothing predicts the end of {' and '.join(unknown)}"
        yield each.uid, Start(None, why)


def _left(client: Client, plans: Sequence[JobPlan], entry: Entry) -> Seconds:
    if entry.leaves_in is not None:
        return entry.leaves_in
    job = jobs.find(client, entry.namespace, entry.job)
    if job is None:
        return None
    plan, _ = pace.plan_of(plans, job)
    newest = newest_step(client, job.namespace, jobs.ranks(job, jobs.pods_of(client, job)))
    return _whole(plan) if newest is None else pace.left(newest, plan)[0]


def _whole(plan: JobPlan | None) -> Seconds:
    """Return how long a run takes from its first step, the time that failures cost included."""
    training = plan.training if plan else None
    if training is None or training.speed is None:
        return None
    rate = training.speed.tokens_per_second_per_gpu * training.layout.gpus
    counts = training.goodput.expected if training.goodput else 1
    return training.tokens / rate / counts if counts else None
