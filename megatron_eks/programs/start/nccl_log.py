"""What NCCL's own log tells of the network that a rank uses, and whether that is the expected one.

Line shapes: src/init.cc, src/plugin/net.cc and src/transport/net.cc of NCCL 2.21 to 2.31, and
src/nccl_ofi_net.cpp of aws-ofi-nccl 1.4 to 1.21, with NCCL_DEBUG=INFO for INIT and NET. The same
marks are in AWS' tests of its own images (aws/deep-learning-containers, test/dlc_tests, EFA).
"""

import re
from typing import Literal

from megatron_eks.programs.program import Finding, error, warning

State = Literal["waiting", "good", "bad"]

_PLUGIN = re.compile(r"NET/OFI (?:Initializing|Using) aws-ofi-nccl (\S+)")
# Versions before 1.5 do not say how many interfaces they found.
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is ([^\s,]+)(?:, fabric is \S+)?(?: \(found (\d+) nics\))?"
)
_NETWORK = re.compile(r"NCCL INFO Using network (.+?)\s*$", re.MULTILINE)
_CHANNEL = re.compile(r"\[(?:send|receive)\] via NET/([^\n]*)")
_PROBLEMS = (
    re.compile(r"NET/OFI (?:No eligible providers|aws-ofi-nccl initialization failed)[^\n]*"),
    re.compile(r"NET/Plugin: (?:No plugin found|Could not find)[^\n]*"),
)
_STARTED = re.compile(r"Init START|NCCL INFO Bootstrap")


def judge(
    text: str, expected: int, *, gpu_direct: bool, silent_seconds: float | None = None
) -> tuple[State, Finding | None]:
    """Compare one process' log with the number of EFA interfaces that the pod should have.

    `silent_seconds` is given once the rank has had time enough; until then, what is not there yet
    may still come.
    """
    names, provider = _NETWORK.findall(text), _PROVIDER.search(text)
    if not names:
        silence = _silence(text, silent_seconds) if silent_seconds is not None else None
        return "bad" if silence else "waiting", silence
    # A communicator that falls back is the one that matters.
    name = "Socket" if "Socket" in names else names[-1]
    if "Libfabric" not in name or provider is None or provider[1] != "efa":
        return "bad", _fallback(text, name, provider)
    if provider[2] and int(provider[2]) < expected:
        found = f"aws-ofi-nccl found {provider[2]} EFA interfaces, {expected} expected"
        remedy = "run efa_check on this node; else replace the node"
        return "bad", error("NCCL's network", found, remedy)
    channels = _CHANNEL.findall(text)
    if channels and gpu_direct and not any("GDRDMA" in channel for channel in channels):
        found = f"none of {len(channels)} connections to other nodes uses GPUDirect RDMA"
        remedy = "training is slower than it could be: run efa_check on this node"
        return "good", warning("NCCL's network", found, remedy)
    return "good" if channels or silent_seconds is not None else "waiting", None


def _silence(text: str, seconds: float) -> Finding:
    done = "began, and chose no network" if _STARTED.search(text) else "said nothing"
    found = f"NCCL {done} within {seconds:.0f} s of the rank's start"
    remedy = (
        "see that NCCL_DEBUG is INFO, that every node of the job runs, and read the log of the "
        "first rank that reports an error"
    )
    return error("NCCL's log", found, remedy)


def _fallback(text: str, name: str, provider: re.Match[str] | None) -> Finding:
    remedy = "run efa_check on this node, which says what is missing"
    if provider and provider[1] != "efa":
        found = f"libfabric uses its provider {provider[1]} instead of efa"
    elif plugin := _PLUGIN.search(text):
        found = f"NCCL uses {name}, although aws-ofi-nccl {plugin[1]} was loaded"
    else:
        found = f"NCCL uses {name}, and aws-ofi-nccl was not loaded"
        remedy = "install it (AWS's EFA installer), and put its directory in LD_LIBRARY_PATH"
    problem = next(filter(None, (each.search(text) for each in _PROBLEMS)), None)
    why = f" ({problem[0].strip()})" if problem else ""
    return error("NCCL's network", f"{found}{why}", remedy)
