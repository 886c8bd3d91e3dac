"""Keeps the nodes of a local cluster those that the node groups of the local AWS have."""

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from megatron_eks.kubernetes.client import ApiError
from megatron_eks.localcloud.kubernetes import nodes
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane

if TYPE_CHECKING:
    from megatron_eks.localcloud.aws.server import LocalAws
    from megatron_eks.localcloud.kubernetes.kubelet.fleet import Fleet

_SECONDS = 1.0


class JoinedNodes:
    """The nodes of all node groups, simulated, or in a fleet of processes.

    Call `adjust` again and again from the thread that started the cluster's processes.
    """

    def __init__(self, plane: ControlPlane, aws: "LocalAws", fleet: "Fleet | None") -> None:
        self._plane, self._aws, self._fleet = plane, aws, fleet
        # By name, its group and its number in there.
        self._known: dict[str, tuple[str, int]] = {}
        self._next = 0.0

    def adjust(self) -> None:
        """Add and remove nodes, once a second at most; what fails is tried again."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _SECONDS
        try:
            told = {each["name"]: nodes.Instance(**each) for each in self._aws.nodes()}
            for name in [each for each in self._known if each not in told]:
                self._remove(name)
            for name in [each for each in told if each not in self._known]:
                self._add(told[name])
        except (ApiError, OSError) as error:
            sys.stderr.write(f"nodes of the local AWS: {error}\n")

    def _add(self, instance: nodes.Instance) -> None:
        group = f"{instance.cluster} {instance.group}"
        taken = {number for name, number in self._known.values() if name == group}
        number = min(set(range(len(taken) + 1)) - taken)
        node = nodes.eks_node(instance, number)
        if self._fleet:
            self._fleet.start(nodes.as_process(node))
        else:
            self._plane.client.create(node)
        self._known[instance.name] = group, number

    def _remove(self, name: str) -> None:
        """End a node as EC2 does, and forget it and its pods as EKS's cloud controller does."""
        client = self._plane.client
        if self._fleet:
            self._fleet.lose(name)
        del self._known[name]
        client.delete("v1", "Node", name, missing_ok=True)
        for pod in client.list("v1", "Pod", fields=f"spec.nodeName={name}"):
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            # Nobody is left who would say that its processes are gone. It may be gone itself.
            with contextlib.suppress(ApiError):
                client.request("DELETE", path, query={"gracePeriodSeconds": "0"})
