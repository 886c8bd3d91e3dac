"""The verdict on every environment variable that people set for NCCL, EFA, torch and Megatron.

Sources: aws-ofi-nccl `doc/efa-env-var.md` and `src/platform-aws.cpp` (v1.21), NCCL user guide
"Environment Variables" (2.30), the strings of libnccl 2.31 and torch 2.15 wheels, and
Megatron-LM `megatron/training/arguments.py` (core_v0.19); read 2026-11.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Verdict(StrEnum):
    """What the project does with a variable."""

    SET = "set"
    """Set by the plan; a job file may not set it again."""
    ALLOWED = "allowed"
    ADVISED_AGAINST = "advised against"
    REFUSED = "refused"
    NO_EFFECT = "no effect"


@dataclass(frozen=True)
class Policy:
    """One variable: the verdict, why, and what to do instead."""

    verdict: Verdict
    reason: str
    instead: str


_REMOVE = "remove it"

POLICIES: dict[str, Policy] = {
    # Set by the plan
    "PYTORCH_ALLOC_CONF": Policy(Verdict.SET, "expandable segments reduce fragmentation", _REMOVE),
    "PYTORCH_CUDA_ALLOC_CONF": Policy(Verdict.SET, "the old name of PYTORCH_ALLOC_CONF", _REMOVE),
    "TRITON_CACHE_DIR": Policy(
        Verdict.SET,
        "on a shared file system all ranks wait for one lock in the first forward pass",
        _REMOVE,
    ),
    "CUDA_DEVICE_MAX_CONNECTIONS": Policy(
        Verdict.SET,
        "Megatron demands 1 for tensor or context parallelism before Blackwell",
        _REMOVE,
    ),
    "NCCL_DEBUG": Policy(
        Verdict.SET, "INFO proves that EFA is in use; it goes to a local file", _REMOVE
    ),
    "NCCL_DEBUG_SUBSYS": Policy(
        Verdict.SET, "INIT and NET are what the start-up guard reads", _REMOVE
    ),
    "NCCL_DEBUG_FILE": Policy(Verdict.SET, "the start-up guard reads this file", _REMOVE),
    "TORCH_NCCL_TRACE_BUFFER_SIZE": Policy(
        Verdict.SET, "the flight recorder is always on", _REMOVE
    ),
    "TORCH_NCCL_DUMP_ON_TIMEOUT": Policy(Verdict.SET, "the flight recorder is always on", _REMOVE),
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": Policy(
        Verdict.SET, "dumps go under the job's logs", _REMOVE
    ),
    # Refused: they break or slow a run
    "NCCL_PROTO": Policy(Verdict.REFUSED, "it switches the EFA plugin's tuner off", _REMOVE),
    "NCCL_ALGO": Policy(Verdict.REFUSED, "it switches the EFA plugin's tuner off", _REMOVE),
    "NCCL_P2P_DISABLE": Policy(Verdict.REFUSED, "it takes GPUs of a node off NVLink", _REMOVE),
    "NCCL_SHM_DISABLE": Policy(
        Verdict.REFUSED, "it sends traffic inside a node to the network", _REMOVE
    ),
    "NCCL_IB_DISABLE": Policy(
        Verdict.REFUSED, "EFA does not use NCCL's InfiniBand transport", _REMOVE
    ),
    "NCCL_NET": Policy(
        Verdict.REFUSED,
        "the plugin's name changed between versions; a wrong one ends in TCP or an error",
        _REMOVE,
    ),
    "NCCL_NVLS_ENABLE": Policy(
        Verdict.REFUSED, "0 has no effect on A100 and costs bandwidth on H100 and later", _REMOVE
    ),
    "CUDA_LAUNCH_BLOCKING": Policy(
        Verdict.REFUSED, "every kernel launch waits: 10 to 100 times slower", _REMOVE
    ),
    "NCCL_NET_PLUGIN": Policy(
        Verdict.REFUSED, "the image's loader path finds the EFA plugin", _REMOVE
    ),
    "FI_EFA_USE_DEVICE_RDMA": Policy(
        Verdict.REFUSED, "the plugin sets it where the hardware can", _REMOVE
    ),
    "FI_EFA_FORK_SAFE": Policy(Verdict.REFUSED, "the plugin manages it", _REMOVE),
    "RDMAV_FORK_SAFE": Policy(Verdict.REFUSED, "the plugin manages it", _REMOVE),
    "FI_EFA_ENABLE_SHM_TRANSFER": Policy(Verdict.REFUSED, "the plugin sets it", _REMOVE),
    "NCCL_TUNER_PLUGIN": Policy(Verdict.REFUSED, "the plugin brings its tuner", _REMOVE),
    # The rendezvous belongs to the training operator and torchrun
    **{
        name: Policy(Verdict.REFUSED, "the training operator and torchrun set it", _REMOVE)
        for name in (
            "MASTER_ADDR",
            "MASTER_PORT",
            "WORLD_SIZE",
            "RANK",
            "LOCAL_RANK",
            "LOCAL_WORLD_SIZE",
        )
    },
    # No effect: no library reads them
    "NCCL_TIMEOUT": Policy(
        Verdict.NO_EFFECT,
        "neither NCCL nor torch reads it",
        "use runtime.distributed_timeout_minutes",
    ),
    "TORCH_DISTRIBUTED_TIMEOUT": Policy(
        Verdict.NO_EFFECT, "torch does not read it", "use runtime.distributed_timeout_minutes"
    ),
    "NCCL_SOCKET_TIMEOUT_MS": Policy(
        Verdict.NO_EFFECT, "NCCL does not read it", "use runtime.distributed_timeout_minutes"
    ),
    "NCCL_BLOCKING_WAIT": Policy(
        Verdict.NO_EFFECT, "torch no longer reads it", "use TORCH_NCCL_BLOCKING_WAIT"
    ),
    "TORCH_NCCL_AVOID_RECORD_STREAMS": Policy(
        Verdict.NO_EFFECT, "torch no longer reads it", _REMOVE
    ),
    # Advised against: the plugin chooses better
    "FI_EFA_USE_HUGE_PAGE": Policy(
        Verdict.ADVISED_AGAINST,
        "0 costs performance; pods here request huge pages",
        "remove it unless fork fails",
    ),
    "NCCL_BUFFSIZE": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets it for each platform", _REMOVE
    ),
    "NCCL_P2P_NET_CHUNKSIZE": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets it for each platform", _REMOVE
    ),
    "NCCL_MIN_NCHANNELS": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets it for each platform", _REMOVE
    ),
    # Allowed
    "FI_PROVIDER": Policy(Verdict.ALLOWED, "efa is what the plugin selects anyway", _REMOVE),
}

PREFIXES: dict[str, Policy] = {
    "PET_": Policy(Verdict.REFUSED, "the training operator sets torchrun's variables", _REMOVE),
    "GROUP_": Policy(Verdict.REFUSED, "torchrun sets it", _REMOVE),
    "ROLE_": Policy(Verdict.REFUSED, "torchrun sets it", _REMOVE),
    "TORCHELASTIC_": Policy(Verdict.REFUSED, "torchrun sets it", _REMOVE),
}

_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "ACCESS_KEY", "CREDENTIAL")
_SECRET_PATHS = ("_PATH", "_FILE", "_DIR")
_TOKENIZERS = "TOKENIZER"


def judge(name: str, value: str, *, host_network: bool) -> Policy:
    """Return the policy for one variable of a job file."""
    if name in {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}:
        return _socket_interface(value, host_network=host_network)
    if name == "FI_PROVIDER" and value != "efa":
        return Policy(Verdict.REFUSED, f"{value!r} keeps NCCL off EFA", _REMOVE)
    if name in POLICIES:
        return POLICIES[name]
    for prefix, policy in PREFIXES.items():
        if name.startswith(prefix):
            return policy
    if _is_secret(name):
        return Policy(
            Verdict.REFUSED,
            "a secret in a file or an environment ends in logs",
            "mount a Kubernetes Secret as a file",
        )
    return Policy(Verdict.ALLOWED, "nothing speaks against it", _REMOVE)


def refused(env: "Mapping[str, str]", *, host_network: bool) -> dict[str, Policy]:
    """Return the variables of an environment that break a run, each with its policy."""
    judged = {name: judge(name, value, host_network=host_network) for name, value in env.items()}
    bad = {Verdict.REFUSED, Verdict.NO_EFFECT}
    return {name: policy for name, policy in judged.items() if policy.verdict in bad}


def _is_secret(name: str) -> bool:
    upper = name.upper().replace(_TOKENIZERS, "")
    return any(word in upper for word in _SECRET_WORDS) and not upper.endswith(_SECRET_PATHS)


def _socket_interface(value: str, *, host_network: bool) -> Policy:
    """Judge an interface list; a pod has eth0 alone, a node has many with other names."""
    excludes = value.startswith("^")
    names = value.removeprefix("^").split(",")
    if excludes and any("eth0".startswith(name) for name in names) and not host_network:
        return Policy(Verdict.REFUSED, "it excludes eth0, a pod's only interface", _REMOVE)
    if excludes or (not host_network and names == ["eth0"]):
        return Policy(Verdict.ALLOWED, "it leaves the right interface", _REMOVE)
    return Policy(
        Verdict.REFUSED,
        f"no interface named {value!r} exists {'on these nodes' if host_network else 'in a pod'}",
        "remove it, or use ^lo,docker,veth,pod-id-link on the host network",
    )
