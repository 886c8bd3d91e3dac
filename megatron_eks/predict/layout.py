"""How a run lies over GPUs, and what it makes of one batch."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from megatron_eks.catalog.models import ModelShape

Recompute = Literal["none", "selective", "full"]
Precision = Literal["bf16", "fp8", "mxfp8", "nvfp4"]
Sharding = Literal["torch", "megatron", "gradients"]
Graphs = Literal["none", "partial", "full"]
Software = Literal["2024", "2026"]


@dataclass(frozen=True)
class Stages:
    """What Megatron-LM is told of the layers of its stages, where they are not alike."""

    embedding: bool = False
    """Counts as a layer (`--account-for-embedding-in-pipeline-split`); so the next."""
    loss: bool = False
    first: int | None = None
    """Layers of the first stage (`--decoder-first-pipeline-num-layers`); so the next."""
    last: int | None = None
    chunks: tuple[int, ...] = ()
    """Layers of each model chunk, in the model's order (`--pipeline-model-parallel-layout`)."""

    def layers(self, layers: int, pipeline: int, stage: int) -> int:
        """Return the layers of a stage.

        Where nothing is said and stages do not divide them, embedding and loss count as a layer
        each, or the first stages have one more.
        """
        if self.chunks:
            return sum(self.chunks[stage::pipeline])
        if stage == 0 and self.first is not None:
            return self.first
        if stage == pipeline - 1 and self.last is not None:
            return self.last
        if self.first is not None or self.last is not None:
            inner = pipeline - (self.first is not None) - (self.last is not None)
            return (layers - (self.first or 0) - (self.last or 0)) // inner
        embedding, loss = self.embedding, self.loss
        if not embedding and not loss and layers % pipeline and not (layers + 2) % pipeline:
            embedding = loss = True
        counted, ends = layers + embedding + loss, (stage == 0) * embedding
        ends += (stage == pipeline - 1) * loss
        return counted // pipeline + (stage < counted % pipeline) - ends


EVEN = Stages()


@cache
def _expert_layers(model: ModelShape, stages: Stages, pipeline: int, stage: int) -> int:
    counts = [stages.layers(model.num_layers, pipeline, index) for index in range(stage + 1)]
    return model.expert_layers(sum(counts[:-1]), sum(counts))


@dataclass(frozen=True)
class Layout:
    """How a run is laid over the GPUs."""

    tensor: int
    pipeline: int
    context: int
    data: int
    virtual_pipeline: int = 1
    """Model chunks of a pipeline rank."""
    sequence_parallel: bool = True
    distributed_optimizer: bool = True
    expert: int = 1
    """GPUs that divide the experts of a layer among themselves."""
    expert_tensor: int = 1
    """GPUs that share each expert; of no meaning without experts."""
    fsdp: Sharding | None = None
    """What shards gradients and, but for `gradients`, weights as well, inside Megatron."""
    stages: Stages = EVEN

    @property
    def gpus(self) -> int:
        """GPUs of the whole run."""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def expert_data(self) -> int:
        """Replicas of each expert: experts lie over the same GPUs in a grid of their own."""
        return self.tensor * self.context * self.data // (self.expert * self.expert_tensor)

    def stage_layers(self, layers: int, stage: int) -> int:
        """Return the layers of a stage."""
        return self.stages.layers(layers, self.pipeline, stage)

    def stage_span(self, layers: int, stage: int) -> tuple[int, int]:
        """Return where a stage begins and ends, its chunks counted as one."""
        start = sum(self.stage_layers(layers, earlier) for earlier in range(stage))
        return start, start + self.stage_layers(layers, stage)

    def expert_layers(self, model: ModelShape, stage: int) -> int:
        """Return the layers of a stage that have experts."""
        return _expert_layers(model, self.stages, self.pipeline, stage)

    def microbatches_in_flight(self, stage: int, microbatches: int) -> float:
        """Return how many forward passes a stage has done before its first backward pass.

        1F1B starts one more for each later stage. Interleaving starts 2 (p - r - 1) + (v - 1) p
        chunks first, each 1/v of a microbatch (Narayanan et al. 2021, arXiv 2104.04473, section
        2.2; Megatron-LM `schedules.py`, `num_warmup_microbatches`).
        """
        later, chunks = self.pipeline - stage - 1, self.virtual_pipeline
        if chunks == 1:
            return min(microbatches, later + 1)
        started = 2 * later + (chunks - 1) * self.pipeline + 1
        return min(microbatches * chunks, started) / chunks


@dataclass(frozen=True)
class Batch:
    """One microbatch, how many of them a step has, and how it is computed."""

    micro_batch_size: int
    sequence_length: int
    microbatches: int
    recompute: Recompute
    recompute_method: Literal["uniform", "block"] | None = None
    recompute_layers: int = 1
    precision: Precision = "bf16"
    graphs: Graphs = "none"
    """What is started as CUDA graphs: nothing, some modules of a layer, all."""
    modules: frozenset[str] = frozenset()
    """What `selective` computes again, by Megatron-LM's names; none: attention's scores."""
    offloaded: float = 0.0
    """Share of the layers whose activations wait in the host's memory."""
    fp8_weights: bool = False
    """Whether weights are kept in FP8 alone."""
    transposed: bool = True
    """Whether FP8 weights are kept transposed too; products on Blackwell take either order, unless
    blocks have scales of their own (`is_non_tn_fp8_gemm_supported` in Transformer Engine)."""
    plain_layers: int = 0
    """Whose products stay in bf16, as those of the first and the last layers may."""
    plain_parts: frozenset[str] = frozenset()
    """What stays in bf16 in all layers: `attention`'s maps, `latent` ones around experts."""
    dispatcher: str = "alltoall"
    """What takes tokens to experts: `alltoall`, or a backend that sends once to each node."""
    software: Software = "2026"
    """2024: attention still had the kernels that were written for Ampere."""
    expert_overlap: bool = False
    """Whether tokens travel while another microbatch computes."""
    capacity: float | None = None
    """Of its share of tokens what an expert takes at most, and is padded to; None: all it gets."""
    lora: int = 0
    """Rank of adapters beside each linear map, which alone are trained; 0: all weights are."""
    lora_targets: Literal["all", "attention"] = "all"
    """Whose maps have adapters."""

    @property
    def flex(self) -> bool:
        """Whether a backend takes tokens to experts, and no collective of NCCL."""
        return self.dispatcher != "alltoall"

    @property
    def quantized(self) -> bool:
        """Whether products are in less than 16 bits."""
        return self.precision != "bf16"

    def rank_tokens(self, layout: Layout) -> float:
        """Return the tokens of a microbatch that one context parallel rank works on."""
        return self.micro_batch_size * self.sequence_length / layout.context
