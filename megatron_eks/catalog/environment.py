"""The verdict on every environment variable that people set for NCCL, EFA, torch and Megatron.

Sources: aws-ofi-nccl `doc/efa-env-var.md` and `src/platform-aws.cpp` (v1.21), NCCL user guide
"Environment Variables" (2.30), the strings of libnccl 2.31 and torch 2.15 wheels, and
Megatron-LM `megatron/training/arguments.py` (core_v0.19); read 2026-11.
"""

import re
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
_TIMEOUT = "use --distributed-timeout-minutes, in a job file runtime.distributed_timeout_minutes"

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
    **dict.fromkeys(
        ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_TEMP_FILE"),
        Policy(Verdict.SET, "the flight recorder's new names; the plan sets the old ones", _REMOVE),
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
    "NCCL_NET_PLUGIN": Policy(Verdict.REFUSED, "our image names the EFA plugin already", _REMOVE),
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
    **{
        name: Policy(Verdict.REFUSED, "torchrun sets it", _REMOVE)
        for name in (
            "GROUP_RANK",
            "GROUP_WORLD_SIZE",
            "ROLE_NAME",
            "ROLE_RANK",
            "ROLE_WORLD_SIZE",
            "TORCHELASTIC_ERROR_FILE",
            "TORCHELASTIC_MAX_RESTARTS",
            "TORCHELASTIC_RESTART_COUNT",
            "TORCHELASTIC_RUN_ID",
            "TORCHELASTIC_USE_AGENT_STORE",
        )
    },
    # No effect: no library reads them
    "NCCL_TIMEOUT": Policy(
        Verdict.NO_EFFECT,
        "neither NCCL nor torch reads it",
        _TIMEOUT,
    ),
    "TORCH_DISTRIBUTED_TIMEOUT": Policy(Verdict.NO_EFFECT, "torch does not read it", _TIMEOUT),
    "NCCL_SOCKET_TIMEOUT_MS": Policy(Verdict.NO_EFFECT, "NCCL does not read it", _TIMEOUT),
    "NCCL_BLOCKING_WAIT": Policy(
        Verdict.NO_EFFECT, "torch no longer reads it", "use TORCH_NCCL_BLOCKING_WAIT"
    ),
    "TORCH_NCCL_AVOID_RECORD_STREAMS": Policy(
        Verdict.NO_EFFECT, "torch no longer reads it", _REMOVE
    ),
    **dict.fromkeys(
        ("NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_TC", "NCCL_IB_TIMEOUT"),
        Policy(Verdict.NO_EFFECT, "EFA does not use NCCL's InfiniBand transport", _REMOVE),
    ),
    **dict.fromkeys(
        ("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS"),
        Policy(Verdict.NO_EFFECT, "they tune TCP, which EFA does not use", _REMOVE),
    ),
    # Advised against: the plugin chooses better
    **dict.fromkeys(
        ("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ"),
        Policy(Verdict.ADVISED_AGAINST, "NCCL knows the way from GPU to network card", _REMOVE),
    ),
    "NCCL_ASYNC_ERROR_HANDLING": Policy(
        Verdict.ADVISED_AGAINST,
        "the old name of TORCH_NCCL_ASYNC_ERROR_HANDLING, on by default",
        _REMOVE,
    ),
    "TORCH_DISTRIBUTED_DEBUG": Policy(
        Verdict.ADVISED_AGAINST,
        "DETAIL checks every collective against all other ranks first",
        "remove it when the error is found",
    ),
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
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": Policy(
        Verdict.ALLOWED, "how long the watchdog waits before it ends a stuck process", _REMOVE
    ),
    "TORCH_NCCL_BLOCKING_WAIT": Policy(
        Verdict.ALLOWED, "collectives raise their time-out where they are called", _REMOVE
    ),
    **dict.fromkeys(
        ("AWS_DEFAULT_REGION", "AWS_REGION"), Policy(Verdict.ALLOWED, "a name, no right", _REMOVE)
    ),
}

NEEDLESS = frozenset(
    {
        *("FI_EFA_ENABLE_SHM_TRANSFER", "FI_EFA_FORK_SAFE", "FI_EFA_USE_DEVICE_RDMA"),
        *("NCCL_TUNER_PLUGIN", "RDMAV_FORK_SAFE", "TORCH_NCCL_AVOID_RECORD_STREAMS"),
    }
)
"""Refused in a job file because the plugin or torch does it; elsewhere they do no harm."""

