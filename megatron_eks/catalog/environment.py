"""The verdict on every environment variable that people set for NCCL, EFA, torch and Megatron.

Sources: aws-ofi-nccl `doc/efa-env-var.md` and `src/platform-aws.cpp` (v1.21), NCCL user guide
"Environment Variables" (2.30), the strings of libnccl 2.31 and torch 2.15 wheels, and
Megatron-LM `megatron/training/arguments.py` (core_v0.19); read 2026-11.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What the project does with a variable."""

    SET = "set"
    """Set by the plan; what a job file says instead wins, at the cost named."""
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


REMOVE = "remove it"
"""What to do with most of what should not be there."""


def allowed(reason: str) -> Policy:
    """Let a variable stand."""
    return Policy(Verdict.ALLOWED, reason, REMOVE)


def advised_against(reason: str, instead: str = REMOVE) -> Policy:
    """Warn of a variable."""
    return Policy(Verdict.ADVISED_AGAINST, reason, instead)


def refused(reason: str, instead: str = REMOVE) -> Policy:
    """Refuse a variable with which a run stops, hangs or loses its work."""
    return Policy(Verdict.REFUSED, reason, instead)


def no_effect(reason: str) -> Policy:
    """Warn of a variable that nothing reads."""
    return Policy(Verdict.NO_EFFECT, reason, REMOVE)


_TIMEOUT = "use --distributed-timeout-minutes, in a job file runtime.distributed_timeout_minutes"


_Reasons = Mapping[str, str | tuple[str, str]]


def _judged(verdict: Verdict, reasons: _Reasons) -> dict[str, Policy]:
    """Return one verdict on variables, by their names, with what to do unless that is removing."""
    found: dict[str, Policy] = {}
    for names, reason in reasons.items():
        why, instead = (reason, REMOVE) if isinstance(reason, str) else reason
        found |= dict.fromkeys(names.split(), Policy(verdict, why, instead))
    return found


