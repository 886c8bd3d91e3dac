"""Bytes that training keeps for each parameter besides its weight in bf16."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True)
class States:
    """What the optimizer is given, and what it keeps."""

    gradient: int = 4
    optimizer: int = 12
    """fp32 master weight and two moments, unless Megatron was told otherwise."""


MIXED = States()


def megatron_states(arguments: Sequence[str]) -> States:
    """Return what Megatron-LM's own arguments ask for (`optimizer_config.py` at core_v0.19).

    The precision-aware optimizer keeps of an fp32 master weight only the 16 bits that the bf16
    weight lacks (`store_param_remainders`).
    """
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