PREFIXES: dict[str, Policy] = {
    "PET_": Policy(Verdict.REFUSED, "the training operator sets torchrun's variables", _REMOVE),
    "OFI_NCCL_": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets its parameters for each platform", _REMOVE
    ),
}

# The last words of a name say what its value is: HF_TOKEN is a secret; MAX_TOKENS, HF_TOKEN_PATH
# and TOKENIZERS_PARALLELISM are not, and EOS_TOKEN belongs to a tokenizer.
_SECRET_NAME = re.compile(
    r"(.*_)?(?<!BOS_)(?<!EOS_)(?<!PAD_)(?<!UNK_)(?<!SEP_)(?<!CLS_)(?<!MASK_)"
    r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE|SECRET)_?KEY(_ID)?)"
)
_NO_SECRET_VALUE = re.compile(
    r"|true|false|[0-9]{1,5}|none|null|empty|dummy|fake|unused|x+|-", re.IGNORECASE
)


# What a job file may not take from our images or from the device plugin; other people's manifests
# may have good reasons.
IMAGE_VARIABLES: dict[str, str] = {
    **dict.fromkeys(
        ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "HOME"), "the image sets it"
    ),
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        "the device plugin decides which GPUs a pod sees, and every rank needs its own",
    ),
    "AWS_PROFILE": "a pod has no profiles; its role comes by EKS Pod Identity",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "without it a lost rank leaves all others waiting",
    **dict.fromkeys(("NODE_RANK", "NNODES", "NPROC_PER_NODE"), "torchrun reads PET_ names only"),
}


def judge(name: str, value: str, *, host_network: bool) -> Policy:
    """Return the policy for one variable of a job file."""
    if name in {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}:
        return _socket_interface(name, value, host_network=host_network)
    by_value = _by_value(name, value) or POLICIES.get(name)
    if by_value is not None:
        return by_value
    for prefix, policy in PREFIXES.items():
        if name.startswith(prefix):
            return policy
    if is_secret(name, value):
        return Policy(
            Verdict.REFUSED,
            "a secret in a file or an environment ends in logs",
            "mount a Kubernetes Secret as a file",
        )
    return Policy(Verdict.ALLOWED, "nothing speaks against it", _REMOVE)


def _by_value(name: str, value: str) -> Policy | None:
    if name == "FI_PROVIDER" and value != "efa":
        return Policy(Verdict.REFUSED, f"{value!r} keeps NCCL off EFA", _REMOVE)
    if name.endswith("NCCL_ASYNC_ERROR_HANDLING") and value == "0":
        return Policy(Verdict.REFUSED, "a lost rank leaves all others waiting", _REMOVE)
    return None


def refused(env: "Mapping[str, str]", *, host_network: bool) -> dict[str, Policy]:
    """Return the variables of an environment that break a run, each with its policy."""
    judged = {name: judge(name, value, host_network=host_network) for name, value in env.items()}
    bad = {Verdict.REFUSED, Verdict.NO_EFFECT}
    return {name: policy for name, policy in judged.items() if policy.verdict in bad}


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable holds a secret itself, and not a path to it or a switch."""
    named = _SECRET_NAME.fullmatch(name.upper()) is not None
    return named and not _NO_SECRET_VALUE.fullmatch(value)


def _socket_interface(name: str, value: str, *, host_network: bool) -> Policy:
    """Judge an interface list; a pod has eth0 alone, a node has many with other names.

    NCCL takes prefixes, exact names after `=`, and `^` for all but these (NCCL user guide,
    "NCCL_SOCKET_IFNAME"); Gloo takes exact names only (torch, ProcessGroupGloo).
    """
    gloo = name.startswith("GLOO")
    excludes = value.startswith("^") and not gloo
    names = value.removeprefix("^").split(",") if excludes else value.split(",")
    exact = gloo or names[0].startswith("=")
    names[0] = names[0].removeprefix("=")
    has_eth0 = "eth0" in names if exact else any("eth0".startswith(each) for each in names)
    if excludes and has_eth0 and not host_network:
        return Policy(Verdict.REFUSED, "it excludes eth0, a pod's only interface", _REMOVE)
    if excludes or (not host_network and has_eth0):
        return Policy(Verdict.ALLOWED, "it leaves the right interface", _REMOVE)
    return Policy(
        Verdict.REFUSED,
        f"no interface named {value!r} exists on these nodes"
        if host_network
        else f"{value!r} leaves out eth0, through which alone a pod reaches others",
        "remove it, or use ^lo,docker,veth,pod-id-link on the host network",
    )
