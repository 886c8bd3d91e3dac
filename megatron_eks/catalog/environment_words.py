"""The words and numbers that libraries take as values of a variable, and what else does there.

Sources: NCCL 2.30, src/debug.cc, src/graph/{paths,topo,tuning}.cc; libfabric, src/log.c; torch
2.15, c10/util/Logging.cpp and, in torch/csrc/distributed/c10d, Utils.hpp, debug.cpp and
ProcessGroupNCCL.hpp; CUDA C++ Programming Guide, "CUDA Environment Variables"; cuBLAS, "Results
Reproducibility"; Transformer Engine, transformer_engine/pytorch (`int(os.getenv(...))`);
huggingface_hub 2.4, constants.py; wandb, settings of `mode`. Read 2026-11.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

from megatron_eks.catalog.environment import REMOVE, Policy, Verdict, advised_against, refused

_CLOSE = 0.6
_UNKNOWN = re.compile(r"[${]")


@dataclass(frozen=True)
class _Words:
    """The words that one variable takes."""

    words: tuple[str, ...]
    otherwise: str
    """What happens at any other."""
    any_case: bool = False
    ends: bool = False
    """Whether the program ends then."""
    numbers: bool = False
    """Whether numbers stand for the words too."""
    silent: tuple[str, ...] = ()
    """Old words, which still count."""

    def judge(self, value: str) -> Policy | None:
        """Judge a value; None for one of the words."""
        given = value.strip() if self.any_case else value
        folded = given.strip().upper()
        like = {each.upper(): each for each in self.words}
        known = folded in like if self.any_case else given in (*self.words, *self.silent)
        if known or (self.numbers and given.isdecimal()):
            return None
        close = [like[each] for each in get_close_matches(folded, like, 1, _CLOSE)]
        remedy = f"did you mean {close[0]}?" if close else f"use {_one_of(self.words)}"
        verdict = Verdict.REFUSED if self.ends else Verdict.ADVISED_AGAINST
        reason = f"{value!r} is no value of it: {self.otherwise}"
        return Policy(verdict, reason, remedy)


_DISTANCES = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
_PASSES_OVER = "NCCL passes over it"
_SUBSYSTEMS = (
    *("INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "ALLOC_HOST"),
    *("CALL", "PROXY", "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "DESTROY", "ALL"),
)

_WORDS: dict[str, _Words] = {
    "NCCL_DEBUG": _Words(
        ("VERSION", "WARN", "INFO", "ABORT", "TRACE"), "NCCL then logs nothing", any_case=True
    ),
    **dict.fromkeys(
        ("NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL"), _Words(_DISTANCES, _PASSES_OVER, numbers=True)
    ),
    "NCCL_LAUNCH_MODE": _Words(("PARALLEL", "GROUP"), "NCCL takes PARALLEL for it"),
    "FI_LOG_LEVEL": _Words(
        ("warn", "trace", "info", "debug"), "libfabric takes warn for it", any_case=True
    ),
    "CUDA_DEVICE_ORDER": _Words(("FASTEST_FIRST", "PCI_BUS_ID"), "CUDA passes over it"),
    "CUDA_MODULE_LOADING": _Words(("DEFAULT", "LAZY", "EAGER"), "CUDA passes over it"),
    "TORCH_CPP_LOG_LEVEL": _Words(
        ("INFO", "WARNING", "ERROR", "FATAL"),
        "torch passes over it",
        any_case=True,
        numbers=True,
    ),
    "TORCH_DISTRIBUTED_DEBUG": _Words(
        ("OFF", "INFO", "DETAIL"), "torch ends the program at it", any_case=True, ends=True
    ),
    "WANDB_MODE": _Words(
        ("online", "offline", "disabled", "shared"),
        "wandb ends the program at it",
        ends=True,
        silent=("dryrun", "run"),
    ),
}
_TORCH_NUMBERS = (
    *("TORCH_FR_BUFFER_SIZE", "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_NCCL_RANKS_PER_ROOT"),
    *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_COORD_CHECK_MILSEC"),
    *("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC",
)
_TORCH_SWITCHES = (
    *("TORCH_FR_CPP_STACK", "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_BLOCKING_WAIT"),
    *("TORCH_NCCL_CUDA_EVENT_CACHE", "TORCH_NCCL_DESYNC_DEBUG", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    *("TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_ENABLE_TIMING", "TORCH_NCCL_HIGH_PRIORITY"),
    *("TORCH_NCCL_NAN_CHECK", "TORCH_NCCL_PROPAGATE_ERROR", "TORCH_NCCL_RETHROW_CUDA_ERRORS"),
    *("TORCH_NCCL_TRACE_CPP_STACK", "TORCH_NCCL_USE_COMM_NONBLOCKING"),
)
_TRUTHS = frozenset(("y", "yes", "1", "t", "true", "n", "no", "0", "f", "false"))
_ENGINE_NUMBERS = (
    *("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "NVTE_BIAS_GELU_NVFUSION", "NVTE_DEBUG"),
    *("NVTE_DEBUG_LEVEL", "NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_TORCH_COMPILE"),
    "NVTE_UNFUSED_ATTN",
)
_BLOCKS, _WARP = (64, 128, 256, 512), 32
_MOST_THREADS = 640
_WORKSPACE = re.compile(r"(:\d+:\d+)+")


def of_words(name: str, value: str) -> Policy | None:
    """Judge a value where its variable takes certain words or numbers; what is open is not."""
    known, own = _WORDS.get(name), _OWN.get(name)
    if not value or _UNKNOWN.search(value) or (known is None and own is None):
        return None
    return known.judge(value) if known else own(value) if own else None


def _subsystem(value: str) -> Policy | None:
    """Judge names of what NCCL is to log, of which it passes over those that it does not know."""
    names = [each.strip() for each in value.removeprefix("^").split(",")]
    for name in names:
        if name and name.upper() not in _SUBSYSTEMS:
            close = get_close_matches(name.upper(), _SUBSYSTEMS, 1, _CLOSE)
            instead = f"did you mean {close[0]}?" if close else REMOVE
            return advised_against(f"NCCL has no subsystem {name!r} to log", instead)
    return None


def is_subsystem(name: str) -> bool:
    """Tell whether NCCL logs anything by this name."""
    return name.upper() in _SUBSYSTEMS


def _one_of(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _torch_number(value: str) -> Policy | None:
    """Judge what torch reads by std::stoi: torch/csrc/distributed/c10d/Utils.hpp."""
    if re.fullmatch(r"\s*[-+]?\d+", value):
        return None
    read = re.match(r"\s*[-+]?\d+", value)
    if read:
        return refused(
            f"{value!r} is no whole number, and torch reads {read[0].strip()} of it",
            "write the number alone",
        )
    return refused(
        f"{value!r} is no number, and torch ends the program at it", "write a whole number"
    )


def _torch_switch(value: str) -> Policy | None:
    if value.lower() in _TRUTHS:
        return None
    return refused(f"{value!r} is neither 1 nor 0, and torch ends the program at it", "use 1 or 0")


def _number(what: str, instead: str, value: str) -> Policy | None:
    """Judge what Python's int() reads: `what` the value is not, and who ends the program then."""
    if re.fullmatch(r"\s*[-+]?\d+\s*", value):
        return None
    return refused(f"{value!r} is no {what} ends the program at it", instead)