# Set by the plan
_SET: _Reasons = {
    "PYTORCH_ALLOC_CONF": "expandable segments reduce fragmentation",
    "PYTORCH_CUDA_ALLOC_CONF": "the old name of PYTORCH_ALLOC_CONF",
    "TRITON_CACHE_DIR": (
        "on a shared file system all ranks wait for one lock in the first forward pass"
    ),
    "CUDA_DEVICE_MAX_CONNECTIONS": (
        "Megatron demands 1 for tensor or context parallelism before Blackwell"
    ),
    "NCCL_DEBUG": "INFO proves that EFA is in use; it goes to a local file",
    "NCCL_DEBUG_SUBSYS": "INIT and NET are what the start-up guard reads",
    "NCCL_DEBUG_FILE": "the plan sets it for its start-up guard, which another file blinds",
    (
        "TORCH_NCCL_TRACE_BUFFER_SIZE TORCH_NCCL_DUMP_ON_TIMEOUT"
    ): "without the flight recorder nobody sees which rank hangs",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "the plan's dumps outlive the pod, in the job's logs",
    (
        "TORCH_FR_BUFFER_SIZE TORCH_FR_DUMP_ON_TIMEOUT TORCH_FR_DUMP_TEMP_FILE"
    ): "the flight recorder's new names; the plan sets the old ones",
}
# Refused: a run that sets them stops or hangs
_REFUSED: _Reasons = {
    "NCCL_COMM_ID": (
        "every group of ranks then meets at this one port: the second one hangs or ends",
        "remove it: torch hands NCCL's id out by its own store",
    ),
    "NCCL_NET": "the plugin's name changed between versions; a wrong one ends in TCP or an error",
    # The rendezvous belongs to the training operator and torchrun
    (
        "MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE"
    ): "the training operator and torchrun set it",
    (
        "GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE "
        "TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID "
        "TORCHELASTIC_USE_AGENT_STORE"
    ): "torchrun sets it",
}
# No effect: no library reads them
_NO_EFFECT: _Reasons = {
    "NCCL_TIMEOUT": ("neither NCCL nor torch reads it", _TIMEOUT),
    "TORCH_NCCL_TIMEOUT": ("torch does not read it", _TIMEOUT),
    "TORCH_DISTRIBUTED_TIMEOUT": ("torch does not read it", _TIMEOUT),
    "NCCL_SOCKET_TIMEOUT_MS": ("NCCL does not read it", _TIMEOUT),
    "NCCL_BLOCKING_WAIT": ("torch no longer reads it", "use TORCH_NCCL_BLOCKING_WAIT"),
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "torch no longer reads it",
    "NCCL_COLLNET_ENABLE": "it is about InfiniBand switches that add up, and EFA has none",
    "NCCL_MNNVL_ENABLE": (
        "it is about NVLink between hosts, which p6e types alone have",
        "remove it on other types",
    ),
    (
        "NCCL_TREE_THRESHOLD NCCL_LL_THRESHOLD NCCL_RINGS NCCL_MAX_NRINGS"
    ): "NCCL took it out years ago",
    "NCCL_NSOCKS_PERTHREAD NCCL_SOCKET_NTHREADS": "they tune TCP, which EFA does not use",
    "NODE_RANK NNODES NPROC_PER_NODE": "torchrun reads PET_ names only",
}
# Advised against: the run goes on at a cost, or the libraries choose better
_WHEN_FOUND = "remove it when the error is found"
_ADVISED_AGAINST: _Reasons = {
    "NCCL_PROTO NCCL_ALGO": "it switches the EFA plugin's tuner off",
    "NCCL_P2P_DISABLE": (
        "it takes GPUs of a node off NVLink, and the run is many times slower",
        "remove it when the node is repaired or replaced",
    ),
    "NCCL_SHM_DISABLE": "it sends traffic inside a node to the network",
    # fi_efa(7): names of devices; all others are hidden from the program.
    "FI_EFA_IFACE": "it hides all EFA interfaces of a node but those it names",
    "NCCL_IB_DISABLE": "EFA does not use NCCL's InfiniBand transport",
    # NVIDIA/nccl#1788: the way around a broken NVSwitch or a fabric manager that is not ready.
    "NCCL_NVLS_ENABLE": (
        "0 costs bandwidth on H100 and later",
        "remove it when the node is repaired or replaced",
    ),
    "CUDA_LAUNCH_BLOCKING": (
        "every kernel launch waits: 10 to 100 times slower",
        _WHEN_FOUND,
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (
        "every tensor then waits for cudaMalloc: several times slower",
        _WHEN_FOUND,
    ),
    "NCCL_NET_PLUGIN": "the project's image names the EFA plugin already",
    "NCCL_TUNER_PLUGIN": "the plugin brings its tuner",
    # libibverbs, ibv_fork_init(3): it costs memory registration, and kernels since 5.12 copy
    # registered pages at a fork.
    "RDMAV_FORK_SAFE": "it slows the registration of memory, and the plugin sees to forks",
    "NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ": "NCCL knows the way from GPU to network card",
    "NCCL_ASYNC_ERROR_HANDLING": "the old name of TORCH_NCCL_ASYNC_ERROR_HANDLING, on by default",
    "PYTORCH_PRETRAINED_BERT_CACHE PYTORCH_TRANSFORMERS_CACHE TRANSFORMERS_CACHE": (
        "transformers 5 no longer reads it",
        "use HF_HOME",
    ),
    "TORCH_DISTRIBUTED_DEBUG": (
        "DETAIL checks every collective against all other ranks first",
        _WHEN_FOUND,
    ),
    "FI_EFA_USE_HUGE_PAGE": (
        "0 costs performance, where pods request huge pages as they should",
        "remove it unless fork fails",
    ),
    # efa_rdm_get_use_device_rdma and efa_fork_support.c: what libfabric does by itself, or the
    # plugin for it; neither breaks anything where the hardware can.
    "FI_EFA_USE_DEVICE_RDMA": "libfabric uses RDMA by itself where the hardware can",
    "FI_EFA_FORK_SAFE": "the plugin sets it, and kernels since 5.13 do without",
    "FI_EFA_ENABLE_SHM_TRANSFER": "the plugin has libfabric do without it",
    "NCCL_BUFFSIZE": "the plugin sets it for each platform",
    "NCCL_P2P_NET_CHUNKSIZE": "the plugin sets it for each platform",
    "NCCL_MIN_NCHANNELS": "the plugin sets it for each platform",
    "NCCL_MAX_NCHANNELS": "fewer channels carry less, and NCCL knows how many it needs",
    "NCCL_MIN_CTAS": "the plugin sets channels for each platform",
    "NCCL_MAX_CTAS": "fewer blocks carry less, and NCCL knows how many it needs",
    "NCCL_TOPO_FILE": "the plugin brings the topology of each platform",
    "NCCL_CROSS_NIC": "NCCL pairs the network cards by the plugin's topology",
    "TORCH_NCCL_ENABLE_MONITORING": (
        "0 switches off the thread that ends a stuck process, and 1 is the default"
    ),
    "TORCH_NCCL_BLOCKING_WAIT": (
        "the program waits for every collective, so that none overlaps with computation"
    ),
}
# Allowed
# PyTorch, "Error Propagation": torchrun's own errors go there; each rank gets another.
_ALLOWED: _Reasons = {
    "TORCHELASTIC_ERROR_FILE": (
        "torchrun's own errors go there, and each rank gets a file of its own"
    ),
    "FI_PROVIDER": "efa is what the plugin selects anyway",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": (
        "how long the watchdog waits before it ends a stuck process"
    ),
    "AWS_DEFAULT_REGION AWS_REGION": "a name, no right",
}

