"""What state a pod is in, and why it does not run, in one line."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.support.text import without_secrets
from megatron_eks.plan.cluster.pools import POOL_LABEL

# Normal steps on the way to a running container: an event may say what holds them up.
_LONGEST = 200
_STARTING = frozenset({"ContainerCreating", "PodInitializing"})


ENDED = frozenset({"Failed", "Succeeded"})
"""Phases that pods and jobs do not leave."""


def has_ended(pod: Object) -> bool:
    """Say whether a pod's containers run no more, and none of them starts again."""
    return pod.get("status", {}).get("phase") in ENDED


@dataclass(frozen=True)
class PodState:
    """A pod in a few words."""

    name: str
    node: str
    phase: str
    """Kubernetes' own word, or Deleting."""
    ready: bool
    restarts: int
    reason: str
    """Why it is not running, or nothing."""


def state(pod: Object, events: Sequence[Object] = ()) -> PodState:
    """Describe a pod; `events` are those of its namespace."""
    metadata, status = pod["metadata"], pod.get("status", {})
    all_of_them = (*status.get("initContainerStatuses", ()), *containers(pod))
    deleting = "deletionTimestamp" in metadata
    return PodState(
        name=metadata["name"],
        node=pod["spec"].get("nodeName", ""),
        phase="Deleting" if deleting else status.get("phase", "Pending"),
        ready=not deleting and bool(condition(pod, "Ready")),
        restarts=sum(each.get("restartCount", 0) for each in all_of_them),
        reason=_reason(pod, all_of_them, events),
    )


def pool_of(pod: Object) -> str:
    """Return the pool whose nodes a pod's specification selects; empty: the system nodes."""
    return str((pod.get("nodeSelector") or {}).get(POOL_LABEL, ""))


def containers(pod: Object | None) -> Sequence[Object]:
    """Return how a pod's containers are, as its status has it; without a status there are none."""
    return (pod or {}).get("status", {}).get("containerStatuses") or ()


def events_of(client: Client, namespace: str, kind: str, name: str) -> list[Object]:
    """Return the events about one object, the oldest first."""
    fields = f"involvedObject.kind={kind},involvedObject.name={name}"
    return sorted(client.list("v1", "Event", namespace, fields=fields), key=when)


def when(event: Object) -> str:
    """Return the time of an event."""
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    return str(last or event.get("eventTime") or event.get("firstTimestamp") or "")


def moment(text: str | None) -> datetime | None:
    """Read a time of the API server's; None where it gives none."""
    return datetime.fromisoformat(text) if text else None


def one_line(text: str) -> str:
    """Write a message of others on one line, without control characters."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(plain.split())


def _reason(pod: Object, containers: Sequence[Object], events: Sequence[Object]) -> str:
    status = pod.get("status", {})
    if status.get("phase") == "Succeeded":
        return ""
    for each in status.get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return one_line(f"waits for a node: {each.get('message') or each.get('reason', '')}")
    for container in containers:
        if reason := _of_container(container, pod, events):
            return one_line(reason)
    if status.get("phase") == "Failed":
        why = f"{status.get('reason', 'Failed')}: {status.get('message', '')}"
        return one_line(why.rstrip(": "))
    return ""


def _of_container(container: Object, pod: Object, events: Sequence[Object]) -> str:
    current = container.get("state", {})
    name = container["name"]
    if waiting := current.get("waiting"):
        reason, message = waiting.get("reason", "waiting"), waiting.get("message", "")
        if reason in _STARTING:
            last = last_about(pod, [e for e in events if e.get("type") == "Warning"])
            warning = f"{last.get('reason', '')}: {last.get('message', '')}" if last else ""
            return f"{name}: {warning or 'container is being created'}"
        last = container.get("lastState", {}).get("terminated")
        if last and reason == "CrashLoopBackOff":
            message = f"ended with {_end(last)}, starts again later"
        return f"{name}: {reason}{': ' if message else ''}{message}"
    ended = current.get("terminated")
    if ended and ended.get("exitCode"):
        return f"{name}: {_end(ended)}"
    is_init = name in {each["name"] for each in pod["spec"].get("initContainers", ())}
    if is_init and "running" in current:
        return f"init container {name} runs"
    return ""


def _end(terminated: Object) -> str:
    reason = terminated.get("reason", "")
    shown = f" ({reason})" if reason not in {"", "Error"} else ""
    lines = terminated.get("message", "").splitlines()
    # The end of its log: many lines, of which the last are launchers' rulers.
    said = next((each for each in reversed(lines) if any(map(str.isalpha, each))), "")
    message = f": {without_secrets(said)[:_LONGEST]}" if said else ""
    return f"exit code {terminated.get('exitCode')}{shown}{message}"


def last_about(manifest: Object, events: Sequence[Object]) -> Object | None:
    """Return the last of some events that is about an object."""
    uid = manifest["metadata"].get("uid")
    own = (each for each in reversed(events) if each["involvedObject"].get("uid") == uid)
    return next(own, None)


def condition(found: Object, kind: str, status: str = "True") -> Object:
    """Return an object's condition that has a status; empty where there is none."""
    conditions = found.get("status", {}).get("conditions") or ()
    return next((e for e in conditions if (e["type"], e["status"]) == (kind, status)), {})
