"""Which nodes fail: what their conditions, their events and the ends of ranks on them say."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.diagnose import Diagnosis, diagnose
from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.kube import jobs, pods
from megatron_eks.ops.support.text import without_secrets

Words = Callable[[Object, bool], Iterable[str]]
"""Reads the last lines of a pod's container, or of the one before it."""

REPEATED = 2
"""So many failures that prove nothing alone make a node suspect."""

# What a healthy node does not show.
_HARDWARE = frozenset(
    {
        LogCode.GPU_LOST,
        LogCode.FABRIC_NOT_READY,
        LogCode.DEVICE_REFUSED,
        LogCode.NO_GPU,
        LogCode.NO_EFA,
        LogCode.NODE_LOST,
    }
)
# What may be the node's fault or the program's; everything else that is known is the program's.
_UNCLEAR = frozenset(
    {
        LogCode.ILLEGAL_ACCESS,
        LogCode.UNREACHABLE_PEER,
        LogCode.COLLECTIVE_TIMED_OUT,
        LogCode.CRASHED,
        LogCode.KILLED,
        LogCode.SLOW_GPU,
        LogCode.ERROR_OF_A_PROGRAM,
    }
)
# Ended from outside: by the end of another rank, or because the job was deleted.
_ENDED_BY_OTHERS = frozenset({143})
# Ranks that wait for a lost one give up within this.
_CASCADE = timedelta(minutes=10)
_LONGEST = 200
# Of the node monitoring agent and the kubelet; EFA's counters are events alone.
_NODE_WORDS = ("nvidia", "xid", "efa", "nvlink", "fabric", "ecc", "accelerated")


@dataclass(frozen=True)
class Failure:
    """One thing that speaks against a node."""

    node: str
    when: str
    what: str
    certain: bool
    """Whether it is the hardware's fault, whatever else happened."""
    job: str = ""
    rank: int | None = None


@dataclass(frozen=True)
class _End:
    """A container that ended badly."""

    node: str
    job: str
    rank: int
    when: datetime
    code: int
    lines: tuple[str, ...]


def failures(
    nodes: Iterable[Object],
    own: Iterable[tuple[jobs.RunningJob, Object]],
    events: Sequence[Object],
    words: "Words" = lambda _pod, _previous: (),
) -> list[Failure]:
    """Return all that speaks against nodes, by node and time; `own` are the pods of jobs."""
    ends = [each for job, pod in own for each in _ends(job, pod, words)]
    of_nodes = (each for node in nodes for each in _of_node(node))
    found = (*of_nodes, *_of_events(events), *_of_ranks(ends))
    return sorted(found, key=lambda each: (each.node, each.when))


def suspects(found: Iterable[Failure]) -> dict[str, list[Failure]]:
    """Return the nodes that jobs should keep away from, each with what speaks against it."""
    by_node: dict[str, list[Failure]] = {}
    for each in found:
        by_node.setdefault(each.node, []).append(each)
    return {
        node: against
        for node, against in by_node.items()
        if any(each.certain for each in against) or len(against) >= REPEATED
    }


def _of_node(node: Object) -> Iterator[Failure]:
    """Yield what the node's conditions say."""
    for each in node.get("status", {}).get("conditions") or ():
        kind, name = each["type"], node["metadata"]["name"]
        # Ready is no proof: a node that just starts, or is taken back, is not ready either.
        if kind.endswith("Ready") and kind != "Ready" and each["status"] == "False":
            text = f"{kind} is False: {each.get('reason', '')} {each.get('message', '')}"
            when = each.get("lastTransitionTime") or ""
            yield Failure(name, when, pods.one_line(text), certain=True)


def _of_events(events: Iterable[Object]) -> Iterator[Failure]:
    """Yield what was reported about nodes; of the same again and again the last."""
    for each in events:
        about = each["involvedObject"]
        if about.get("kind") != "Node" or each.get("type") != "Warning":
            continue
        text = pods.one_line(f"{each.get('reason', '')}: {each.get('message', '')}")
        if not any(word in text.lower() for word in _NODE_WORDS):
            continue
        code = diagnose([f"event {text}"]).code
        count = (each.get("series") or {}).get("count") or each.get("count") or 1
        times = f" ({count} times)" if count > 1 else ""
        certain = code in _HARDWARE
        for _ in range(1 if certain else min(count, REPEATED)):
            yield Failure(about.get("name", ""), pods.when(each), f"{text}{times}", certain)


def _ends(job: jobs.RunningJob, pod: Object, words: Words) -> Iterator[_End]:
    """Yield the bad ends of a rank's container, this one's and the one before."""
    node, rank = pod["spec"].get("nodeName"), jobs.rank_of(job, pod)
    if node is None or rank is None:
        return
    for status in pods.containers(pod):
        for state in ("lastState", "state"):
            ended = (status.get(state) or {}).get("terminated")
            if ended and ended.get("exitCode") and ended.get("finishedAt"):
                when = datetime.fromisoformat(ended["finishedAt"])
                said = f"{ended.get('reason', '')} exit code: {ended['exitCode']}"
                # Of the one before, where another runs or has ended since.
                printed = words(pod, state == "lastState" and status["restartCount"] > 0)
                lines = (*ended.get("message", "").splitlines(), *printed, said)
                yield _End(node, job.name, rank, when, ended["exitCode"], lines)


def _of_ranks(ends: Sequence[_End]) -> Iterator[Failure]:
    """Yield the ends that no other end explains: of each failure of a job its first."""
    by_job: dict[str, list[_End]] = {}
    for each in ends:
        by_job.setdefault(each.job, []).append(each)
    for of_job in by_job.values():
        for together in _incidents(sorted(of_job, key=lambda each: each.when)):
            known = {each: diagnose(each.lines) for each in together}
            certain = [each for each in together if known[each].code in _HARDWARE]
            if certain:
                yield from (_failure(each, known[each]) for each in certain)
            elif first := _first(together, known):
                yield _failure(first, known[first])


def _incidents(ends: Sequence[_End]) -> Iterator[list[_End]]:
    together: list[_End] = []
    for each in ends:
        if together and each.when - together[0].when > _CASCADE:
            yield together
            together = []
        together.append(each)
    if together:
        yield together


def _first(together: Sequence[_End], known: Mapping[_End, Diagnosis]) -> _End | None:
    """Return the end that came before all others, if it may be a node's fault."""
    own = [each for each in together if each.code not in _ENDED_BY_OTHERS]
    if not own or any(each.when == own[0].when and each.node != own[0].node for each in own[1:]):
        return None
    code = known[own[0]].code
    return own[0] if code is None or code in _UNCLEAR else None


def _failure(end: _End, known: Diagnosis) -> Failure:
    seen = known.evidence[0].text if known.evidence else ""
    parts = (str(known.code or ""), f"exit code {end.code}", seen)
    return Failure(
        node=end.node,
        when=end.when.isoformat().replace("+00:00", "Z"),
        # It is shown, and written to the node.
        what=without_secrets(pods.one_line(", ".join(filter(None, parts))))[:_LONGEST],
        certain=known.code in _HARDWARE,
        job=end.job,
        rank=end.rank,
    )
