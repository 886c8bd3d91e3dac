"""The file of `meks predict`: a run on hardware that the catalogue does not have."""

from typing import Literal

from pydantic import Field

from megatron_eks.config.architecture import AnyModel, Positive
from megatron_eks.config.forms import Model
from megatron_eks.config.training import MegatronTraining, Parallelism


class GpuFacts(Model):
    """What a data sheet says of one GPU, and what joins it to others."""

    name: str
    """Looked up for the memory's bandwidth; an unknown name gets what is usual for its peak."""
    memory_gib: float = Field(gt=0)
    tflops_bf16: float = Field(gt=0)
    """Dense."""
    tflops_fp8: float | None = Field(default=None, gt=0)
    """Dense; none where the GPU has no FP8."""
    memory_gb_s: float | None = Field(default=None, gt=0)
    """Bandwidth of the GPU's memory. Default: by its name, or what is usual for its peak."""
    nvlink_gb_s: float = Field(default=0.0, ge=0)
    """Both directions together; 0: PCIe."""
    network_gb_s_per_gpu: float = Field(gt=0)
    """One direction, in gigabytes."""
    efa: bool = False
    """Whether the network is EFA, over which NCCL's all-to-all is slower than the wire."""
    power_share: float = Field(default=1.0, gt=0, le=1)
    """Of its full power, what a limit leaves the GPU: 0.71 is 500 of 700 W."""


class PredictedTraining(MegatronTraining):
    """A job file's block of either framework; only what decides memory and speed counts."""

    global_batch_size: Positive = 1
    """Not given: four microbatches for each pipeline stage."""
    train_iters: Positive = 1
    learning_rate: float = Field(default=1e-4, gt=0)
    train_batch_size: Positive | None = None
    """FSDP's name for `micro_batch_size`."""
    activation_checkpointing: bool | None = None
    """FSDP's name for `recompute: full`, or none."""
    sharding: Literal["full", "hybrid"] = "full"
    loss: Literal["whole", "compiled", "pieces"] = "compiled"
    """FSDP: how cross entropy is computed. compiled: as torchtitan does since 2025."""
    lora_rank: Positive | None = None
    """Adapters of this rank beside each linear map are trained, and the model is frozen."""
    lora_targets: Literal["all", "attention"] = "all"
    """Whose maps have adapters."""


class PredictionFile(Model):
    """A model, its layout and batch, and the GPUs."""

    gpu: GpuFacts
    gpus: Positive
    gpus_per_node: Positive = 8
    framework: Literal["megatron", "fsdp"] = "megatron"
    model: AnyModel
    parallelism: Parallelism = Parallelism()
    training: PredictedTraining = PredictedTraining()
    software: Literal["2024", "2026"] = "2026"
    """What runs: 2024 is Megatron before attention had kernels for Hopper."""
    extra_args: tuple[str, ...] = ()
    """Megatron-LM's own, of which those count that decide memory or speed: the precision-aware
    optimizer and its types, gradients in bf16, FSDP, CUDA graphs."""
