"""The verdict on a variable by its value alone: what the library that reads it would make of it.

Sources: those of megatron_eks.catalog.environment; torch, "ProcessGroupNCCL Environment Variables";
OpenMP 5.2, section 21.1.2 (OMP_NUM_THREADS); libfabric, man fabric(7) (FI_LOG_LEVEL).
"""

import re
from collections.abc import Callable, Mapping

from megatron_eks.catalog.allocator import ALLOCATOR, malformed, misspelt_option
from megatron_eks.catalog.environment import (
    POLICIES,
    REMOVE,
    Policy,
    advised_against,
    allowed,
    refused,
)
from megatron_eks.catalog.environment_words import of_words

_SHORT_HEARTBEAT, _LONG_HEARTBEAT = 60, 2 * 3600
_WHOLE = re.compile(r"\s*[-+]?(0[xX][0-9a-fA-F]+|\d+)")
# Numbers of NCCL that people write as sizes, with a unit (NCCL user guide: bytes, or a count).
_NUMBERS = (
    *("NCCL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE"),
    *("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS"),
    *("NCCL_NSOCKS_PERTHREAD", "NCCL_NTHREADS", "NCCL_SOCKET_NTHREADS"),
    "NCCL_NCHANNELS_PER_NET_PEER",
)
# Switches of NCCL that people write as words: 0 and 1, and a few further numbers.
_SWITCHES = (
    *("NCCL_CHECK_POINTERS", "NCCL_COMM_BLOCKING", "NCCL_CROSS_NIC", "NCCL_CUMEM_ENABLE"),
    *("NCCL_CUMEM_HOST_ENABLE", "NCCL_DMABUF_ENABLE", "NCCL_GRAPH_MIXING_SUPPORT"),
    *("NCCL_GRAPH_REGISTER", "NCCL_IB_DISABLE", "NCCL_IGNORE_CPU_AFFINITY"),
    *("NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_LOCAL_REGISTER", "NCCL_MNNVL_ENABLE"),
    *("NCCL_NET_GDR_READ", "NCCL_NVB_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE"),
    *("NCCL_PXN_DISABLE", "NCCL_RAS_ENABLE", "NCCL_RUNTIME_CONNECT", "NCCL_SET_STACK_SIZE"),
    "NCCL_SHM_DISABLE",
)
_OFF = frozenset({"false", "no", "off"})
_THREADS = re.compile(r"\s*[1-9]\d*(\s*,\s*[1-9]\d*)*\s*")


def by_value(name: str, value: str) -> Policy | None:
    """Judge a variable by its value, wherever it is set; None leaves it to its name."""
    if name.endswith("NCCL_ASYNC_ERROR_HANDLING") and value == "0":
        return advised_against("a lost rank leaves all others waiting, on paid nodes")
    own = BY_NAME.get(name)
    by_own = own(value) if own is not None else None
    return by_own or of_words(name, value)


def _whole(value: str) -> Policy | None:
    """Judge what NCCL reads as far as digits go: src/misc/param.cc, strtoll."""
    if not value or _WHOLE.fullmatch(value) or "$" in value or "{" in value:
        return None  # what is filled in later is not known
    read = re.match(r"\s*[-+]?\d+", value)
    taken = f"reads {read[0].strip() if read else 0} of it"
    return refused(f"{value!r} is no whole number, and NCCL {taken}")


def _switch(value: str) -> Policy | None:
    """Judge a word where NCCL reads a number.

    src/misc/param.cc, ncclLoadParam: strtoll makes 0 of a word, of `true` as of `false`; only the
    parameters of src/param, of 2.30, know words, and these are none of them.
    """
    if not _whole(value):
        return None
    if value.strip().lower() in _OFF:
        reason = f"{value!r} is no number; NCCL makes 0 of every word"
        return advised_against(reason, "use 0")
    return refused(f"{value!r} is no number, and NCCL makes 0 of it", "use 0 or 1")


def _provider(value: str) -> Policy | None:
    """Judge a list of providers, which libfabric compares without case: src/fabric.c, filters."""
    if _leaves_out_efa(value):
        return advised_against(f"{value!r} keeps NCCL off EFA")
    if value.startswith("^") or "efa" in value.split(","):
        return None
    reason = f"libfabric passes over the case of {value!r}, and what else reads it may not"
    return advised_against(reason, "write efa")


def _leaves_out_efa(value: str) -> bool:
    names = value.lower().removeprefix("^").split(",")
    return ("efa" in names) is value.startswith("^")


def off_efa(env: Mapping[str, str]) -> bool:
    """Tell whether variables take NCCL off EFA, by what `by_value` judges of each."""
    provider = env.get("FI_PROVIDER", "efa")
    own = _net(env.get("NCCL_NET", "")) or _plugin(env.get("NCCL_NET_PLUGIN", ""))
    return own is not None or _leaves_out_efa(provider)


