"""The queues of a cluster as they are now: who waits, for whom, and who comes next."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from megatron_eks.catalog import kueue
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.kubernetes.quantity import quantity
from megatron_eks.ops.jobs import queue_words, room
from megatron_eks.ops.kube import jobs, pods
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.plan.cluster.pools import POOL_LABEL


@dataclass(frozen=True)
class Entry:
    """A job in a queue."""

    job: str
    namespace: str
    team: str
    """Whose queue it is."""
    pool: str
    gpus: int
    priority: int
    since: datetime | None
    """When it came; a job that gave its place to another came at that moment."""
    has_place: bool
    uid: str
    told: str
    """Kueue's own words on why it waits."""
    leaves_in: int | None = None
    """Seconds within which its pods save and go, where its place is taken from it."""
    nodes: str = ""
    """What it waits for where it has its turn, and brings its nodes."""


@dataclass(frozen=True)
class Share:
    """What a team has of a pool, and uses of it."""

    team: str
    pool: str
    gpus: int
    used: int
    may_borrow: bool

    @property
    def lent(self) -> int:
        """What it uses of others' GPUs."""
        return max(0, self.used - self.gpus)


@dataclass(frozen=True)
class Queues:
    """All that could be read: without rights in the whole cluster no shares."""

    entries: tuple[Entry, ...]
    shares: tuple[Share, ...]
    spare: dict[str, int]
    """GPUs of each pool that are no team's, and lent to all."""
    scaled: frozenset[str] = frozenset()
    """Pools whose nodes come when a job has its turn."""

    @property
    def waiting(self) -> list[Entry]:
        """Return those without a place; within a pool in the order in which they are tried.

        Kueue holds the first of each team, by class and then by time, against those of others.
        """
        left = sorted((each for each in self.entries if not each.has_place), key=_line)
        found = []
        while left:
            heads = {(each.pool, each.team): each for each in reversed(left)}
            found.append(min(heads.values(), key=self._turn))
            left.remove(found[-1])
        return found

    @property
    def next_ones(self) -> set[str]:
        """Return the uids of those that start next, one for each pool."""
        first = {each.pool: each.uid for each in reversed(self.waiting)}
        return set(first.values())

    def of(self, uid: str) -> Entry | None:
        """Return the entry of a job."""
        return next((each for each in self.entries if each.uid == uid), None)

    def total(self, pool: str) -> int:
        """Return how many GPUs all teams have of a pool, and may lend."""
        shares = (each.gpus for each in self.shares if each.pool == pool)
        return sum(shares) + self.spare.get(pool, 0)

    def why(self, entry: Entry) -> str:
        """Say in words why a job waits: for its own team, for others, or for nodes."""
        if entry.nodes:
            return entry.nodes
        share = self._share(entry)
        if share is None:
            return entry.told
        mine, pool = f"team {share.team}", f"pool {entry.pool}"
        pooled = [each for each in self.shares if each.pool == entry.pool]
        total = self.total(entry.pool)
        idle = total - sum(each.used for each in pooled)
        after = share.used + entry.gpus
        if after > share.gpus and not share.may_borrow:
            why = f"{mine} uses {share.used} of its {share.gpus} GPUs of {pool}"
            limit = ", and may not borrow" if pooled[1:] else ""
            return f"{why}{self._until(entry, [share.team])}{limit}"
        if entry.gpus > idle:
            lenders = [each for each in pooled if each.lent and each.team != share.team]
            if after <= share.gpus and lenders:
                other = max(lenders, key=lambda each: each.lent)
                number = min(other.lent, entry.gpus - idle)
                why = f"{number} of {share.gpus} GPUs of {mine} are lent to team {other.team}"
                return f"{why}{self._until(entry, [other.team])}"
            until = self._until(entry, [each.team for each in pooled])
            idle = max(0, idle)
            return f"it takes {entry.gpus} GPUs, and {idle} of {total} of {pool} are idle{until}"
        return entry.told

    def _until(self, entry: Entry, teams: Sequence[str]) -> str:
        found = [
            each.job
            for each in self.entries
            if each.pool == entry.pool and each.team in teams and (each.has_place or each.nodes)
        ]
        return f" until {' or '.join(sorted(found))} ends" if found else ""

    def _share(self, entry: Entry) -> Share | None:
        own = (each for each in self.shares if (each.team, each.pool) == (entry.team, entry.pool))
        return next(own, None)

    def _turn(self, entry: Entry) -> tuple[str, bool, bool, float, int, str]:
        """Order teams as Kueue does: within its share, who would borrow least, by class, by time.

        It counts what a team borrows of all pools, and against its share (KEP 1714).
        """
        share, own = self._share(entry), [e for e in self.shares if e.team == entry.team]
        borrows = share is not None and share.used + entry.gpus > share.gpus
        over = sum(max(0, e.used + entry.gpus * (e is share) - e.gpus) for e in own)
        part = over / (sum(e.gpus for e in own) or 1e-9)
        return entry.pool, not entry.nodes, borrows, part, *_line(entry)[2:]


def _line(entry: Entry) -> tuple[str, bool, int, str]:
    """Order the jobs of a team: whose nodes start, by class, then by time."""
    return entry.pool, not entry.nodes, -entry.priority, str(entry.since)


