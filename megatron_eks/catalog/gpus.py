"""The GPUs of the instance catalogue, as frameworks see them.

Sources: sizes as EC2 reports them (DescribeInstanceTypes, through Karpenter's reference of instance
types, 2026-08); dense peaks from NVIDIA's data sheets, half of what these call "with sparsity".
What a process can allocate is the smallest total that torch's out-of-memory messages show in public
issues and repositories, read 2026-11.
"""

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

    @property
    def cuda_major(self) -> int:
        """Major compute capability: 8 Ampere and Ada, 9 Hopper, 10 and 12 Blackwell."""
        return self.compute_capability[0]

    @property
    def has_fp8(self) -> bool:
        """Whether the tensor cores have FP8 (CUDA programming guide, compute capabilities)."""
        return self.compute_capability >= _FIRST_WITH_FP8


GPUS: dict[str, Gpu] = {
    "A100_40": Gpu("A100-SXM4-40GB", 40960, 40346, (8, 0), 312.0, None),
    "A100_80": Gpu("A100-SXM4-80GB", 81920, 81050, (8, 0), 312.0, None),
    "H100": Gpu("H100 80GB HBM3", 81920, 80998, (9, 0), 989.5, 1979.0),
    "H200": Gpu("H200", 144384, 143073, (9, 0), 989.5, 1979.0),
    "B200": Gpu("B200", 183359, 182630, (10, 0), 2250.0, 4500.0),
    "B300": Gpu("B300 SXM6 AC", 275040, 274114, (10, 3), 2250.0, 4500.0),
    "A10G": Gpu("A10G", 22888, 22476, (8, 6), 70.0, None),
    "L4": Gpu("L4", 22888, 22476, (8, 9), 121.0, 242.0),
    "L40S": Gpu("L40S", 45776, 45404, (8, 9), 362.0, 733.0),
    # The server edition, whose dense peaks NVIDIA does not publish.
    "RTX_6000": Gpu("RTX PRO 6000", 98304, 97239, (12, 0), None, None),
}
