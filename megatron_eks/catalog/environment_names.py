"""The names of variables that NCCL, its EFA provider and torch read, and what is meant by others.

What is not here may be read too, by another version.
"""

from collections.abc import Collection
from difflib import get_close_matches

from megatron_eks.catalog.tables import sections

# Names that differ by a slip, not by a meaning.
_CLOSE = 0.9
_SHORTEST = 7

_TABLE = sections("environment_names.txt")
_HEADS = {"nccl": "NCCL_", "efa": "FI_EFA_"}
READ = frozenset(
    f"{_HEADS.get(of, '')}{name}" for of, names in _TABLE.items() for name in names.split()
)
"""What these libraries read."""

# What people write for a name that they know by heart, nearly.
_GUESSES = {
    "CUDA_DEVICE_MAX_CONNECTIONS": (
        "CUDA_DEVICE_CONNECTIONS CUDA_MAX_CONNECTIONS CUDA_MAX_DEVICE_CONNECTIONS"
    ),
    "NCCL_DEBUG": "NCCL_DEBUG_LEVEL NCCL_LOG_LEVEL NCCL_LOGLEVEL",
    "NCCL_SOCKET_IFNAME": "NCCL_IFNAME NCCL_NET_IFNAME NCCL_SOCKET_IF",
    "NCCL_DEBUG_SUBSYS": "NCCL_DEBUG_SUBSYSTEM",
    "NCCL_MIN_NCHANNELS": "NCCL_MIN_CHANNELS",
    "NCCL_MAX_NCHANNELS": "NCCL_MAX_CHANNELS",
    "NCCL_NVLS_ENABLE": "NCCL_NVLS_DISABLE NCCL_ENABLE_NVLS",
    "NCCL_P2P_DISABLE": "NCCL_DISABLE_P2P NCCL_P2P_ENABLE",
    "NCCL_PROTO": "NCCL_PROTOCOL NCCL_PROTOS",
    "NCCL_ALGO": "NCCL_ALGORITHM",
    "FI_EFA_USE_DEVICE_RDMA": "FI_EFA_DEVICE_RDMA FI_EFA_USE_RDMA",
    "FI_PROVIDER": "FI_EFA_PROVIDER FI_PROVIDERS",
    "NVTE_FLASH_ATTN": "NVTE_FLASH_ATTENTION NVTE_USE_FLASH_ATTN",
    "NVTE_FUSED_ATTN": "NVTE_FUSED_ATTENTION NVTE_USE_FUSED_ATTN",
    "NVTE_UNFUSED_ATTN": "NVTE_UNFUSED_ATTENTION",
    "PYTORCH_CUDA_ALLOC_CONF": (
        "PYTORCH_CUDA_ALLOCATOR_CONF PYTORCH_CUDA_CONF TORCH_CUDA_ALLOC_CONF"
    ),
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": (
        "TORCH_NCCL_HEARTBEAT_TIMEOUT TORCH_NCCL_HEARTBEAT_TIMEOUT_S"
    ),
}
_GUESSED = {guess: name for name, guesses in _GUESSES.items() for guess in guesses.split()}


def meant(name: str, known: Collection[str]) -> str | None:
    """Return the variable that was meant by a name, if it differs by a slip from a known one."""
    upper = name.upper()
    if name in known or name in READ:
        return None
    if upper in known or upper in READ:
        return upper
    if upper in _GUESSED:
        return _GUESSED[upper]
    if len(upper) < _SHORTEST:
        return None
    near = get_close_matches(upper, known, 1, _CLOSE) or _swapped(upper, known)
    near = near or get_close_matches(upper, READ, 1, _CLOSE) or _swapped(upper, READ)
    return near[0] if near else None


def _swapped(name: str, known: Collection[str]) -> list[str]:
    """Return names of the same letters in another order: two of them have changed places."""
    letters = sorted(name)
    return sorted(
        each
        for each in known
        if len(each) == len(name) and each[0] == name[0] and sorted(each) == letters
    )