def _endpoint(value: str) -> Policy | None:
    if re.match(r"https?://\S", value):
        return None
    return refused(f"{value!r} is no address, so nothing is found", f"write https://{value}")


def _workspace(value: str) -> Policy | None:
    if _WORKSPACE.fullmatch(value):
        return None
    reason = f"{value!r} is no :SIZE:COUNT, and cuBLAS passes over it"
    return advised_against(reason, "use :4096:8 or :16:8")


def _block(value: str) -> Policy | None:
    known = not value.isdecimal() or int(value) % _WARP == 0
    if known and (not value.isdecimal() or _BLOCKS[0] <= int(value) <= _MOST_THREADS):
        return None
    return advised_against(
        f"NCCL does not take {value} threads, and uses another number of them",
        f"use {_one_of(tuple(map(str, _BLOCKS)))}",
    )


_OWN: dict[str, Callable[[str], Policy | None]] = {
    **dict.fromkeys(_TORCH_NUMBERS, _torch_number),
    **dict.fromkeys(_TORCH_SWITCHES, _torch_switch),
    **dict.fromkeys(
        _ENGINE_NUMBERS, partial(_number, "number, and Transformer Engine", "use 0 or 1")
    ),
    **dict.fromkeys(
        ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT"),
        partial(_number, "whole number, and huggingface_hub", "write seconds, without a unit"),
    ),
    "CUBLAS_WORKSPACE_CONFIG": _workspace,
    **dict.fromkeys(("HF_ENDPOINT", "WANDB_BASE_URL"), _endpoint),
    "NCCL_DEBUG_SUBSYS": _subsystem,
    "NCCL_NTHREADS": _block,
}
NAMES = frozenset({*_WORDS, *_OWN})
"""The variables that are judged here."""
