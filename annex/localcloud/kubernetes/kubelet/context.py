"""What every pod of a node needs of it."""

import http.client
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

from megatron_eks.kubernetes.client import ApiError, Object, connect
from megatron_eks.localcloud.kubernetes.kubelet import network
from megatron_eks.localcloud.kubernetes.kubelet.images import Image

GONE = frozenset({404, 409})
"""The server's answers about a pod that is not there any more, or another of the same name."""

SERVER_ERRORS = (ApiError, http.client.HTTPException, OSError)
"""What asking the server may end with."""

_FIRST, _LAST = 2, 254

NODE_ADDRESS = "127.0.0.1"
"""Where the API server reaches a node, and what pods see as their host's address."""


@dataclass(frozen=True)
class Settings:
    """A kubelet's configuration, as its JSON file has it."""

    node: Object
    """The Node to register, with its labels, taints, capacity and allocatable."""
    number: int
    """From 1, unique in the cluster: which addresses the node's pods get."""
    holder: int
    """The process that holds the network between pods."""
    server: str
    authority: str
    token: str
    """Of somebody who may act as this node."""
    certificate: str
    key: str
    client_certificate: str
    """Of whoever may ask the kubelet: the API server's."""
    port: int
    folder: str
    """The node's own."""
    shared: str
    """What lies behind claims: the same for all nodes."""
    back_off_seconds: float
    """Before the second restart of a container; doubled each time, up to 30 times as much."""
    heartbeat_seconds: float
    images: Sequence[Mapping[str, object]]
    """What stands in for which image, as `Image` has it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What every container gets; its own variables come after, and win."""

    @property
    def name(self) -> str:
        """The node's name."""
        return str(self.node["metadata"]["name"])


class Context:
    """The node's client, places and addresses."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # As itself, so that the Node authorizer and NodeRestriction judge it as a real one.
        self.client = connect(
            settings.server,
            Path(settings.authority),
            settings.token,
            impersonate=f"system:node:{settings.name}",
            group="system:nodes",
        )
        self.folder = Path(settings.folder)
        self.shared = Path(settings.shared)
        self.images = tuple(map(Image.read, settings.images))
        # The one that has been free for longest comes next: others may still know its last pod.
        self._free = deque(range(_FIRST, _LAST + 1))
        self._lock = threading.Lock()

    def take_address(self) -> IPv4Address:
        """Return an address that no pod of the node has."""
        with self._lock:
            number = self._free.popleft()
        return network.pod_address(self.settings.number, number)

    def give_back(self, address: str) -> None:
        """Let another pod have an address."""
        with self._lock:
            base = network.pod_address(self.settings.number, 0)
            self._free.append(int(IPv4Address(address)) - int(base))

    def remove(self, pod: Object) -> None:
        """Take a pod whose processes are gone from the API."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": metadata["uid"]},
        }
        try:
            self.client.request("DELETE", path, body)
        except ApiError as error:
            if error.status not in GONE:
                raise

    def logs(self, pod: Object) -> Path:
        """Return where the logs of a pod's containers lie, laid out as in /var/log/pods."""
        metadata = pod["metadata"]
        return (
            self.folder / "logs" / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        )
