"""What a kubelet reports of a pod, worked out from its containers' states."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from megatron_eks.kubernetes.client import Object


@dataclass
class ContainerStatus:
    """One container as its pod's status shows it, and its history."""

    spec: Object
    is_init: bool
    state: Object
    last: Object
    restarts: int = 0
    ready: bool = False
    started: bool = False

    @property
    def name(self) -> str:
        """Its name in the pod."""
        return str(self.spec["name"])

    @property
    def exit_code(self) -> int | None:
        """How its last run ended; None before that, and while it runs."""
        ended = self.state.get("terminated")
        if ended is None and "waiting" in self.state:
            ended = self.last.get("terminated")
        return None if ended is None else int(ended["exitCode"])

    def render(self) -> Object:
        """Return what the API shows."""
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": "",
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }


def waiting(reason: str, message: str = "") -> Object:
    """Return the state of a container that does not run yet."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def timestamp() -> str:
    """Return now as the API writes it."""
    return datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def phase(containers: Iterable[ContainerStatus], policy: str, *, ended: bool) -> str:
    """Return a pod's phase; `ended` says that no container will run any more."""
    mains = [each for each in containers if not each.is_init]
    inits = [each for each in containers if each.is_init]
    codes = [each.exit_code for each in mains]
    if ended or (policy != "Always" and all(_is_final(each, policy) for each in mains)):
        return "Succeeded" if all(code == 0 for code in codes) else "Failed"
    if any(each.exit_code != 0 or "running" in each.state for each in inits):
        return "Pending"
    if any("running" in each.state for each in mains):
        return "Running"
    # One that never ran holds the pod back; one that will run again does not.
    return "Pending" if any(code is None for code in codes) else "Running"


def _is_final(container: ContainerStatus, policy: str) -> bool:
    ended = container.state.get("terminated")
    return ended is not None and (policy == "Never" or ended["exitCode"] == 0)


def conditions(
    containers: Iterable[ContainerStatus], pod_phase: str, known: list[Object], *, sandboxed: bool
) -> list[Object]:
    """Return the kubelet's conditions, with the times of those that did not change."""
    everything = list(containers)
    ended = pod_phase in {"Succeeded", "Failed"}
    unready = [each.name for each in everything if not each.ready and not each.is_init]
    initialised = pod_phase != "Pending" or all(each.ready for each in everything if each.is_init)
    reason = message = None
    if ended:
        reason = "PodCompleted" if pod_phase == "Succeeded" else "PodFailed"
    elif unready:
        reason = "ContainersNotReady"
        message = f"containers with unready status: [{' '.join(unready)}]"
    ready = not ended and not unready and pod_phase == "Running"
    verdicts = {
        "PodReadyToStartContainers": sandboxed,
        "Initialized": initialised,
        "ContainersReady": ready,
        "Ready": ready,
    }
    before = {each["type"]: each for each in known}
    found = []
    for kind, verdict in verdicts.items():
        status, old = str(verdict), before.get(kind, {})
        since = old.get("lastTransitionTime") if old.get("status") == status else None
        found.append({"type": kind, "status": status, "lastTransitionTime": since or timestamp()})
        if kind.endswith("Ready"):
            # A merge keeps what is not named.
            found[-1] |= {"reason": reason, "message": message}
    return found
