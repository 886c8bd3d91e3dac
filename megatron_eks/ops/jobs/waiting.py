"""What ranks that do not run wait for, from their pods, events and nodes, and what to do."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from megatron_eks.catalog.kueue import QUEUE_LABEL
from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.console import duration
from megatron_eks.ops.jobs import room
from megatron_eks.ops.kube import pods
from megatron_eks.ops.kube.jobs import Rank, RunningJob

# Of the operator, and of Kubernetes' own Jobs.
_NO_POD = frozenset({"FailedCreatePod", "FailedCreate"})

# What the kubelet, the scheduler and the API server write, and what it means; the first that fits.
_KINDS = (
    ("queue", re.compile(r"^waits in the queue|^suspended")),
    ("node", re.compile(r"^node \S+ ")),
    ("quota", re.compile(r"exceeded quota|insufficient quota")),
    ("pod_security", re.compile(r"violates PodSecurity")),
    ("priority_class", re.compile(r"no PriorityClass")),
    ("webhook", re.compile(r"failed calling webhook|admission webhook")),
    ("resources", re.compile(r"Insufficient |didn't match Pod's node affinity|untolerated taint")),
    ("mount", re.compile(r"FailedMount|FailedAttachVolume|MountVolume|PersistentVolumeClaim")),
    ("image", re.compile(r"ImagePull|ErrImage|InvalidImageName|Failed to pull|Pulling image")),
    ("crash", re.compile(r"CrashLoopBackOff|exit code|RunContainerError|StartError")),
    ("config", re.compile(r"CreateContainerConfigError|secret .* not found")),
    ("resources", re.compile(r"^waits for a node")),
    ("starting", re.compile(r"container is being created|init container \S+ runs|^no pod yet")),
)
_OTHER = "other"

_REMEDIES = {
    "queue": "it starts when its queue admits it",
    "node": "meks nodes",
    "quota": "it starts when other jobs end; or raise max_nodes and: meks apply",
    "pod_security": "platform.pod_security in the cluster file, then: meks apply",
    "priority_class": "meks apply",
    "webhook": "see whether the operator runs: meks status",
    "resources": "{take}; or it starts when other jobs end",
    "mount": "meks preflight cluster",
    "image": "see that it is in ECR: meks preflight aws",
    "crash": "meks logs {job} --explain",
    "config": "meks preflight cluster",
    "other": "meks logs {job} --explain",
}


@dataclass(frozen=True)
class Around:
    """What else is known beside pods and events."""

    nodes: Mapping[str, Object] = field(default_factory=dict)
    queue: str = ""
    """Why a job waits in its queue."""
    now: datetime | None = None


_NOTHING = Around()


@dataclass(frozen=True)
class Wait:
    """Ranks that wait for the same."""

    kind: str
    ranks: tuple[int, ...]
    why: str
    remedy: str
    seconds: float | None = None
    """How old the oldest of their pods is."""

    def __str__(self) -> str:
        """Return ranks and reason, which stay the same as long as they do."""
        return f"{numbers(self.ranks)}: {self.why}"

    @property
    def line(self) -> str:
        """All of it on one line."""
        since = f" (for {duration(self.seconds)})" if self.seconds else ""
        return f"{self}{since}{' - ' if self.remedy else ''}{self.remedy}"


def waits(
    job: RunningJob, ranks: Sequence[Rank], events: Sequence[Object], around: Around = _NOTHING
) -> list[Wait]:
    """Return why ranks do not run, ranks of one reason together."""
    reasons: dict[str, list[Rank]] = {}
    for rank in ranks:
        for reason in _of_rank(rank, around.nodes, events):
            reasons.setdefault(reason, []).append(rank)
    missing = [rank for rank in ranks if rank.pod is None]
    if missing and not job.ended:
        reasons[_why_no_pod(job, events, around.queue)] = missing
    found = [_wait(job, reason, some, around.now) for reason, some in reasons.items()]
    return sorted(found, key=lambda each: each.ranks)


def numbers(ranks: Sequence[int]) -> str:
    """Write rank numbers with ranges: `ranks 0, 2-255`."""
    ranges: list[list[int]] = []
    for number in ranks:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _of_rank(rank: Rank, nodes: Mapping[str, Object], events: Sequence[Object]) -> Iterator[str]:
    if rank.pod is None or rank.pod.phase == "Succeeded":
        return
    node = nodes.get(rank.pod.node)
    if node is not None and (trouble := room.trouble(node)):
        yield f"node {rank.pod.node} {trouble}"
    elif rank.pod.reason:
        last = None
        if rank.manifest is not None and rank.pod.reason.endswith("container is being created"):
            pulls = [each for each in events if each.get("reason") == "Pulling"]
            last = pods.last_about(rank.manifest, pulls)
        yield (pods.one_line(last.get("message", "")) if last else "") or rank.pod.reason


def _wait(job: RunningJob, reason: str, ranks: Sequence[Rank], now: datetime | None) -> Wait:
    kind = next((name for name, pattern in _KINDS if pattern.search(reason)), _OTHER)
    take = f"take nodes: meks scale {job.pool} {job.wanted}" if job.pool else "add a system node"
    born = (each.manifest["metadata"]["creationTimestamp"] for each in ranks if each.manifest)
    begun = min(map(datetime.fromisoformat, born), default=None)
    return Wait(
        kind=kind,
        ranks=tuple(rank.number for rank in ranks),
        why=reason,
        remedy=_REMEDIES.get(kind, "").format(job=job.name, take=take),
        seconds=max(0.0, (now - begun).total_seconds()) if now and begun else None,
    )


def _why_no_pod(job: RunningJob, events: Sequence[Object], queue: str) -> str:
    """Return why the controller makes no pod: a quota, Pod Security, a queue."""
    if job.phase([]) == "Suspended":
        name = (job.manifest["metadata"].get("labels") or {}).get(QUEUE_LABEL)
        if not name:
            return "suspended: somebody set spec.suspend"
        return pods.one_line(f"waits in the queue {name}{': ' if queue else ''}{queue}")
    in_time = sorted(events, key=pods.when)
    own = [each for each in in_time if job.makes(each["involvedObject"])]
    last = next((each for each in reversed(own) if each.get("reason") in _NO_POD), None)
    return pods.one_line(f"no pod: {last.get('message')}") if last else "no pod yet"
