"""What the allocator says when a GPU's memory has run out.

Source: c10/cuda/CUDACachingAllocator.cpp, the text of OutOfMemoryError.
"""

import re

_SIZE = r"([\d.]+) ([KMGT]?i?B)"
_TOTAL = re.compile(rf"total capacity of {_SIZE} of which {_SIZE} is free")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "bytes": 1}
_LARGE = 0.2


def of_others(text: str) -> str:
    """Say how much of the GPU other processes hold, where that is much."""
    total, own = _TOTAL.search(text), _OWN.search(text)
    if not total or not own:
        return ""
    whole, free = _bytes(total, 1), _bytes(total, 3)
    others = whole - free - _bytes(own, 1)
    if others < _LARGE * whole:
        return ""
    return (
        f"Other processes hold {others / 2**30:.1f} GiB of this GPU:"
        " several ranks chose it, or a process was left over."
    )


def _bytes(found: "re.Match[str]", place: int) -> float:
    return float(found.group(place)) * _UNITS.get(found.group(place + 1), 1)
