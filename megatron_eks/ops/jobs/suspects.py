"""Which nodes fail: what their conditions, their events and the ends of ranks on them say."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.diagnosis.diagnose import Diagnosis, diagnose
from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.kube import jobs, pods
from megatron_eks.ops.support.text import without_secrets

Words = Callable[[jobs.Rank, bool], Iterable[str]]
"""Reads the last lines of a rank's container, or of the one before it."""

# What a healthy node does not show, whatever else happened.
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
_LONGEST = 200
# Of the node monitoring agent and the kubelet.
_NODE_WORDS = ("nvidia", "xid", "efa", "nvlink", "fabric", "ecc", "accelerated")


@dataclass(frozen=True)
class Failure:
    """One thing that speaks against a node."""

    node: str
    when: str
    what: str
    job: str = ""
    rank: int | None = None


def failures(
    nodes: Iterable[Object],
    own: Iterable[tuple[jobs.RunningJob, Object]],
    events: Iterable[Object],
    words: Words = lambda _rank, _previous: (),
) -> list[Failure]:
    """Return all that speaks against nodes, by node and time; `own` are the pods of jobs."""
    of_nodes = (each for node in nodes for each in _of_node(node))
    of_ranks = (each for job, pod in own for each in _of_rank(job, pod, words))
    found = (*of_nodes, *_of_events(events), *of_ranks)
    return sorted(found, key=lambda each: (each.node, each.when))


def _of_node(node: Object) -> Iterator[Failure]:
    for each in node.get("status", {}).get("conditions") or ():
        kind, name = each["type"], node["metadata"]["name"]
        # Ready is no proof: a node that just starts, or is taken back, is not ready either.
        if kind.endswith("Ready") and kind != "Ready" and each["status"] == "False":
            text = f"{kind} is False: {each.get('reason', '')} {each.get('message', '')}"
            yield Failure(name, each.get("lastTransitionTime") or "", pods.one_line(text))


def _of_events(events: Iterable[Object]) -> Iterator[Failure]:
    for each in events:
        about = each["involvedObject"]
        text = pods.one_line(f"{each.get('reason', '')}: {each.get('message', '')}")
        if about.get("kind") != "Node" or each.get("type") != "Warning":
            continue
        if any(word in text.lower() for word in _NODE_WORDS) and _hardware([f"event {text}"]):
            yield Failure(about.get("name", ""), pods.when(each), text)


def _of_rank(job: jobs.RunningJob, pod: Object, words: Words) -> Iterator[Failure]:
    """Yield the ends of a rank's container, this one's and the one before, that a node caused."""
    node, number = pod["spec"].get("nodeName"), jobs.rank_of(job, pod)
    if node is None or number is None:
        return
    rank = jobs.Rank(number, pods.state(pod), pod)
    for status in pods.containers(pod):
        for state in ("lastState", "state"):
            ended = (status.get(state) or {}).get("terminated") or {}
            if not (ended.get("exitCode") and ended.get("finishedAt")):
                continue
            # Of the one before, where another runs or has ended since.
            printed = words(rank, state == "lastState" and status["restartCount"] > 0)
            code = f"exit code {ended['exitCode']}"
            said = f"{ended.get('reason', '')} exit code: {ended['exitCode']}"
            lines = (*ended.get("message", "").splitlines(), *printed, said)
            if found := _hardware(lines):
                seen = found.evidence[0].text if found.evidence else ""
                parts = filter(None, (str(found.code), code, seen))
                # It is shown, and written to the node.
                what = without_secrets(pods.one_line(", ".join(parts)))[:_LONGEST]
                yield Failure(node, ended["finishedAt"], what, job.name, number)


def _hardware(lines: Iterable[str]) -> Diagnosis | None:
    """Return what lines tell, if it is the node's fault."""
    found = diagnose(lines)
    return found if found.code in _HARDWARE else None