POLICIES: dict[str, Policy] = {
    **_judged(Verdict.SET, _SET),
    **_judged(Verdict.REFUSED, _REFUSED),
    **_judged(Verdict.NO_EFFECT, _NO_EFFECT),
    **_judged(Verdict.ADVISED_AGAINST, _ADVISED_AGAINST),
    **_judged(Verdict.ALLOWED, _ALLOWED),
}

_NO_EFFECT_PREFIXES: _Reasons = {
    "NCCL_IB_": "EFA does not use NCCL's InfiniBand transport",
    "FI_OFI_RXR_": "libfabric took these out when its EFA provider got its own",
    "SHARP_": "it is about InfiniBand switches that add up, and EFA has none",
}
_ADVISED_AGAINST_PREFIXES: _Reasons = {
    "RDMAV_": "it is for rdma-core, and the EFA plugin is made without it",
    "OFI_NCCL_": "the plugin sets its parameters for each platform",
}
_REFUSED_PREFIXES: _Reasons = {
    "PET_": "the training operator sets torchrun's variables",
}
PREFIXES: dict[str, Policy] = {
    **_judged(Verdict.NO_EFFECT, _NO_EFFECT_PREFIXES),
    **_judged(Verdict.ADVISED_AGAINST, _ADVISED_AGAINST_PREFIXES),
    **_judged(Verdict.REFUSED, _REFUSED_PREFIXES),
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


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable holds a secret itself, and not a path to it or a switch."""
    named = _SECRET_NAME.fullmatch(name.upper()) is not None
    return named and not _NO_SECRET_VALUE.fullmatch(value)


# Other people's manifests may have good reasons. Sources: assets/images/, megatron-core 0.19,
# language_module.py (NVTE_), and EKS, "EKS Pod Identity" (AWS_).
IMAGE_VARIABLES: dict[str, str] = {
    **dict.fromkeys(
        ("HOME", "LD_PRELOAD", "MEGATRON_LM", "PATH", "PYTHONHOME", "PYTHONPATH"),
        "the image sets it",
    ),
    "LD_LIBRARY_PATH": (
        "the image sets it, and another one hides libfabric and the EFA plugin: NCCL uses TCP"
    ),
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        "the device plugin decides which GPUs a pod sees, and every rank needs its own",
    ),
    "PYTHONOPTIMIZE": "Megatron checks itself by assert, which this switches off",
    **dict.fromkeys(
        ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"),
        "Megatron sets it by --attention-backend, and stops where it says something else",
    ),
    **dict.fromkeys(
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_ROLE_ARN",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
        ),
        "a pod's role comes by EKS Pod Identity",
    ),
    "AWS_PROFILE": "a pod has no profiles; its role comes by EKS Pod Identity",
}
"""Each with the reason."""

OF_OUR_IMAGE = frozenset(
    ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "HOME", "NCCL_NET_PLUGIN")
)
"""What the project's image sets; another image may need another value."""
