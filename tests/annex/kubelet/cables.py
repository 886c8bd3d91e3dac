"""Pulls the cable of a pod: `python -m tests.annex.kubelet.cables HOLDER ADDRESS`.

A process that ends has its connections closed by the kernel, and gloo raises an error on the other
side. A host without power closes nothing, and NCCL over EFA has nothing to close: with the cable
pulled first, those that are left wait in their collective, as on GPUs.
"""

import fcntl
import socket
import struct
import subprocess
import sys
from ipaddress import IPv4Address

from megatron_eks.localcloud.kubernetes.kubelet import linux
from megatron_eks.project import ROOT

# linux/sockios.h and linux/if.h
_SET_FLAGS, _DOWN = 0x8914, 0


def pull(holder: int, address: str) -> None:
    """Pull a pod's cable for good; its successor gets another one."""
    words = [sys.executable, "-m", __name__, str(holder), address]
    subprocess.run(words, cwd=ROOT, check=True)  # noqa: S603 -- this module


def _pull(holder: int, address: IPv4Address) -> None:
    linux.enter(holder, "user", "net")
    # The name that `sandbox` gives it on the bridge.
    request = struct.pack("16sh14x", f"v{int(address):08x}".encode(), _DOWN)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, request)


if __name__ == "__main__":
    _pull(int(sys.argv[1]), IPv4Address(sys.argv[2]))