def read(client: Client, *namespaces: str) -> Queues:
    """Read the queues of the cluster, or what people of some namespaces may see of them."""
    workloads = _list(client, "Workload")
    if workloads is None:
        # Whose jobs others have is not theirs to see; the queues say how much these use.
        workloads = [e for each in namespaces for e in _list(client, "Workload", each) or ()]
    queues, cohorts = (_list(client, kind) or [] for kind in ("ClusterQueue", "Cohort"))
    entries = tuple(_entry(each) for each in workloads if not pods.condition(each, "Finished"))
    shares = [
        Share(queue["metadata"]["name"], pool, gpus, _reserved(queue, pool), may_borrow=limit != 0)
        for queue in queues
        for pool, gpus, limit in _quotas(queue)
    ]
    spare: dict[str, int] = {}
    for cohort in cohorts:
        for pool, gpus, _ in _quotas(cohort):
            spare[pool] = spare.get(pool, 0) + gpus
    scaled = {
        pool
        for queue in queues
        for check in queue["spec"].get("admissionChecksStrategy", {}).get("admissionChecks", ())
        if check["name"] == kueue.NODES_CHECK
        for pool in check.get("onFlavors") or ()
    }
    return Queues(entries, tuple(shares), spare, frozenset(scaled))


def waiting(client: Client, job: RunningJob) -> tuple[Queues, Entry] | None:
    """Return the queues and a job's place in them; None where it waits in none."""
    labels = job.manifest["metadata"].get("labels") or {}
    if kueue.QUEUE_LABEL not in labels or job.phase([]) != "Suspended":
        return None
    found = read(client, job.namespace)
    entry = found.of(job.uid)
    return (found, entry) if entry and not entry.has_place else None


def why(client: Client, job: RunningJob) -> str:
    """Say why a job waits in its queue; empty where it does not."""
    found = waiting(client, job)
    return found[0].why(found[1]) if found else ""


def _list(client: Client, kind: str, namespace: str | None = None) -> list[Object] | None:
    """Return all of a kind; None where that is not to be seen."""
    try:
        return client.list(kueue.API_VERSION, kind, namespace, missing_ok=True)
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return None
        raise


def _reserved(queue: Object, pool: str) -> int:
    flavors = queue.get("status", {}).get("flavorsReservation") or ()
    resources = [each["resources"] for each in flavors if each["name"] == pool]
    return sum(_gpus(e["total"]) for each in resources for e in each if e["name"] == room.GPU)


def _quotas(queue: Object) -> Iterator[tuple[str, int, int | None]]:
    for group in queue["spec"].get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for each in flavor["resources"]:
                if each["name"] == room.GPU:
                    limit = each.get("borrowingLimit")
                    most = None if limit is None else _gpus(limit)
                    yield flavor["name"], _gpus(each["nominalQuota"]), most


def _gpus(value: object) -> int:
    """Read how many GPUs a quantity is: 1,000 come as `1k`."""
    return int(quantity(value) or 0)


def expected(job: Object, queue: str) -> Entry:
    """Return what a job would be in its queue."""
    metadata = job["metadata"]
    gpus, pool = _asked(jobs.pod_specs(job))
    place = metadata["name"], metadata["namespace"], queue, pool, gpus
    return Entry(*place, priority=0, since=None, has_place=False, uid="", told="")


def _asked(specs: Iterable[tuple[int, Object]]) -> tuple[int, str]:
    gpus, pool = 0, ""
    for number, pod in specs:
        gpus += int(room.requests(pod).get(room.GPU, 0)) * number
        pool = (pod.get("nodeSelector") or {}).get(POOL_LABEL, pool)
    return gpus, pool


def _entry(workload: Object) -> Entry:
    metadata, spec = workload["metadata"], workload.get("spec") or {}
    owner: Object = next(iter(metadata.get("ownerReferences") or ()), {})
    admission = workload.get("status", {}).get("admission") or {}
    sets = spec.get("podSets") or ()
    gpus, pool = _asked((each.get("count", 1), each["template"]["spec"]) for each in sets)
    left = pods.condition(workload, "Evicted")
    waits = pods.condition(workload, "QuotaReserved", "False")
    has_turn = bool(pods.condition(workload, "QuotaReserved"))
    checks = workload.get("status", {}).get("admissionChecks") or ()
    own = [e for e in checks if e["name"] == kueue.NODES_CHECK and e["state"] != "Ready"]
    nodes = own[0]["message"] or "waits for its nodes" if own and has_turn else ""
    has_place = has_turn and not nodes
    # The default of Kubernetes, where a template does not say.
    graces = [each["template"]["spec"].get("terminationGracePeriodSeconds", 30) for each in sets]
    return Entry(
        job=owner.get("name", metadata["name"]),
        namespace=metadata["namespace"],
        team=admission.get("clusterQueue") or spec.get("queueName", ""),
        pool=pool,
        gpus=gpus,
        priority=int(spec.get("priority") or 0),
        since=pods.moment(left.get("lastTransitionTime") or metadata.get("creationTimestamp")),
        has_place=has_place,
        uid=(metadata.get("labels") or {}).get(kueue.UID_LABEL, ""),
        told=queue_words.told(left, waits),
        leaves_in=max(graces) if left and has_place and graces else None,
        nodes=pods.one_line(nodes),
    )
