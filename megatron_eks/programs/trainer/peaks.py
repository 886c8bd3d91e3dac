"""What GPUs can do at most, for model FLOPs utilization.

The figures are those of the catalogue (megatron_eks/catalog/gpus.py, NVIDIA data sheets), because
an image holds the programs alone; a test compares them.
"""

# Dense bf16 TFLOP/s by a part of the name that CUDA gives; the first match counts.
_PEAKS = (
    ("B300", 2250.0),
    ("B200", 2250.0),
    ("H200", 989.5),
    ("H100", 989.5),
    ("A100", 312.0),
    ("A10G", 70.0),
    ("L40S", 362.0),
    ("L4", 121.0),
)


def peak_tflops(name: str) -> float | None:
    """Return a GPU's peak; None if it is not known."""
    return next((peak for part, peak in _PEAKS if part in name), None)
