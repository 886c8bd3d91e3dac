"""The network between pods and its name server, for all nodes of a cluster. A process.

`python -m ...network FILE` reads `Settings` from a JSON file. It holds a user and a network
namespace in which a bridge joins the pods of all nodes, answers names on the cluster's DNS address,
and leads the address of the `kubernetes` Service to the API server, and the bridge's own to the
local AWS. When all of that works it writes its holder's process id to `holder` beside the file.
"""

import json
import os
import socket
import sys
import threading
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from megatron_eks.kubernetes.client import connect
from megatron_eks.kubernetes.watch import Watch
from megatron_eks.localcloud.kubernetes.kubelet import linux
from megatron_eks.localcloud.kubernetes.kubelet.names import Names
from megatron_eks.localcloud.kubernetes.kubelet.netlink import Network
from megatron_eks.localcloud.kubernetes.kubelet.sandbox import BRIDGE

# Apart from the range of KWOK's pods. Nothing outside of the namespace sees it.
GATEWAY = IPv4Address("10.64.0.1")
PREFIX = 16
API_SERVICE = IPv4Address("172.20.0.1")
# Where EKS has it: EKS User Guide, "Managing the CoreDNS add-on".
DNS = IPv4Address("172.20.0.10")

_CHUNK = 65536


@dataclass(frozen=True)
class Settings:
    """Where the API server is."""

    server: str
    authority: str
    token: str
    aws_port: int = 0
    """Of the local AWS on this machine's loopback interface; 0: there is none."""


def pod_address(node: int, number: int) -> IPv4Address:
    """Return an address of a node's own 256; the first node is 1, since 0 has the gateway."""
    return GATEWAY + 256 * node + number - 1


def main(file: Path) -> None:
    """Serve until killed."""
    settings = Settings(**json.loads(file.read_text()))
    holder, (names_socket, api_socket, *aws_socket) = _hold(settings.aws_port)
    client = connect(settings.server, Path(settings.authority), settings.token)
    names = Names()
    never = threading.Event()
    for path in ("/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"):
        watch = Watch(client, path)
        threading.Thread(target=watch.follow, args=(names.learn, never), daemon=True).start()
    port = int(settings.server.rpartition(":")[2])
    for listener, to in ((api_socket, port), *((each, settings.aws_port) for each in aws_socket)):
        threading.Thread(target=_forward, args=(listener, to), daemon=True).start()
    target = file.with_name("holder")
    partial = target.with_suffix(".partial")
    partial.write_text(str(holder))
    partial.replace(target)
    while True:
        query, sender = names_socket.recvfrom(_CHUNK)
        names_socket.sendto(names.answer(query), sender)


def _hold(aws_port: int) -> tuple[int, list[socket.socket]]:
    """Start the process that holds the namespaces; return its id, and sockets made in there."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            _become_holder(theirs, aws_port)
        except OSError as error:
            theirs.send(str(error).encode())
        os._exit(1)
    theirs.close()
    message, descriptors, _, _ = socket.recv_fds(ours, _CHUNK, 3)
    if not descriptors:
        sys.exit(
            f"this user may not make user and network namespaces: {message.decode()} - on Ubuntu:"
            " sudo sysctl --write kernel.apparmor_restrict_unprivileged_userns=0"
        )
    # The other end closes when the holder has become a program that does nothing else.
    if reason := ours.recv(_CHUNK):
        sys.exit(f"the network has no process to hold it: {reason.decode()}")
    return pid, [socket.socket(fileno=each) for each in descriptors]


def _become_holder(parent: socket.socket, aws_port: int) -> None:
    linux.become(0, 0)
    linux.unshare(linux.NEW_NETWORK)
    linux.end_with_parent()
    network = Network()
    network.set_up("lo")
    network.add_bridge(BRIDGE)
    network.add_address(BRIDGE, GATEWAY, PREFIX)
    for address in (DNS, API_SERVICE):
        network.add_address(BRIDGE, address, 32)
    network.set_up(BRIDGE)
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind((str(DNS), 53))
    made = [names, socket.create_server((str(API_SERVICE), 443))]
    if aws_port:
        made.append(socket.create_server((str(GATEWAY), aws_port)))
    socket.send_fds(parent, [b"made"], [each.fileno() for each in made])
    os.execvp("sleep", ["sleep", "infinity"])  # noqa: S606, S607 -- coreutils


def _forward(listener: socket.socket, port: int) -> None:
    """Lead each connection to a port of this machine's loopback interface."""
    while True:
        inner, _ = listener.accept()
        try:
            outer = socket.create_connection(("127.0.0.1", port))
        except OSError:
            inner.close()
            continue
        for pair in ((inner, outer), (outer, inner)):
            threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # Either end is gone, so the other has nothing to wait for.
        for each in (source, target):
            each.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
