"""The verdict on every environment variable that people set for NCCL, EFA, torch and Megatron.

Sources: aws-ofi-nccl `doc/efa-env-var.md` and `src/platform-aws.cpp` (v1.21), NCCL user guide
"Environment Variables" (2.30), the strings of libnccl 2.31 and torch 2.15 wheels, and
Megatron-LM `megatron/training/arguments.py` (core_v0.19); read 2026-11.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


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
    ends: bool = False
    """Whether the program cannot run with it, whatever it is meant for."""


REMOVE = "remove it"
"""What to do with most of what should not be there."""
_TIMEOUT = "use --distributed-timeout-minutes, in a job file runtime.distributed_timeout_minutes"

POLICIES: dict[str, Policy] = {
    # Set by the plan
    "PYTORCH_ALLOC_CONF": Policy(Verdict.SET, "expandable segments reduce fragmentation", REMOVE),
    "PYTORCH_CUDA_ALLOC_CONF": Policy(Verdict.SET, "the old name of PYTORCH_ALLOC_CONF", REMOVE),
    "TRITON_CACHE_DIR": Policy(
        Verdict.SET,
        "on a shared file system all ranks wait for one lock in the first forward pass",
        REMOVE,
    ),
    "CUDA_DEVICE_MAX_CONNECTIONS": Policy(
        Verdict.SET,
        "Megatron demands 1 for tensor or context parallelism before Blackwell",
        REMOVE,
    ),
    "NCCL_DEBUG": Policy(
        Verdict.SET, "INFO proves that EFA is in use; it goes to a local file", REMOVE
    ),
    "NCCL_DEBUG_SUBSYS": Policy(
        Verdict.SET, "INIT and NET are what the start-up guard reads", REMOVE
    ),
    "NCCL_DEBUG_FILE": Policy(
        Verdict.SET, "the plan sets it for its start-up guard, which another file blinds", REMOVE
    ),
    "TORCH_NCCL_TRACE_BUFFER_SIZE": Policy(Verdict.SET, "the flight recorder is always on", REMOVE),
    "TORCH_NCCL_DUMP_ON_TIMEOUT": Policy(Verdict.SET, "the flight recorder is always on", REMOVE),
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": Policy(Verdict.SET, "dumps go under the job's logs", REMOVE),
    **dict.fromkeys(
        ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_TEMP_FILE"),
        Policy(Verdict.SET, "the flight recorder's new names; the plan sets the old ones", REMOVE),
    ),
    # Refused: they break or slow a run
    "NCCL_PROTO": Policy(Verdict.REFUSED, "it switches the EFA plugin's tuner off", REMOVE),
    "NCCL_ALGO": Policy(Verdict.REFUSED, "it switches the EFA plugin's tuner off", REMOVE),
    "NCCL_P2P_DISABLE": Policy(Verdict.REFUSED, "it takes GPUs of a node off NVLink", REMOVE),
    "NCCL_SHM_DISABLE": Policy(
        Verdict.REFUSED, "it sends traffic inside a node to the network", REMOVE
    ),
    "NCCL_COMM_ID": Policy(
        Verdict.REFUSED,
        "every group of ranks then meets at this one port: the second one hangs or ends",
        "remove it: torch hands NCCL's id out by its own store",
    ),
    "NCCL_IB_DISABLE": Policy(
        Verdict.REFUSED, "EFA does not use NCCL's InfiniBand transport", REMOVE
    ),
    "NCCL_NET": Policy(
        Verdict.REFUSED,
        "the plugin's name changed between versions; a wrong one ends in TCP or an error",
        REMOVE,
    ),
    "NCCL_NVLS_ENABLE": Policy(
        Verdict.REFUSED, "0 has no effect on A100 and costs bandwidth on H100 and later", REMOVE
    ),
    "CUDA_LAUNCH_BLOCKING": Policy(
        Verdict.REFUSED, "every kernel launch waits: 10 to 100 times slower", REMOVE
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": Policy(
        Verdict.REFUSED, "every tensor then waits for cudaMalloc: several times slower", REMOVE
    ),
    "NCCL_NET_PLUGIN": Policy(Verdict.REFUSED, "our image names the EFA plugin already", REMOVE),
    "RDMAV_FORK_SAFE": Policy(
        Verdict.REFUSED, "it breaks programs on newer kernels, and the plugin sees to forks", REMOVE
    ),
    # fi_efa(7): names of devices; all others are hidden from the program.
    "FI_EFA_IFACE": Policy(
        Verdict.REFUSED, "it hides all EFA interfaces of a node but those it names", REMOVE
    ),
    "NCCL_TUNER_PLUGIN": Policy(Verdict.REFUSED, "the plugin brings its tuner", REMOVE),
    # The rendezvous belongs to the training operator and torchrun
    **{
        name: Policy(Verdict.REFUSED, "the training operator and torchrun set it", REMOVE)
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
        name: Policy(Verdict.REFUSED, "torchrun sets it", REMOVE)
        for name in (
            "GROUP_RANK",
            "GROUP_WORLD_SIZE",
            "ROLE_NAME",
            "ROLE_RANK",
            "ROLE_WORLD_SIZE",
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
    "TORCH_NCCL_TIMEOUT": Policy(Verdict.NO_EFFECT, "torch does not read it", _TIMEOUT),
    "TORCH_DISTRIBUTED_TIMEOUT": Policy(Verdict.NO_EFFECT, "torch does not read it", _TIMEOUT),
    "NCCL_SOCKET_TIMEOUT_MS": Policy(Verdict.NO_EFFECT, "NCCL does not read it", _TIMEOUT),
    "NCCL_BLOCKING_WAIT": Policy(
        Verdict.NO_EFFECT, "torch no longer reads it", "use TORCH_NCCL_BLOCKING_WAIT"
    ),
    "TORCH_NCCL_AVOID_RECORD_STREAMS": Policy(
        Verdict.NO_EFFECT, "torch no longer reads it", REMOVE
    ),
    "NCCL_COLLNET_ENABLE": Policy(
        Verdict.NO_EFFECT, "it is about InfiniBand switches that add up, and EFA has none", REMOVE
    ),
    "NCCL_MNNVL_ENABLE": Policy(
        Verdict.NO_EFFECT,
        "it is about NVLink between hosts, which p6e types alone have",
        "remove it on other types",
    ),
    **dict.fromkeys(
        ("NCCL_TREE_THRESHOLD", "NCCL_LL_THRESHOLD", "NCCL_RINGS", "NCCL_MAX_NRINGS"),
        Policy(Verdict.NO_EFFECT, "NCCL took it out years ago", REMOVE),
    ),
    **dict.fromkeys(
        ("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS"),
        Policy(Verdict.NO_EFFECT, "they tune TCP, which EFA does not use", REMOVE),
    ),
    # Advised against: the plugin chooses better
    **dict.fromkeys(
        ("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ"),
        Policy(Verdict.ADVISED_AGAINST, "NCCL knows the way from GPU to network card", REMOVE),
    ),
    "NCCL_ASYNC_ERROR_HANDLING": Policy(
        Verdict.ADVISED_AGAINST,
        "the old name of TORCH_NCCL_ASYNC_ERROR_HANDLING, on by default",
        REMOVE,
    ),
    **dict.fromkeys(
        ("PYTORCH_PRETRAINED_BERT_CACHE", "PYTORCH_TRANSFORMERS_CACHE", "TRANSFORMERS_CACHE"),
        Policy(Verdict.ADVISED_AGAINST, "transformers 5 no longer reads it", "use HF_HOME"),
    ),
    "TORCH_DISTRIBUTED_DEBUG": Policy(
        Verdict.ADVISED_AGAINST,
        "DETAIL checks every collective against all other ranks first",
        "remove it when the error is found",
    ),
    "FI_EFA_USE_HUGE_PAGE": Policy(
        Verdict.ADVISED_AGAINST,
        "0 costs performance, where pods request huge pages as they should",
        "remove it unless fork fails",
    ),
    # efa_rdm_get_use_device_rdma and efa_fork_support.c: what libfabric does by itself, or the
    # plugin for it; neither breaks anything where the hardware can.
    "FI_EFA_USE_DEVICE_RDMA": Policy(
        Verdict.ADVISED_AGAINST, "libfabric uses RDMA by itself where the hardware can", REMOVE
    ),
    "FI_EFA_FORK_SAFE": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets it, and kernels since 5.13 do without", REMOVE
    ),
    "FI_EFA_ENABLE_SHM_TRANSFER": Policy(
        Verdict.ADVISED_AGAINST, "the plugin has libfabric do without it", REMOVE
    ),
    "NCCL_BUFFSIZE": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets it for each platform", REMOVE
    ),
    "NCCL_P2P_NET_CHUNKSIZE": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets it for each platform", REMOVE
    ),
    "NCCL_MIN_NCHANNELS": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets it for each platform", REMOVE
    ),
    "NCCL_MAX_NCHANNELS": Policy(
        Verdict.ADVISED_AGAINST,
        "fewer channels carry less, and NCCL knows how many it needs",
        REMOVE,
    ),
    "NCCL_MIN_CTAS": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets channels for each platform", REMOVE
    ),
    "NCCL_MAX_CTAS": Policy(
        Verdict.ADVISED_AGAINST,
        "fewer blocks carry less, and NCCL knows how many it needs",
        REMOVE,
    ),
    "NCCL_TOPO_FILE": Policy(
        Verdict.ADVISED_AGAINST, "the plugin brings the topology of each platform", REMOVE
    ),
    "NCCL_CROSS_NIC": Policy(
        Verdict.ADVISED_AGAINST, "NCCL pairs the network cards by the plugin's topology", REMOVE
    ),
    # Allowed
    # PyTorch, "Error Propagation": torchrun's own errors go there; each rank gets another.
    "TORCHELASTIC_ERROR_FILE": Policy(
        Verdict.ALLOWED,
        "torchrun's own errors go there, and each rank gets a file of its own",
        REMOVE,
    ),
    "FI_PROVIDER": Policy(Verdict.ALLOWED, "efa is what the plugin selects anyway", REMOVE),
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": Policy(
        Verdict.ALLOWED, "how long the watchdog waits before it ends a stuck process", REMOVE
    ),
    "TORCH_NCCL_ENABLE_MONITORING": Policy(
        Verdict.ADVISED_AGAINST,
        "0 switches off the thread that ends a stuck process, and 1 is the default",
        REMOVE,
    ),
    "TORCH_NCCL_BLOCKING_WAIT": Policy(
        Verdict.ADVISED_AGAINST,
        "the program waits for every collective, so that none overlaps with computation",
        REMOVE,
    ),
    **dict.fromkeys(
        ("AWS_DEFAULT_REGION", "AWS_REGION"), Policy(Verdict.ALLOWED, "a name, no right", REMOVE)
    ),
}

NEEDLESS = frozenset(
    {
        *("NCCL_TUNER_PLUGIN", "RDMAV_FORK_SAFE", "TORCH_NCCL_AVOID_RECORD_STREAMS"),
    }
)
"""Refused in a job file because the plugin or torch does it; elsewhere they do no harm."""

PREFIXES: dict[str, Policy] = {
    "NCCL_IB_": Policy(Verdict.NO_EFFECT, "EFA does not use NCCL's InfiniBand transport", REMOVE),
    "FI_OFI_RXR_": Policy(
        Verdict.NO_EFFECT, "libfabric took these out when its EFA provider got its own", REMOVE
    ),
    "SHARP_": Policy(
        Verdict.NO_EFFECT, "it is about InfiniBand switches that add up, and EFA has none", REMOVE
    ),
    "RDMAV_": Policy(
        Verdict.ADVISED_AGAINST,
        "it is for rdma-core, and the EFA plugin is made without it",
        REMOVE,
    ),
    "PET_": Policy(Verdict.REFUSED, "the training operator sets torchrun's variables", REMOVE),
    "OFI_NCCL_": Policy(
        Verdict.ADVISED_AGAINST, "the plugin sets its parameters for each platform", REMOVE
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


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable holds a secret itself, and not a path to it or a switch."""
    named = _SECRET_NAME.fullmatch(name.upper()) is not None
    return named and not _NO_SECRET_VALUE.fullmatch(value)
