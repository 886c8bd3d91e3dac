"""Interfaces, addresses and routes of a network namespace: rtnetlink(7), without iproute2."""

import os
import socket
import struct
from ipaddress import IPv4Address

_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 20, 24
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 1, 4, 0x200, 0x400
_ERROR = 2

_IFLA_ADDRESS, _IFLA_NAME, _IFLA_MASTER, _IFLA_LINK_INFO, _IFLA_NAMESPACE = 1, 3, 10, 18, 28
# Locally administered, and no veth's, whose are random.
_HARDWARE_ADDRESS = bytes.fromhex("0200c0ffee01")
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_GATEWAY = 5
_UP = 1

_MAIN_TABLE, _BOOT, _UNICAST = 254, 3, 1


class Network:
    """The network namespace in which this was made, also after the process has left it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)

    def add_bridge(self, name: str) -> None:
        """Make a switch with an address of its own.

        Otherwise it takes the lowest of its ports', which changes as pods come and go: for up to a
        minute those that are there would send what is for the switch to a pod that is not.
        """
        attributes = _info("bridge") + _attribute(_IFLA_ADDRESS, _HARDWARE_ADDRESS)
        self._change(_NEW_LINK, _CREATE | _EXCLUSIVE, _link(name, attributes))

    def add_cable(self, name: str, bridge: int, peer: str, peer_namespace: int) -> None:
        """Lead a pair of interfaces from a bridge into the namespace of a file descriptor."""
        other = _link(peer, _attribute(_IFLA_NAMESPACE, struct.pack("I", peer_namespace)))
        attributes = _info("veth", _attribute(_VETH_PEER, other))
        attributes += _attribute(_IFLA_MASTER, struct.pack("I", bridge))
        self._change(_NEW_LINK, _CREATE | _EXCLUSIVE, _link(name, attributes, up=True))

    def set_up(self, interface: str) -> None:
        """Switch an interface on."""
        self._change(_NEW_LINK, 0, _link(interface, up=True))

    def add_address(self, interface: str, address: IPv4Address, prefix: int) -> None:
        """Give an interface of this process's own namespace an address."""
        index = socket.if_nametoindex(interface)
        body = struct.pack("BBBBI", socket.AF_INET, prefix, 0, 0, index)
        body += _attribute(_IFA_LOCAL, address.packed) + _attribute(_IFA_ADDRESS, address.packed)
        self._change(_NEW_ADDRESS, _CREATE | _EXCLUSIVE, body)

    def add_default_route(self, gateway: IPv4Address) -> None:
        """Send what belongs nowhere else to a gateway."""
        fields = (socket.AF_INET, 0, 0, 0, _MAIN_TABLE, _BOOT, 0, _UNICAST, 0)
        body = struct.pack("BBBBBBBBI", *fields) + _attribute(_RTA_GATEWAY, gateway.packed)
        self._change(_NEW_ROUTE, _CREATE, body)

    def _change(self, kind: int, flags: int, body: bytes) -> None:
        header = struct.pack("IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, 1, 0)
        self._socket.send(header + body)
        answer = self._socket.recv(65536)
        (answered,) = struct.unpack_from("H", answer, 4)
        (number,) = struct.unpack_from("i", answer, 16)
        # An error of zero is the acknowledgement.
        if answered != _ERROR or number:
            raise OSError(-number, f"netlink request {kind}: {os.strerror(-number)}")


def _link(name: str, attributes: bytes = b"", *, up: bool = False) -> bytes:
    flags = _UP if up else 0
    return (
        struct.pack("BxHiII", socket.AF_UNSPEC, 0, 0, flags, flags)
        + _attribute(_IFLA_NAME, name.encode() + b"\0")
        + attributes
    )


def _info(kind: str, data: bytes = b"") -> bytes:
    body = _attribute(_INFO_KIND, kind.encode())
    if data:
        body += _attribute(_INFO_DATA, data)
    return _attribute(_IFLA_LINK_INFO, body)


def _attribute(kind: int, payload: bytes) -> bytes:
    padding = b"\0" * (-len(payload) % 4)
    return struct.pack("HH", 4 + len(payload), kind) + payload + padding
