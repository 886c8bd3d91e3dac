"""What a prediction needs to know about GPUs and what joins them."""

from dataclasses import dataclass
from typing import Literal

from megatron_eks.predict.layout import Precision

Framework = Literal["megatron", "fsdp"]
Generation = Literal["ampere", "ada", "hopper", "blackwell"]

_TERA = 1e12
_GIGA = 1e9

# HBM or GDDR bandwidth in GB/s, from NVIDIA's data sheets, by what a GPU's name contains; the first
# that matches counts, so the more special come first.
_MEMORY_GB_S = (
    ("a100-sxm4-40", 1555),
    ("a100-40", 1555),
    ("a100", 2039),
    ("a10", 600),
    ("h200", 4800),
    ("gh200", 4800),
    ("h100", 3350),
    ("h20", 4000),
    ("b200", 8000),
    ("b300", 8000),
    ("l40", 864),
    ("l4", 300),
    ("rtx pro 6000", 1792),
)
# Blackwell and Hopper have about 290 operations in bf16 for each byte, Ampere 155.
_OPERATIONS_PER_BYTE: dict[Generation, float] = {
    "ampere": 155,
    "ada": 400,
    "hopper": 295,
    "blackwell": 290,
}
# A peak above this in bf16 is a Blackwell's; Hopper's is 990, Ampere's 312.
_BLACKWELL_TFLOPS = 1500
_HOPPER_TFLOPS = 600
# Dense NVFP4 of B300 and GB300 is three times FP8, of B200 and GB200 twice (data sheets).
_FP4_OF_FP8 = {True: 3.0, False: 2.0}


@dataclass(frozen=True)
class Hardware:
    """One GPU, its node, and the network that it has for itself."""

    gpu: str
    tflops_bf16: float
    tflops_fp8: float | None
    nvlink_gb_s: float
    """Both directions together, as data sheets say it; 0: PCIe."""
    network_gb_s_per_gpu: float
    """One direction."""
    gpus_per_node: int
    """GPUs that NVLink joins: 72 of a GB200 NVL72, though its nodes have four."""
    memory_gb_s: float | None = None
    """Bandwidth of the GPU's memory; None: the data sheet's, or usual for its generation."""

    @property
    def generation(self) -> Generation:
        """The architecture, as far as its peaks tell."""
        if self.tflops_bf16 >= _BLACKWELL_TFLOPS:
            return "blackwell"
        if self.tflops_bf16 >= _HOPPER_TFLOPS:
            return "hopper"
        return "ampere" if self.tflops_fp8 is None else "ada"

    @property
    def is_ultra(self) -> bool:
        """Whether it is a Blackwell Ultra, with 1,400 W instead of 1,000 or 1,200."""
        return "b300" in self.gpu.lower()

    @property
    def memory_bytes_per_second(self) -> float:
        """Bandwidth of the GPU's memory."""
        if self.memory_gb_s:
            return self.memory_gb_s * _GIGA
        name = self.gpu.lower()
        for part, rate in _MEMORY_GB_S:
            if part in name:
                return rate * _GIGA
        return self.tflops_bf16 * _TERA / _OPERATIONS_PER_BYTE[self.generation]

    def peak_flops(self, precision: Precision) -> float:
        """Dense operations a second of the tensor cores."""
        if precision == "bf16" or not self.tflops_fp8:
            return self.tflops_bf16 * _TERA
        fp4 = precision == "nvfp4" and self.generation == "blackwell"
        times = _FP4_OF_FP8[self.is_ultra] if fp4 else 1
        return self.tflops_fp8 * times * _TERA
