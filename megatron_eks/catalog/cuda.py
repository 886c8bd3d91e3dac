"""Which CUDA has code for which GPUs, and which CUDA an image has by its name.

NVIDIA, CUDA Toolkit release notes: the first version whose compiler has the architecture. PyTorch
of an earlier one ends with "no kernel image is available for execution on the device".
"""

import re

FIRST_CUDA = {8: (11, 0), 9: (11, 8), 10: (12, 8), 12: (12, 8)}
"""By the major compute capability."""

_CUDA = re.compile(r"(?<![a-z])(cu|cuda-?)(?P<major>1[1-9])\.?(?P<minor>[0-9])(?![0-9]*[a-z])")
# NVIDIA, release notes of the containers: 25.01 is the first one with CUDA 12.8, 22.09 with 11.8.
_MONTHLY = re.compile(r"nvcr\.io/nvidia/(pytorch|nemo):(?P<year>[0-9]{2})\.(?P<month>[0-9]{2})\b.*")
_MONTHS = {(12, 8): (25, 1), (11, 8): (22, 9)}


def is_older(image: str, first: tuple[int, int]) -> bool:
    """Tell whether an image has an earlier CUDA, as far as its name says one."""
    monthly = _MONTHLY.fullmatch(image)
    if monthly is not None:
        least = _MONTHS.get(first)
        return least is not None and (int(monthly["year"]), int(monthly["month"])) < least
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    match = _CUDA.search(tag)
    return match is not None and (int(match["major"]), int(match["minor"])) < first
