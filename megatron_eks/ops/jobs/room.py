"""What nodes have to give, what is left as the scheduler counts, and what is wrong with them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.quantity import quantity
from megatron_eks.ops.kube.pods import has_ended, one_line

Amounts = dict[str, Fraction]

GPU, EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"

_KEEPS_PODS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_PRESSURE = frozenset({"DiskPressure", "MemoryPressure", "PIDPressure", "NetworkUnavailable"})


@dataclass(frozen=True)
class NodeRoom:
    """One node."""

    name: str
    ready: bool
    cordoned: bool
    labels: Mapping[str, str]
    taints: Sequence[Object]
    allocatable: Amounts
    free: Amounts

    @property
    def usable(self) -> bool:
        """Whether it takes pods now, if it has room."""
        return self.ready and not self.cordoned

    def takes(self, pod: Object) -> bool:
        """Say whether a pod may run here at all, were the node empty."""
        wanted = pod.get("nodeSelector") or {}
        return all(self.labels.get(name) == value for name, value in wanted.items()) and all(
            _tolerated(taint, pod.get("tolerations") or ()) for taint in self.taints
        )


def rooms(nodes: Iterable[Object], pods: Iterable[Object]) -> list[NodeRoom]:
    """Return what each node has, and what the pods on it leave."""
    used: dict[str, Amounts] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and not has_ended(pod):
            asked = {**requests(pod["spec"]), "pods": Fraction(1)}
            _add(used.setdefault(node, {}), asked)
    return [_room(node, used.get(node["metadata"]["name"], {})) for node in nodes]


def requests(pod: Object) -> Amounts:
    """Return what a pod asks for: the larger of its containers' sum and each init container's."""
    total: Amounts = {}
    for container in pod["containers"]:
        _add(total, _of_container(container))
    for container in pod.get("initContainers") or ():
        for name, amount in _of_container(container).items():
            total[name] = max(total.get(name, Fraction(0)), amount)
    return total


def lacking(wanted: Amounts, offered: Amounts) -> list[str]:
    """Name the resources of which there is not enough."""
    return [name for name, amount in wanted.items() if amount > offered.get(name, Fraction(0))]


def amounts(resources: Mapping[str, object]) -> Amounts:
    """Read what a mapping of quantities says; what is none is left out."""
    found = {name: quantity(str(value)) for name, value in resources.items()}
    return {name: amount for name, amount in found.items() if amount is not None}


def _room(node: Object, used: Amounts) -> NodeRoom:
    status, spec = node.get("status", {}), node.get("spec", {})
    allocatable = amounts(status.get("allocatable") or {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    taints = [each for each in spec.get("taints") or () if each["effect"] in _KEEPS_PODS_AWAY]
    return NodeRoom(
        name=node["metadata"]["name"],
        ready=conditions.get("Ready") == "True",
        cordoned=bool(spec.get("unschedulable")),
        labels=node["metadata"].get("labels") or {},
        taints=taints,
        allocatable=allocatable,
        free={name: amount - used.get(name, Fraction(0)) for name, amount in allocatable.items()},
    )


def _of_container(container: Object) -> Amounts:
    resources = container.get("resources") or {}
    # What has a limit and no request asks for its limit.
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def _tolerated(taint: Object, tolerations: Sequence[Object]) -> bool:
    return any(
        each.get("key") in {None, taint["key"]}
        and each.get("effect") in {None, "", taint["effect"]}
        and (each.get("operator") == "Exists" or each.get("value") == taint.get("value", ""))
        for each in tolerations
    )


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
    return one_line(f"{words}: {why}") if why else words
