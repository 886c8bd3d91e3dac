"""The options of torch's allocator of GPU memory, which one environment variable holds.

Sources: PyTorch, "CUDA semantics", "Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF"; the
strings of libc10 2.15, which ends the program at any other option ("Unrecognized key"). Read
2026-11.
"""

import re
from difflib import get_close_matches

from megatron_eks.catalog.environment import TABLE

ALLOCATOR = frozenset({"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
"""The variable and its old name."""

_OPTIONS = (*TABLE["allocator"].split(), *TABLE["allocator_numbers"].split())
# Options that differ by a slip; another torch may have options that this one has not.
_CLOSE = 0.9


def options(value: str) -> dict[str, str]:
    """Split `a:1,b:[256:1,512:2]` into its options; commas in brackets belong to a value."""
    words = re.split(r",(?![^\[]*\])", value)
    pairs = (word.partition(":") for word in words if word.strip())
    return {name.strip(): chosen.strip() for name, _, chosen in pairs}


_NUMBER = r"\d*\.?\d+(?:[eE][-+]?\d+)?"
_SWITCH = ("True|False", "True or False")
# What torch's parser takes: c10/core/AllocatorConfig.h, TORCH_CHECK_VALUE. A block that may be
# split has 20 MiB at least (kLargeBuffer).
_TAKEN = {
    **dict.fromkeys(TABLE["allocator_numbers"].split(), (_NUMBER, "a number")),
    "expandable_segments": _SWITCH,
    "release_lock_on_cudamalloc": _SWITCH,
    "backend": ("native|cudaMallocAsync", "native or cudaMallocAsync"),
    "max_split_size_mb": (r"2[1-9]|[3-9]\d|\d{3,}", "a whole number above 20"),
    "garbage_collection_threshold": (r"0?\.\d*[1-9]\d*", "a share between 0 and 1"),
}


def malformed(value: str) -> str | None:
    """Return what is wrong with the first part that torch's parser ends the program at."""
    for name, chosen in options(value).items():
        if not chosen:
            return f"{name!r} is no OPTION:VALUE"
        form, taken = _TAKEN.get(name, (".*", ""))
        if not re.search(r"[${]", chosen) and not re.fullmatch(form, chosen):
            return f"{name} takes {taken}, and no {chosen!r}"
    return None


def misspelt_option(value: str) -> tuple[str, str] | None:
    """Return the first option that torch does not have, and the one that was meant."""
    for name in options(value):
        close = [] if name in _OPTIONS else get_close_matches(name, _OPTIONS, 1, _CLOSE)
        if close:
            return name, close[0]
    return None
