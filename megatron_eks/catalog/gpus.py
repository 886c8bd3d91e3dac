"""The GPUs of the instance catalogue, as frameworks see them.

Sources: sizes as EC2 reports them (DescribeInstanceTypes, through Karpenter's reference of instance
types, 2026-08); bandwidths from NVIDIA's data sheets, and dense peaks, half of what these call
"with sparsity". What a process can allocate is the smallest total that torch's out-of-memory
messages show in public issues and repositories, read 2026-11.
"""

import re
from dataclasses import dataclass

_FIRST_WITH_FP8 = (8, 9)


@dataclass(frozen=True)
class Gpu:
    """One GPU as the framework sees it; a fact nobody could confirm is None, never a guess."""

    name: str
    """What `nvidia-smi` calls it, without maker and edition."""
    memory_mib: int
    """What EC2 reports; the driver keeps a part of it."""
    usable_memory_mib: int
    """What a process can allocate, the CUDA context not yet counted."""
    compute_capability: tuple[int, int]
    tflops_bf16: float | None
    """Dense peak, the denominator of MFU."""
    tflops_fp8: float | None
    """Dense peak; None also where there is no FP8."""
    memory_gb_s: float
    """Bandwidth of its memory, HBM or GDDR."""

    @property
    def cuda_major(self) -> int:
        """Major compute capability: 8 Ampere and Ada, 9 Hopper, 10 and 12 Blackwell."""
        return self.compute_capability[0]

    @property
    def has_fp8(self) -> bool:
        """Whether the tensor cores have FP8 (CUDA programming guide, compute capabilities)."""
        return self.compute_capability >= _FIRST_WITH_FP8


GPUS: dict[str, Gpu] = {
    "A100_40": Gpu("A100-SXM4-40GB", 40960, 40346, (8, 0), 312.0, None, 1555.0),
    "A100_80": Gpu("A100-SXM4-80GB", 81920, 81050, (8, 0), 312.0, None, 2039.0),
    "H100": Gpu("H100 80GB HBM3", 81920, 80998, (9, 0), 989.5, 1979.0, 3350.0),
    "H200": Gpu("H200", 144384, 143073, (9, 0), 989.5, 1979.0, 4800.0),
    "B200": Gpu("B200", 183359, 182630, (10, 0), 2250.0, 4500.0, 8000.0),
    "B300": Gpu("B300 SXM6 AC", 275040, 274114, (10, 3), 2250.0, 4500.0, 8000.0),
    "A10G": Gpu("A10G", 22888, 22476, (8, 6), 70.0, None, 600.0),
    "L4": Gpu("L4", 22888, 22476, (8, 9), 121.0, 242.0, 300.0),
    "L40S": Gpu("L40S", 45776, 45404, (8, 9), 362.0, 733.0, 864.0),
    # The server edition, whose dense peaks NVIDIA does not publish.
    "RTX_6000": Gpu("RTX PRO 6000", 98304, 97239, (12, 0), None, None, 1792.0),
}


def gpu_named(name: str) -> Gpu | None:
    """Return the GPU that CUDA calls so, whatever its memory; None: no instance here has one."""
    words = re.split(r"\W", name)
    return next((gpu for key, gpu in GPUS.items() if key.partition("_")[0] in words), None)


# NVIDIA, CUDA Toolkit release notes: the first version whose compiler has the architecture. PyTorch
# of an earlier one ends with "no kernel image is available for execution on the device".
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


# The first compute capability with units for a recipe: NVIDIA Transformer Engine,
# transformer_engine/pytorch/quantization.py, check_fp8_support, check_fp8_block_scaling_support,
# check_mxfp8_support and check_nvfp4_support.
_RECIPE_FROM = {
    "delayed": (8, 9),
    "tensorwise": (8, 9),
    "blockwise": (9, 0),
    "mxfp8": (10, 0),
    "nvfp4": (10, 0),
}
# Not all layouts of MXFP8's matrices are there above (Transformer Engine, issue 2668).
_RECIPE_UNTIL = {"mxfp8": (12, 0)}


def lacks(gpu: Gpu, recipe: str) -> str | None:
    """Say what a GPU does not have for a recipe; None also where the recipe is not known."""
    first, end = _RECIPE_FROM.get(recipe), _RECIPE_UNTIL.get(recipe)
    if first is None or first <= gpu.compute_capability < (end or (99, 0)):
        return None
    if not gpu.has_fp8:
        return f"{gpu.name} has no FP8" + (" and no FP4" if recipe == "nvfp4" else "")
    return f"{gpu.name} has no units for {recipe}"
