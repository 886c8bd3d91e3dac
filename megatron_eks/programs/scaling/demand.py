"""How many nodes a pool needs for the jobs that have a place in a queue, and which nodes may go.

Nothing here reads, asks or waits. Two things hold whatever is told: a pool's size is only ever
raised, and a node goes by its own name, after it took no new pod for a while and had none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# A p5 node starts in about ten minutes and its plugins need some more (`meks scale` waits as long).
START_SECONDS = 1800.0
# A scheduler that has not seen the cordon yet places its last pod well within that.
SETTLE_SECONDS = 60.0
# EKS drains a node that has been ended within 15 minutes; one that is then still there is asked
# for again.
END_SECONDS = 1200.0


@dataclass(frozen=True)
class Pool:
    """A pool that is scaled by demand."""

    name: str
    gpus: int
    """Of a node."""
    max_nodes: int
    idle_seconds: float
    keep_until: float = 0.0
    """Until then its nodes are paid whether they run or not (seconds since 1970)."""


@dataclass(frozen=True)
class Node:
    """A node that has joined."""

    name: str
    instance: str
    """Its identifier in EC2."""
    free: int
    """GPUs that no pod on it has asked for."""
    ready: bool
    """The kubelet is, and so are the plugins of all devices."""
    busy: bool
    """Whether there is a pod on it that is not of every node, and has not ended."""
    joined: float
    cordoned: bool = False
    idle_since: float | None = None
    leaving_since: float | None = None
    """When this program cordoned it."""
    ended_at: float | None = None
    """When EC2 was asked to end it: nothing may come back to it from then on."""


@dataclass(frozen=True)
class Job:
    """A job that has a place in its queue and not on nodes, or not all of them."""

    name: str
    since: float
    """When it got its place in the queue."""
    pods: tuple[int, ...]
    """The GPUs of each pod that is on no node yet."""
    waits: bool
    """Whether Kueue holds its pods back until the nodes are there."""


@dataclass
class Decision:
    """What to do next."""

    size: int | None = None
    """The size to ask for, always more than before."""
    ready: list[str] = field(default_factory=list)
    """Jobs whose nodes are there."""
    told: dict[str, str] = field(default_factory=dict)
    """What jobs wait for."""
    given_up: dict[str, str] = field(default_factory=dict)
    """Jobs that have waited too long: they give their place to others, and come again."""
    idle: dict[str, float | None] = field(default_factory=dict)
    """Since when a node is idle, where that has changed."""
    cordon: list[str] = field(default_factory=list)
    uncordon: list[str] = field(default_factory=list)
    end: list[Node] = field(default_factory=list)


def decide(
    pool: Pool,
    nodes: Sequence[Node],
    jobs: Sequence[Job],
    size: int,
    *,
    now: float,
    trouble: str = "",
) -> Decision:
    """Return what to do with a pool of a size, and why its last node did not start."""
    found = Decision()
    nodes = [each for each in nodes if each.ended_at is None or _again(each, now, found)]
    free = [each.free for each in nodes if each.ready and not each.cordoned]
    new: list[int] = []
    short = []
    # What Kueue has let go comes first: its pods are on their way.
    for job in sorted(jobs, key=lambda each: (each.waits, each.since, each.name)):
        fits = _place(job.pods, free, new, pool.gpus)
        if job.waits and fits:
            found.ready.append(job.name)
        elif job.waits:
            short.append(job)
    expected = any(each.pods for each in jobs)
    leaving = [each for each in nodes if each.leaving_since is not None]
    found.uncordon = [each.name for each in leaving if expected or each.busy]
    starting = max(0, size - len(nodes)) + sum(_starts(each, now) for each in nodes)
    lacking = max(0, len(new) - starting - len(found.uncordon))
    wanted = min(max(size, len(nodes)) + lacking, pool.max_nodes)
    if lacking and wanted > size:
        found.size = wanted
    most = lacking and wanted < max(size, len(nodes)) + lacking
    why = _why(pool, len(new), trouble, nodes if most else ())
    for job in short:
        late = now - job.since >= START_SECONDS
        (found.given_up if late else found.told)[job.name] = why
    _let_go(pool, nodes, found, now, expected=expected)
    return found


def _again(node: Node, now: float, found: Decision) -> bool:
    """Ask again for the end of a node that is still there; it counts for nothing."""
    if node.ended_at is not None and now - node.ended_at >= END_SECONDS and not node.busy:
        found.end.append(node)
    return False


def _place(pods: Iterable[int], free: list[int], new: list[int], gpus: int) -> bool:
    """Put pods where they leave the least, else on new nodes; say whether none had to be new."""
    fits = True
    for pod in sorted(pods, reverse=True):
        room = next((e for e in (free, new) if any(left >= pod for left in e)), None)
        if room is None:
            new.append(gpus)
            room = new
        fits = fits and room is free
        place = min((index for index, left in enumerate(room) if left >= pod), key=room.__getitem__)
        room[place] -= pod
    return fits


def _starts(node: Node, now: float) -> bool:
    return not (node.ready or node.cordoned) and now - node.joined < START_SECONDS


def _why(pool: Pool, number: int, trouble: str, held: Sequence[Node]) -> str:
    what = f"waits for {number} more node{'s'[: number != 1]} of pool {pool.name}"
    if held:
        unusable = sorted(each.name for each in held if each.cordoned or not each.ready)
        besides = f", of which {', '.join(unusable[:3])} cannot be used" if unusable else ""
        return f"{what}, which has its {pool.max_nodes}{besides}"
    return f"{what}; AWS started none: {trouble}" if trouble else f"{what} to start"


def _let_go(
    pool: Pool, nodes: Sequence[Node], found: Decision, now: float, *, expected: bool
) -> None:
    """Note since when nodes are idle, and let those go that have been for long enough."""
    for node in nodes:
        since = None if node.busy else node.idle_since if node.idle_since is not None else now
        if since != node.idle_since:
            found.idle[node.name] = since
        if expected or since is None or now < pool.keep_until:
            continue
        if node.leaving_since is not None:
            if now - node.leaving_since >= SETTLE_SECONDS:
                found.end.append(node)
        # Somebody else's cordon: what they hold stays.
        elif not node.cordoned and now - since >= pool.idle_seconds:
            found.cordon.append(node.name)
