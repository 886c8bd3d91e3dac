"""What NCCL's own log tells of the network that a rank uses, and whether that is the expected one.

Line shapes: src/init.cc, src/plugin/net.cc and src/transport/net.cc of NCCL 2.21 to 2.31, and
src/nccl_ofi_net.cpp of aws-ofi-nccl 1.4 to 1.21, with NCCL_DEBUG=INFO for INIT and NET. The same
marks are in AWS' tests of its own images (aws/deep-learning-containers, test/dlc_tests, EFA).
"""

import re
from dataclasses import dataclass
from typing import Literal

from megatron_eks.programs.program import Finding, error, warning

State = Literal["waiting", "good", "bad"]

_PLUGIN = re.compile(r"NET/OFI (?:Initializing|Using) aws-ofi-nccl (\S+)")
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is ([^\s,]+)(?:, fabric is \S+)?(?: \(found (\d+) nics\))?"
)
_NETWORK = re.compile(r"NCCL INFO Using network (.+?)\s*$", re.MULTILINE)
_CHANNEL = re.compile(r"\[(?:send|receive)\] via NET/([^\n]*)")
_NO_PLUGIN = re.compile(r"NET/Plugin: (?:No plugin found|Could not find)[^\n]*")
_REFUSED = re.compile(r"NET/OFI (?:No eligible providers|aws-ofi-nccl initialization failed)[^\n]*")
_STARTED = re.compile(r"Init START|NCCL INFO Bootstrap")


@dataclass(frozen=True)
class Network:
    """What one process' log says so far."""

    started: bool = False
    """NCCL has begun to make a communicator."""
    plugin: str | None = None
    """Version of aws-ofi-nccl."""
    provider: str | None = None
    """Of libfabric: efa, or what it falls back to."""
    nics: int | None = None
    """Interfaces that the plugin found; versions before 1.5 do not say."""
    name: str | None = None
    """What NCCL calls its network: AWS Libfabric, Libfabric, Socket, IB."""
    channels: int = 0
    """Connections to ranks of other nodes."""
    direct: int = 0
    """Those of them that reach the GPU's memory without the host's."""
    problem: str | None = None
    """Why the plugin was not loaded or gave up, in its own words."""


def read(text: str) -> Network:
    """Read the log of one process, which may be incomplete."""
    provider = _PROVIDER.search(text)
    # A communicator that falls back is the one that matters.
    names = _NETWORK.findall(text)
    socket = next((name for name in names if name == "Socket"), None)
    channels = _CHANNEL.findall(text)
    problem = _REFUSED.search(text) or _NO_PLUGIN.search(text)
    plugin = _PLUGIN.search(text)
    return Network(
        started=_STARTED.search(text) is not None or bool(names),
        plugin=plugin[1] if plugin else None,
        provider=provider[1] if provider else None,
        nics=int(provider[2]) if provider and provider[2] else None,
        name=socket or (names[-1] if names else None),
        channels=len(channels),
        direct=sum("GDRDMA" in channel for channel in channels),
        problem=problem[0].strip() if problem else None,
    )


def judge(
    network: Network, expected: int, *, gpu_direct: bool, silent_seconds: float | None = None
) -> tuple[State, Finding | None]:
    """Compare a network with the number of EFA interfaces that the pod should have.

    `silent_seconds` is given once the rank has had time enough; until then, what is not there yet
    may still come. With `expected` 0 there is nothing to judge: TCP is what such a job has.
    """
    if expected == 0:
        return "good", None
    if network.name is None:
        return _judge_silence(network, silent_seconds)
    if "Libfabric" not in network.name or network.provider != "efa":
        return "bad", _fallback(network)
    if network.nics is not None and network.nics < expected:
        found = f"aws-ofi-nccl found {network.nics} EFA interfaces, {expected} expected"
        remedy = "run efa_check on this node; else replace the node"
        return "bad", error("NCCL's network", found, remedy)
    if network.channels and gpu_direct and not network.direct:
        found = f"none of {network.channels} connections to other nodes uses GPUDirect RDMA"
        remedy = "training is slower than it could be: run efa_check on this node"
        return "good", warning("NCCL's network", found, remedy)
    return "good", None


def is_settled(network: Network) -> bool:
    """Tell whether more of the log cannot change the verdict."""
    return network.name is not None and network.channels > 0


def _judge_silence(network: Network, seconds: float | None) -> tuple[State, Finding | None]:
    if seconds is None:
        return "waiting", None
    done = "began, and chose no network" if network.started else "said nothing"
    found = f"NCCL {done} within {seconds:.0f} s of the rank's start"
    remedy = (
        "see that NCCL_DEBUG is INFO, that every node of the job runs, and read the log of the "
        "first rank that reports an error"
    )
    return "bad", error("NCCL's log", found, remedy)


def _fallback(network: Network) -> Finding:
    if network.provider not in {None, "efa"}:
        found = f"libfabric uses its provider {network.provider} instead of efa"
        remedy = "use a libfabric with the efa provider (AWS's EFA installer), and run efa_check"
    elif network.plugin is None:
        found = f"NCCL uses {network.name}, and aws-ofi-nccl was not loaded"
        remedy = (
            "install aws-ofi-nccl (AWS's EFA installer), and put its directory in LD_LIBRARY_PATH"
        )
    else:
        found = f"NCCL uses {network.name}, although aws-ofi-nccl {network.plugin} was loaded"
        remedy = "run efa_check on this node: the pod lacks EFA devices, or libfabric lacks efa"
    if network.problem:
        found += f" ({network.problem})"
    return error("NCCL's network", found, remedy)
