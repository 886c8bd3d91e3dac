"""What Kubernetes says of jobs, pods and nodes, as this program counts them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from megatron_eks.programs.cluster_api import Object
from megatron_eks.programs.scaling.demand import Node

GPU, OVER = "nvidia.com/gpu", ("Succeeded", "Failed")
IDLE, LEAVING, ENDED = (f"megatron-eks/{e}" for e in ("idle-since", "leaving-since", "ended-at"))
"""Annotations of nodes, so that a new pod of this program goes on where the last one was."""


def key_of(workload: Object) -> str:
    """Name a job's Workload, namespace first."""
    return "{namespace}/{name}".format(**workload["metadata"])


def states(workload: Object) -> dict[str, float]:
    """Return what is true of a job, and since when."""
    conditions = workload.get("status", {}).get("conditions", ())
    return {e["type"]: moment(e["lastTransitionTime"]) for e in conditions if e["status"] == "True"}


def pods_of(workload: Object) -> Iterator[int]:
    """Yield the GPUs of each pod of a job that has any."""
    for each in workload["spec"]["podSets"]:
        if gpus := gpus_of(each["template"]["spec"]):
            yield from [gpus] * each.get("count", 1)


def gpus_of(pod: Object) -> int:
    """Return the GPUs that a pod asks for."""
    asked = (each.get("resources", {}) for each in pod.get("containers", ()))
    return sum(int((e.get("limits") or e.get("requests") or {}).get(GPU, 0)) for e in asked)


def keeps_node(pod: Object) -> bool:
    """Say whether a pod keeps its node: those of every node do not, and those that have ended."""
    owners = pod["metadata"].get("ownerReferences", ())
    of_all = any(each["kind"] in {"DaemonSet", "Node"} for each in owners)
    return not of_all and pod.get("status", {}).get("phase") not in OVER


def node_of(node: Object, devices: Mapping[str, int], pods: Sequence[Object]) -> Node:
    """Return a node with what is on it; it is ready when it offers all devices of its type."""
    metadata, status, spec = node["metadata"], node.get("status", {}), node.get("spec", {})
    on_it = [each for each in pods if each["spec"].get("nodeName") == metadata["name"]]
    living = [each for each in on_it if each.get("status", {}).get("phase") not in OVER]
    offered = status.get("allocatable", {})
    alive = any(
        (each["type"], each["status"]) == ("Ready", "True") for each in status.get("conditions", ())
    )
    # A new node carries one until its state is known, and Kueue places nothing on it.
    taints = any(each["key"].startswith("node.kubernetes.io/") for each in spec.get("taints", ()))
    notes = metadata.get("annotations", {})
    idle, leaving, ended = (
        moment(notes[each]) if each in notes else None for each in (IDLE, LEAVING, ENDED)
    )
    cordoned = bool(spec.get("unschedulable"))
    return Node(
        name=metadata["name"],
        instance=spec.get("providerID", "").rpartition("/")[2],
        free=int(offered.get(GPU, 0)) - sum(gpus_of(each["spec"]) for each in living),
        ready=alive
        and not taints
        and all(int(offered.get(name, 0)) >= n for name, n in devices.items()),
        busy=any(map(keeps_node, on_it)),
        joined=moment(metadata["creationTimestamp"]),
        cordoned=cordoned,
        idle_since=idle,
        # Somebody who takes the cordon away wants the node.
        leaving_since=leaving if cordoned else None,
        ended_at=ended,
    )


def moment(text: str) -> float:
    """Return a time of Kubernetes in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def text_of(moment: float | None) -> str | None:
    """Write such a time; None stays what it is."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