def _plugin(value: str) -> Policy | None:
    """Judge a plugin by its name or path (NCCL user guide, "NCCL_NET_PLUGIN")."""
    if value == "none":
        return advised_against("without the EFA plugin NCCL uses TCP")
    if value == "spcx":
        reason = "NVIDIA's plugin for Spectrum-X, and not the EFA plugin: NCCL uses TCP"
        return advised_against(reason, "write ofi")
    if value.startswith("/") and ".so" not in value and "$" not in value:
        reason = "NCCL opens it as a library, and it is none: NCCL uses TCP"
        return advised_against(reason, f"write {value.rstrip('/')}/libnccl-net-ofi.so")
    return None


def _net(value: str) -> Policy | None:
    """Judge NCCL's own transports by name (NCCL user guide, "NCCL_NET")."""
    # src/plugin/net.cc compares without regard to case.
    if value.strip().lower() == "socket":
        return advised_against("Socket is TCP, and EFA is then unused")
    if value.strip().lower() == "ib":
        return refused("IB looks for InfiniBand cards, and NCCL stops where a node has none")
    return None


def _capabilities(value: str) -> Policy | None:
    """Judge which of the driver's libraries a container gets (NVIDIA Container Toolkit)."""
    lacks = {"compute", "utility"} - set(value.replace(" ", "").split(","))
    if value == "all" or not lacks:
        return None
    reason = f"without {' and '.join(sorted(lacks))} a container has no CUDA, or no NVML for NCCL"
    return refused(reason, "write compute,utility")


def _peers(value: str) -> Policy | None:
    """Judge how near two GPUs must be to talk directly: LOC, in its old form 0, is never."""
    never = value.upper() in {"LOC", "0"}
    return POLICIES["NCCL_P2P_DISABLE"] if never else None


def _threads(value: str) -> Policy | None:
    if _THREADS.fullmatch(value):
        return None
    return advised_against(f"{value!r} is no number of threads, and OpenMP ignores it")


def _family(value: str) -> Policy | None:
    """Judge a family of addresses (NCCL, src/misc/socket.cc: AF_INET and AF_INET6, as written)."""
    if value == "AF_INET6":
        return refused("pods and nodes of these clusters have IPv4 addresses")
    if value == "AF_INET" or not value or "$" in value or "{" in value:
        return None
    reason = f"{value!r} is neither AF_INET nor AF_INET6, and NCCL passes over it"
    return advised_against(reason, "use AF_INET, or remove it")


def _talk(value: str) -> Policy | None:
    quiet = value.lower() not in {"debug", "trace", "info"}
    return None if quiet else advised_against("every rank writes lines for each message")


def _debug(value: str) -> Policy | None:
    if value.strip().upper() in {"INFO", "OFF"}:
        return allowed("it costs next to nothing")
    return None


def _async_errors(value: str) -> Policy | None:
    """Judge what torch does about a lost rank: 3, by default, ends the process, and 1 too.

    torch 2.15, ProcessGroupNCCL.hpp, ErrorHandlingMode.
    """
    if value in {"1", "3"}:
        return allowed("torch ends the process where a rank is lost")
    return None


def _heartbeat(value: str) -> Policy | None:
    """Judge when torch ends a process whose watchdog no longer answers: 480 s by default."""
    seconds = int(value) if value.isdigit() else _SHORT_HEARTBEAT
    if seconds < _SHORT_HEARTBEAT:
        return advised_against("loading a large model takes longer, and ranks would end in it")
    if seconds > _LONG_HEARTBEAT:
        return advised_against(f"a stuck rank is ended after {seconds // 3600} hours")
    return None


def _allocator(value: str) -> Policy | None:
    if slip := misspelt_option(value):
        wrong, right = slip
        return refused(f"torch has no option {wrong!r}", f"did you mean {right}?")
    problem = malformed(value)
    if problem is None:
        return None
    meant = value.replace("=", ":")
    instead = f"write {meant}" if meant != value and malformed(meant) is None else REMOVE
    reason = f"{problem}, and torch ends the program at it"
    return refused(reason, instead)


BY_NAME: dict[str, Callable[[str], Policy | None]] = {
    **dict.fromkeys(_NUMBERS, _whole),
    **dict.fromkeys(_SWITCHES, _switch),
    "FI_LOG_LEVEL": _talk,
    "TORCH_DISTRIBUTED_DEBUG": _debug,
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": _async_errors,
    "FI_PROVIDER": _provider,
    "NCCL_NET": _net,
    "NCCL_NET_PLUGIN": _plugin,
    "NCCL_P2P_LEVEL": _peers,
    "NCCL_SOCKET_FAMILY": _family,
    "NVIDIA_DRIVER_CAPABILITIES": _capabilities,
    "OMP_NUM_THREADS": _threads,
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": _heartbeat,
    **dict.fromkeys(ALLOCATOR, _allocator),
}
