"""How a run lies over GPUs, what it makes of one batch, and what it keeps of a parameter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Recompute = Literal["none", "selective", "full"]


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
    fsdp: Literal["torch", "megatron"] | None = None
    """What shards weights and gradients as well, inside Megatron."""

    @property
    def gpus(self) -> int:
        """GPUs of the whole run."""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def expert_data(self) -> int:
        """Replicas of each expert: experts lie over the same GPUs in a grid of their own."""
        return self.tensor * self.context * self.data // (self.expert * self.expert_tensor)

    def stage_layers(self, layers: int, stage: int) -> int:
        """Return the layers of a stage.

        Where stages do not divide them, embedding and loss count as a layer each (Megatron-LM's
        `--account-for-embedding-in-pipeline-split`), or the first stages have one more.
        """
        ends = (stage == 0) + (stage == self.pipeline - 1)
        if layers % self.pipeline and not (layers + 2) % self.pipeline:
            return (layers + 2) // self.pipeline - ends
        return layers // self.pipeline + (stage < layers % self.pipeline)

    def stage_span(self, layers: int, stage: int) -> tuple[int, int]:
        """Return where a stage begins and ends, its chunks counted as one."""
        start = sum(self.stage_layers(layers, earlier) for earlier in range(stage))
        return start, start + self.stage_layers(layers, stage)

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
    """One microbatch, how many of them a step has, and what is recomputed."""

    micro_batch_size: int
    sequence_length: int
    microbatches: int
    recompute: Recompute
    recompute_method: Literal["uniform", "block"] | None = None
    recompute_layers: int = 1
    fp8: bool = False
    graphs: bool = False
    """Whether kernels are started as CUDA graphs, not one by one."""

    def rank_tokens(self, layout: Layout) -> float:
        """Return the tokens of a microbatch that one context parallel rank works on."""
        return self.micro_batch_size * self.sequence_length / layout.context


_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True)
class States:
    """What the optimizer is given, and what it keeps."""

    gradient: int = 4
    optimizer: int = 12
    """fp32 master weight and two moments, unless Megatron was told otherwise."""
    host: int = 0
    """What is in the host's memory instead."""


MIXED = States()
_OFFLOADED_BYTES = 16


def megatron_states(arguments: Sequence[str]) -> States:
    """Return what Megatron-LM's own arguments ask for (`optimizer_config.py` at core_v0.19).

    The precision-aware optimizer keeps of an fp32 master weight only the 16 bits that the bf16
    weight lacks (`store_param_remainders`).
    """
    states, given = _kept_states(arguments), options(arguments)
    if "--optimizer-cpu-offload" not in given:
        return states
    # HybridDeviceOptimizer: master weight, moments and gradient of this share are on the host.
    try:
        share = min(1.0, max(0.0, float(given.get("--optimizer-offload-fraction") or 1)))
    except ValueError:  # told as an option without a number
        share = 1.0
    on_host = round(_OFFLOADED_BYTES * share)
    return States(states.gradient, round(states.optimizer * (1 - share)), on_host)


def _kept_states(arguments: Sequence[str]) -> States:
    given = options(arguments)
    reduced = "--grad-reduce-in-bf16" in given
    if "--use-precision-aware-optimizer" not in given:
        return States(gradient=2) if reduced else MIXED
    moments = sum(
        _BYTES[given.get(name) or "fp32"] for name in ("--exp-avg-dtype", "--exp-avg-sq-dtype")
    )
    gradient = 2 if reduced else _BYTES[given.get("--main-grads-dtype") or "fp32"]
    return States(gradient, 2 + moments)


def megatron_fsdp(arguments: Sequence[str]) -> Literal["torch", "megatron"] | None:
    """Return what shards weights and gradients inside Megatron, if anything."""
    given = options(arguments)
    if "--use-torch-fsdp2" in given:
        return "torch"
    strategy = given.get("--data-parallel-sharding-strategy", "no_shard")
    sharded = "--use-megatron-fsdp" in given and strategy == "optim_grads_params"
    return "megatron" if sharded else None


def uses_graphs(arguments: Sequence[str]) -> bool:
    """Tell whether kernels are started as CUDA graphs."""
    given = options(arguments)
    return "--enable-cuda-graph" in given or given.get("--cuda-graph-impl", "none") != "none"


def options(arguments: Sequence[str]) -> dict[str, str]:
    """Return each option with the word that follows it, empty for a flag."""
    found: dict[str, str] = {}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name, _, found[name] = word.partition("=")
        elif name and not found[name]:
            found[name] = word
    return found
