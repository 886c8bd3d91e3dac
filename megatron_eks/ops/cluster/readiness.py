"""Whether what was applied works by now, and why not."""

from collections.abc import Callable, Mapping, Sequence

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube.objects import key
from megatron_eks.ops.kube.pods import condition, state

_POLL_SECONDS = 1
# A pod in each state says why; the others would say the same.
_SHOWN_PODS = 1
_FAILED = "failed: "


def wait(client: Client, objects: Sequence[Object], console: Console, seconds: float) -> None:
    """Return when all objects work; raise Failure with what does not, and why."""
    waiting: dict[str, str] = {str(key(each)): "" for each in objects if each["kind"] in _CHECKS}
    wanted = {str(key(each)): each for each in objects}
    if not waiting:
        return

    def done() -> bool:
        for name, before in list(waiting.items()):
            now = unready(client, wanted[name])
            if now is None:
                del waiting[name]
                if before:
                    console.say(f"ready: {name}")
            elif now != before:
                console.say(f"waiting for {name}: {now}")
                waiting[name] = now
        # A Job that has failed stays so.
        return all(why.startswith(_FAILED) for why in waiting.values())

    in_time = console.wait(seconds, _POLL_SECONDS, done)
    if waiting:
        after = "" if in_time else f" after {duration(seconds)}"
        found = "; ".join(f"{name}: {why}" for name, why in waiting.items())
        remedy = "see to that and run the same command again, which goes on where it stopped"
        if any(why.startswith(_FAILED) for why in waiting.values()):
            remedy = f"see to that, then let the Job run again: meks fix {Code.SHARED_NOT_WRITABLE}"
        raise Failure(Code.NOT_READY, f"not ready{after}: {found}", remedy)


def unready(client: Client, manifest: Object) -> str | None:
    """Return why an object does not work yet, or None if it does."""
    metadata = manifest["metadata"]
    live = client.find(
        manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace")
    )
    if live is None:
        return "it is gone"
    check = _CHECKS.get(manifest["kind"])
    return check(client, live) if check else None


def _deployment(client: Client, live: Object) -> str | None:
    wanted, status = live["spec"].get("replicas", 1), live.get("status", {})
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    total = status.get("replicas", 0)
    if _observed(live) and updated >= wanted and available >= wanted and total <= wanted:
        return None
    return _with_pod(client, live, f"{min(updated, available)} of {wanted} pods available")


def _daemon_set(client: Client, live: Object) -> str | None:
    status = live.get("status", {})
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    updated = status.get("updatedNumberScheduled", 0)
    if _observed(live) and ready >= wanted and updated >= wanted:
        return None
    return _with_pod(client, live, f"{min(ready, updated)} of {wanted} pods ready")


def _claim(_: Client, live: Object) -> str | None:
    phase = live.get("status", {}).get("phase", "Pending")
    return None if phase == "Bound" else f"{phase}, no volume is bound to it"


def _job(client: Client, live: Object) -> str | None:
    conditions = {
        each["type"]: each.get("message", "")
        for each in live.get("status", {}).get("conditions", ())
        if each["status"] == "True"
    }
    if "Complete" in conditions:
        return None
    if "Failed" in conditions:
        return _with_pod(client, live, f"{_FAILED}{conditions['Failed']}")
    return _with_pod(client, live, "not complete")


def _observed(live: Object) -> bool:
    seen: int = live.get("status", {}).get("observedGeneration", 0)
    return seen >= int(live["metadata"].get("generation", 0))


def _with_pod(client: Client, live: Object, text: str) -> str:
    """Add why one of its pods does not run."""
    labels = ",".join(f"{k}={v}" for k, v in live["spec"]["selector"]["matchLabels"].items())
    namespace = live["metadata"]["namespace"]
    pods = client.list("v1", "Pod", namespace, labels=labels)
    waiting = [pod for pod in pods if not state(pod).ready]
    events = client.list("v1", "Event", namespace) if waiting else []
    reasons = [
        f"{found.name}: {found.reason}"
        for found in (state(pod, events) for pod in waiting)
        if found.reason
    ]
    return "; ".join([text, *reasons[:_SHOWN_PODS]])


_CHECKS: Mapping[str, Callable[[Client, Object], str | None]] = {
    "CustomResourceDefinition": lambda _, live: (
        None if condition(live, "Established") else "not established yet"
    ),
    "Deployment": _deployment,
    "DaemonSet": _daemon_set,
    "PersistentVolumeClaim": _claim,
    "Job": _job,
}
