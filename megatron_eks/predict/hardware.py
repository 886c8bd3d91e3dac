"""What predictions need of hardware, and what they were fitted to."""

import math
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from megatron_eks.catalog.gpus import GPUS
from megatron_eks.catalog.tables import entries, parts
from megatron_eks.predict.layout import Batch, Precision, Software

Framework = Literal["megatron", "fsdp"]
Generation = Literal["ampere", "ada", "hopper", "blackwell"]

_TERA = 1e12
_GIGA = 1e9

# Bandwidth in GB/s of what a prediction file may name, by what the name contains; the first that
# matches counts, so the more special come first.
_MEMORY_GB_S = (
    ("a100-sxm4-40", GPUS["A100_40"].memory_gb_s),
    ("a100-40", GPUS["A100_40"].memory_gb_s),
    ("a100", GPUS["A100_80"].memory_gb_s),
    ("a10", GPUS["A10G"].memory_gb_s),
    ("h200", GPUS["H200"].memory_gb_s),
    ("h100", GPUS["H100"].memory_gb_s),
    ("h20", 4000),
    ("b200", GPUS["B200"].memory_gb_s),
    ("b300", GPUS["B300"].memory_gb_s),
    ("l40", GPUS["L40S"].memory_gb_s),
    ("l4", GPUS["L4"].memory_gb_s),
    ("rtx pro 6000", GPUS["RTX_6000"].memory_gb_s),
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
    power: float = 1.0
    """Share of its full power that the GPU may take."""
    efa: bool = False
    """Whether nodes are joined by EFA, over which NCCL's all-to-all is slower than the wire."""

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
        """Dense operations a second of the tensor cores, at the clock that its power allows.

        The clock falls about as the root of the power: bf16 runs of torchtitan on H100 of 500 W
        (pytorch/torchtitan, benchmarks), of which none was fitted, are within 6 %.
        """
        clock = _TERA * math.sqrt(self.power)
        if precision == "bf16" or not self.tflops_fp8:
            return self.tflops_bf16 * clock
        fp4 = precision == "nvfp4" and self.generation == "blackwell"
        times = _FP4_OF_FP8[self.is_ultra] if fp4 else 1
        return self.tflops_fp8 * times * clock


_TABLE = parts((pkgutil.get_data("megatron_eks.predict", "calibration.txt") or b"").decode())


@dataclass(frozen=True, eq=False)
class Calibration:
    """What share of a data sheet's rate a training run reaches, and what it does not overlap."""

    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        """Return a constant by its name in calibration.txt."""
        return self.values[name]

    def matrix(self, framework: Framework, generation: Generation, precision: Precision) -> float:
        """Return the share of the peak that large matrix products reach."""
        bits = "fp8" if precision == "mxfp8" else precision
        if generation == "ada":  # taken for Ampere or, in FP8, Hopper
            generation = "ampere" if bits == "bf16" else "hopper"
        # What has no units for fewer bits computes in those that it has.
        kinds = (bits, "fp8", "bf16")
        names = (f"{framework} {generation} {kind}" for kind in kinds[kinds.index(bits) :])
        return next(self.values[name] for name in names if name in self.values)

    def attention(self, framework: Framework, generation: Generation, software: Software) -> float:
        """Return the share of the bf16 peak that flash attention reaches."""
        if generation in {"ampere", "ada"}:
            return self["attention ampere"]
        if generation == "hopper" and framework == "megatron" and software == "2024":
            return self["attention hopper 2024"]
        return self[f"attention {generation}{' fsdp' * (framework == 'fsdp')}"]

    def launching(self, batch: Batch, share: float, generation: Generation) -> float:
        """Return the least time of an average layer of which this share has experts."""
        if batch.graphs == "full":
            return 0.0
        partial = batch.graphs == "partial"
        experts = self["launch experts partial" if partial else "launch experts"]
        experts *= self["launch flex"] if batch.flex or batch.capacity else 1.0
        host = self["launch blackwell"] if generation == "blackwell" else 1.0
        return host * (share * experts + (0.0 if partial else (1 - share) * self["launch"]))


CALIBRATION = Calibration(
    {name: float(said.split()[0]) for name, said in entries(_TABLE["constants"])}
)
_SPREAD = {name: said.split() for name, said in entries(_TABLE["ranges"])}
# Nothing like it was measured.
_UNKNOWN = ("1.6", "0")


def spread(
    framework: Framework,
    generation: Generation,
    precision: Precision,
    *,
    experts: bool = False,
    hybrid: bool = False,
) -> tuple[float, int]:
    """Return the factor within which a run is to be expected, and of how many rows it comes."""
    bits = "bf16" if precision == "bf16" else "fewer"
    name = f"{framework} {generation} {bits}{' experts' * experts}"
    factor, count = _SPREAD.get(f"{framework} hybrid" if hybrid else name, _UNKNOWN)
    return float(factor), int(count)
