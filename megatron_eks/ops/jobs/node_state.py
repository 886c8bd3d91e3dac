"""What is wrong with a node, in a few words: the kubelet's conditions and the monitoring agent's.

Source: EKS User Guide, "Detect node health issues and enable automatic node repair": the agent adds
conditions whose names end in Ready, of which False is the bad state.
"""

from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.kube import pods

_PRESSURE = frozenset({"DiskPressure", "MemoryPressure", "PIDPressure", "NetworkUnavailable"})


def state(node: Object | None) -> str:
    """Return a node's state: ready, cordoned, or what is wrong with it."""
    if node is None:
        return "not in the cluster"
    if found := trouble(node):
        return found
    return "cordoned" if node.get("spec", {}).get("unschedulable") else "ready"


def trouble(node: Object) -> str:
    """Say what is wrong with a node, or nothing."""
    found: list[str] = []
    for each in node.get("status", {}).get("conditions") or ():
        kind, status = each["type"], each["status"]
        if kind == "Ready" and status != "True":
            found.insert(0, _with("is not ready", each))
        elif kind.endswith("Ready") and kind != "Ready" and status == "False":
            found.append(_with(f"is not healthy ({kind})", each))
        elif kind in _PRESSURE and status == "True":
            found.append(_with(f"has {kind}", each))
    return "; ".join(found)


def _with(words: str, condition: Object) -> str:
    why = condition.get("message") or condition.get("reason") or ""
    return pods.one_line(f"{words}: {why}") if why else words
