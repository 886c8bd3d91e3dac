"""Which GPUs have units for which of Transformer Engine's recipes.

NVIDIA Transformer Engine, transformer_engine/pytorch/quantization.py, check_fp8_support,
check_fp8_block_scaling_support, check_mxfp8_support and check_nvfp4_support.
"""

from megatron_eks.catalog.gpus import Gpu

_FIRST = {
    "delayed": (8, 9),
    "tensorwise": (8, 9),
    "blockwise": (9, 0),
    "mxfp8": (10, 0),
    "nvfp4": (10, 0),
}
# Not all layouts of MXFP8's matrices are there above (Transformer Engine, issue 2668).
_END = {"mxfp8": (12, 0)}


def lacks(gpu: Gpu, recipe: str) -> str | None:
    """Say what a GPU does not have for a recipe; None also where the recipe is not known."""
    first, end = _FIRST.get(recipe), _END.get(recipe)
    if first is None or first <= gpu.compute_capability < (end or (99, 0)):
        return None
    if not gpu.has_fp8:
        return f"{gpu.name} has no FP8" + (" and no FP4" if recipe == "nvfp4" else "")
    return f"{gpu.name} has no units for {recipe}"
