"""What Megatron-LM's own arguments say about memory and speed (core_v0.19)."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from megatron_eks.predict.layout import EVEN, Batch, Graphs, Sharding, Stages

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True)
class States:
    """What the optimizer is given, and what it keeps."""

    gradient: int = 4
    optimizer: int = 12
    """fp32 master weight and two moments, unless Megatron was told otherwise."""
    host: int = 0
    """What is in the host's memory instead."""

    @property
    def copied(self) -> int:
        """The fp32 gradient that a step makes of one in bf16 (`distrib_optimizer.py`)."""
        return 4 if (self.gradient, self.optimizer) == (2, 12) else 0


MIXED = States()
FROZEN = States(gradient=0, optimizer=0)
_OFFLOADED_BYTES = 16
# A master weight and one momentum (megatron/core/optimizer/muon.py): the matrices have no second.
_MUON_BYTES = 8


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
        share = min(1.0, max(0.0, float(_word(given, "--optimizer-offload-fraction") or 1)))
    except ValueError:  # told as an option without a number
        share = 1.0
    on_host = round(_OFFLOADED_BYTES * share)
    return States(states.gradient, round(states.optimizer * (1 - share)), on_host)


def _kept_states(arguments: Sequence[str]) -> States:
    given = options(arguments)
    reduced = "--grad-reduce-in-bf16" in given
    if "muon" in _word(given, "--optimizer"):
        return States(2 if reduced else 4, _MUON_BYTES)
    if "--use-precision-aware-optimizer" not in given:
        return States(gradient=2) if reduced else MIXED
    names = ("--exp-avg-dtype", "--exp-avg-sq-dtype")
    moments = sum(_BYTES.get(_word(given, name) or "fp32", 4) for name in names)
    gradient = 2 if reduced else _BYTES.get(_word(given, "--main-grads-dtype") or "fp32", 4)
    return States(gradient, 2 + moments)


def megatron_fsdp(arguments: Sequence[str]) -> Sharding | None:
    """Return what shards gradients, and weights, inside Megatron, if anything."""
    given = options(arguments)
    if "--use-torch-fsdp2" in given:
        return "torch"
    strategies: dict[str, Sharding] = {"optim_grads_params": "megatron", "optim_grads": "gradients"}
    own = "--use-megatron-fsdp" in given
    return strategies.get(_word(given, "--data-parallel-sharding-strategy")) if own else None


def with_arguments(batch: Batch, layers: int, arguments: Sequence[str]) -> Batch:
    """Return a batch with what Megatron-LM's own arguments say about how it is computed."""
    given = options(arguments)
    offloaded = _number(given, "--cpu-offloading-num-layers") or 0
    flex = _word(given, "--moe-token-dispatcher-type") == "flex"
    precision = batch.precision
    if _word(given, "--fp8-recipe") == "mxfp8" and precision == "fp8":
        precision = "mxfp8"
    if "--fp4-format" in given:
        precision = "nvfp4"
    ends = ("--num-layers-at-start-in-bf16", "--num-layers-at-end-in-bf16")
    plain = [_number(given, end) for end in ends if "--first-last-layers-bf16" in given]
    return replace(
        batch,
        precision=precision,
        graphs=_graphs(given),
        modules=frozenset(given.get("--recompute-modules", ())),
        offloaded=min(1.0, offloaded / layers),
        fp8_weights="--fp8-param-gather" in given,
        plain_layers=min(layers, sum(1 if count is None else count for count in plain)),
        dispatcher=_word(given, "--moe-flex-dispatcher-backend") or "deepep"
        if flex
        else "alltoall",
        expert_overlap="--overlap-moe-expert-parallel-comm" in given,
        capacity=_fraction(given, "--moe-expert-capacity-factor"),
    )


def _graphs(given: dict[str, tuple[str, ...]]) -> Graphs:
    """Return what is captured: whole steps, or modules between which the host starts kernels."""
    kind = _word(given, "--cuda-graph-impl")
    if "--enable-cuda-graph" not in given and kind in {"", "none"}:
        return "none"
    scope = given.get("--cuda-graph-scope", ()) + given.get("--cuda-graph-modules", ())
    return "full" if kind == "full_iteration" or "full_iteration" in scope else "partial"


# `E` is the embedding, `t` a layer, `m` one of multi-token prediction, `L` the loss, `|` a border;
# `x*3` and `(xy)*3` repeat (megatron/core/transformer/pipeline_parallel_layer_layout.py).
_REPEATED = re.compile(r"(?:\(([^()]*)\)|([A-Za-z|]))\*(\d+)")


def pipeline_stages(arguments: Sequence[str]) -> Stages:
    """Return what the arguments say about the layers of stages."""
    given = options(arguments)
    words = _word(given, "--pipeline-model-parallel-layout").replace(",", "")
    while found := _REPEATED.search(words):
        text = (found[1] if found[1] is not None else found[2]) * int(found[3])
        words = words[: found.start()] + text + words[found.end() :]
    stages = Stages(
        embedding="--account-for-embedding-in-pipeline-split" in given,
        loss="--account-for-loss-in-pipeline-split" in given,
        first=_number(given, "--decoder-first-pipeline-num-layers"),
        last=_number(given, "--decoder-last-pipeline-num-layers"),
        chunks=tuple(chunk.count("t") for chunk in words.split("|")) if words else (),
    )
    return EVEN if stages == EVEN else stages


def options(arguments: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return each option with the words that follow it."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = (value,) if equals else ()
        elif name:
            found[name] += (word,)
    return found


def _word(given: dict[str, tuple[str, ...]], name: str) -> str:
    return next(iter(given.get(name, ())), "")


def _fraction(given: dict[str, tuple[str, ...]], name: str) -> float | None:
    """Return a number above 0; None for what is none, as Megatron's own parser will say."""
    try:
        number = float(_word(given, name))
    except ValueError:
        return None
    return number if 0 < number < math.inf else None


def _number(given: dict[str, tuple[str, ...]], name: str) -> int | None:
    word = _word(given, name)
    return int(word) if word.isdecimal() else None
