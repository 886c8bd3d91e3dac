"""How far a run is: what the last line about a step in its log says."""

import re
from dataclasses import dataclass

from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.ops.kube.jobs import CONTAINER, Rank

_TAIL_LINES = 100
_MOST_BYTES = 256 * 1024
_SECONDS = 10

# Megatron-LM's training log, and the line of our own trainers.
_STEPS = (
    re.compile(r"iteration\s+(\d+)/\s*(\d+).*?lm loss:\s*([-+0-9.eE]+)"),
    re.compile(r"step (\d+)/(\d+) \| loss ([-+0-9.eE]+|nan|inf)"),
)


@dataclass(frozen=True)
class Progress:
    """A step that was logged."""

    step: int
    steps: int
    loss: float

    def __str__(self) -> str:
        """Return it in a few words."""
        return f"{self.step}/{self.steps}, loss {self.loss:.4g}"


def progress(client: Client, namespace: str, ranks: list[Rank]) -> Progress | None:
    """Return the newest step in the logs: Megatron's last rank writes it, or the first of ours."""
    ends = {rank.number: rank for rank in (*ranks[-1:], *ranks[:1])}
    for rank in ends.values():
        if rank.pod is not None and (found := in_text(_tail(client, namespace, rank.pod.name))):
            return found
    return None


def in_text(text: str) -> Progress | None:
    """Return the last step that a log tells of."""
    for line in reversed(text.splitlines()):
        for pattern in _STEPS:
            if found := pattern.search(line):
                try:
                    return Progress(int(found[1]), int(found[2]), float(found[3]))
                except ValueError:
                    continue
    return None


def steps_of(text: str) -> list[Progress]:
    """Return all steps that a log tells of, in its order."""
    return [found for line in text.splitlines() if (found := in_text(line))]


def _tail(client: Client, namespace: str, pod: str) -> str:
    query = {
        "container": CONTAINER,
        "tailLines": str(_TAIL_LINES),
        "limitBytes": str(_MOST_BYTES),
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
    try:
        return b"".join(client.stream(path, query, _SECONDS)).decode(errors="replace")
    except (ApiError, OSError):
        # There may be no log yet, or no kubelet to give it: how far it is stays unknown.
        return ""
