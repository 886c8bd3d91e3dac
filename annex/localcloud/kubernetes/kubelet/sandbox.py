"""What the containers of one pod share: network, host name, IPC, memory volumes. A process.

`python -m ...sandbox` reads a `Sandbox` as JSON from stdin, says "ready" and holds the namespaces
until it is killed, as the pause container of a real node does.
"""

import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from megatron_eks.localcloud.kubernetes.kubelet import linux
from megatron_eks.localcloud.kubernetes.kubelet.netlink import Network

BRIDGE = "pods"
READY = "ready\n"

_INTERFACE = "eth0"


@dataclass(frozen=True)
class Sandbox:
    """The namespaces of one pod."""

    network: int
    """The process that holds the network between pods, and the users of all pods."""
    host_name: str
    address: str | None
    """None: the network of the node, that is, of the network's holder."""
    prefix: int
    gateway: str
    memory: Mapping[str, str]
    """Directories that become file systems in memory, with a size each."""


def hold(spec: Sandbox) -> None:
    """Make the namespaces; does not return."""
    linux.enter(spec.network, "user", "net")
    linux.end_with_parent()
    outside = Network()
    bridge = socket.if_nametoindex(BRIDGE)
    linux.unshare(linux.NEW_MOUNTS | linux.NEW_IPC | linux.NEW_HOST_NAME)
    linux.keep_mounts_private()
    if spec.address:
        linux.unshare(linux.NEW_NETWORK)
        _connect(outside, bridge, spec, IPv4Address(spec.address))
    linux.set_host_name(spec.host_name)
    for directory, size in spec.memory.items():
        linux.mount("tmpfs", Path(directory), f"size={size},mode=1777")
    sys.stdout.write(READY)
    sys.stdout.flush()
    # Smaller than this interpreter by nine megabytes.
    os.execvp("sleep", ["sleep", "infinity"])  # noqa: S606, S607 -- coreutils


def _connect(outside: Network, bridge: int, spec: Sandbox, address: IPv4Address) -> None:
    # At most 15 letters, unique among the pods of a cluster.
    name = f"v{int(address):08x}"
    with Path("/proc/self/ns/net").open("rb") as namespace:
        outside.add_cable(name, bridge, _INTERFACE, namespace.fileno())
    inside = Network()
    inside.set_up("lo")
    inside.add_address(_INTERFACE, address, spec.prefix)
    inside.set_up(_INTERFACE)
    inside.add_default_route(IPv4Address(spec.gateway))


if __name__ == "__main__":
    hold(Sandbox(**json.load(sys.stdin)))
