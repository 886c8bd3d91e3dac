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


# Of an option that is on or off torch takes these words and no others.
_SWITCHES = frozenset({"expandable_segments", "release_lock_on_cudamalloc"})
_SPELT = frozenset({"True", "False"})
_BACKENDS = frozenset({"native", "cudaMallocAsync"})
_LEAST_SPLIT = 20
_FRACTION = re.compile(r"\d*\.?\d+(?:[eE][-+]?\d+)?")
_NUMBERS = frozenset(TABLE["allocator_numbers"].split())


def malformed(value: str) -> str | None:
    """Return the first part that torch's parser ends the program at: no OPTION:VALUE."""
    for name, chosen in options(value).items():
        if not chosen:
            return f"{name!r} is no OPTION:VALUE"
        if name in _SWITCHES and chosen not in _SPELT:
            return f"{name} takes True or False, and no {chosen!r}"
        problem = _beyond(name, chosen)
        if problem:
            return problem
    return None


def _beyond(name: str, chosen: str) -> str | None:
    """Return what is wrong with a number or a word: c10/core/AllocatorConfig.h, TORCH_CHECK_VALUE.

    A block that may be split has 20 MiB at least (kLargeBuffer).
    """
    if "$" in chosen or "{" in chosen:
        return None
    if name == "backend" and chosen not in _BACKENDS:
        return f"backend is native or cudaMallocAsync, and no {chosen!r}"
    if name == "max_split_size_mb" and not (chosen.isdecimal() and int(chosen) > _LEAST_SPLIT):
        return f"max_split_size_mb is a whole number above {_LEAST_SPLIT}, and no {chosen!r}"
    if name == "garbage_collection_threshold":
        share = float(chosen) if _FRACTION.fullmatch(chosen) else 0.0
        if not 0 < share < 1:
            return f"{name} is a share between 0 and 1, and no {chosen!r}"
    if name in _NUMBERS and not _FRACTION.fullmatch(chosen):
        return f"{name} takes a number, and no {chosen!r}"
    return None


def misspelt_option(value: str) -> tuple[str, str] | None:
    """Return the first option that torch does not have, and the one that was meant."""
    for name in options(value):
        close = [] if name in _OPTIONS else get_close_matches(name, _OPTIONS, 1, _CLOSE)
        if close:
            return name, close[0]
    return None
