"""What a job would change of the run whose checkpoint it goes on from.

Megatron-LM core 0.19.2, megatron/training/checkpointing.py and core/optimizer_param_scheduler.py;
of FSDP and DDP the file's schedule holds as well (megatron_eks/programs/trainer/config.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import NamedTuple

from megatron_eks.config.job import MegatronRun, Run
from megatron_eks.config.load import Json
from megatron_eks.plan.jobs.arguments import decay_iters, given, keeps_saved_schedule
from megatron_eks.plan.jobs.models import model_shape

# By these the optimizer finds its groups of parameters: param_group_identifier_keys of
# megatron/core/optimizer/optimizer.py; another rate is a KeyError, whatever the scheduler does.
_RATES = ("learning_rate", "min_learning_rate")
_SCHEDULE = (*_RATES, "lr_schedule", "warmup_iters", "weight_decay")
# What a model may change without other weights.
_NO_WEIGHTS = {"attention_dropout", "hidden_dropout", "init_method_std", "max_position_embeddings"}
_NO_WEIGHTS |= {"moe_router_topk", "norm_epsilon", "rope_scaling", "rotary_base"}
_FULLY_RESHARDABLE = "--dist-ckpt-optim-fully-reshardable"
_OPTIMIZER = "--optimizer"
_OTHER_STATE = False, "this optimizer has another state"
_GOES_ON = True, "the run goes on until there"
_EFFECTS: dict[str, tuple[bool, str]] = {
    _OPTIMIZER: _OTHER_STATE,
    "parallelism.distributed_optimizer": _OTHER_STATE,
    "checkpoint.format": (False, "Megatron reads the format that it is told to write"),
    "data.tokenizer": (True, "the number of each token must mean the same in both"),
    "training.global_batch_size": (
        True,
        "iterations are counted on; schedule and data go on after the samples so far",
    ),
    "training.train_iters": _GOES_ON,
    "training.max_steps": _GOES_ON,
}


class Change(NamedTuple):
    """One key that differs from the run before."""

    key: str
    text: str
    """What it was and is, and what becomes of it."""
    loads: bool
    """Whether the checkpoint of the run before can be loaded."""


def settings(job: Run) -> dict[str, Json]:
    """Return what decides how a run goes on, by the key of the job file."""
    shape = {f"model.{name}": value for name, value in asdict(model_shape(job.model)).items()}
    found: dict[str, Json] = {**shape, "checkpoint.format": getattr(job.checkpoint, "format", None)}
    training = job.training.model_dump(mode="json")
    found |= {f"training.{name}": training[name] for name in _SCHEDULE if name in training}
    found["training.global_batch_size"] = training.get("global_batch_size")
    found["data.tokenizer"] = job.data.tokenizer
    if not isinstance(job, MegatronRun):
        return {**found, "training.max_steps": training["max_steps"]}
    layout = job.parallelism
    options = given(job.extra_args)
    return {
        **found,
        "training.train_iters": job.training.train_iters,
        "training.decay_iters": decay_iters(job.training),
        "parallelism.tensor": layout.tensor,
        "parallelism.pipeline": layout.pipeline,
        "parallelism.distributed_optimizer": layout.distributed_optimizer,
        _OPTIMIZER: (options.get(_OPTIMIZER) or ("adam",))[0],
        _FULLY_RESHARDABLE: _FULLY_RESHARDABLE in options,
    }


def changes(before: Mapping[str, Json], job: Run) -> Iterator[Change]:
    """Yield what a job changes, and what becomes of it when the checkpoint is loaded."""
    after = settings(job)
    for key in (key for key in after if key in before and before[key] != after[key]):
        loads, effect = _effect(key, before, job)
        if effect:
            yield Change(key, f"{key}: {before[key]} -> {after[key]}: {effect}", loads)


def _effect(key: str, before: Mapping[str, Json], job: Run) -> tuple[bool, str]:
    """Say whether the checkpoint loads, and what a key does; nothing: what everybody expects."""
    block, _, name = key.rpartition(".")
    if block == "model":
        return name in _NO_WEIGHTS, "" if name in _NO_WEIGHTS else "its weights have other shapes"
    if block == "parallelism" and key not in _EFFECTS:
        return _layout(before)
    if name in _RATES and isinstance(job, MegatronRun):
        return False, (
            "the optimizer's state is found by this rate; "
            "in another directory the weights load alone, as checkpoint.pretrained"
        )
    if name in (*_SCHEDULE, "decay_iters"):
        return True, _schedule(key, before, job)
    return _EFFECTS.get(key, (True, ""))


def _layout(before: Mapping[str, Json]) -> tuple[bool, str]:
    if before.get("checkpoint.format") != "torch_dist":
        return False, "only checkpoints of torch_dist can be laid out anew"
    if before.get("parallelism.distributed_optimizer") and not before.get(_FULLY_RESHARDABLE):
        return False, f"the run before did not save with {_FULLY_RESHARDABLE} in extra_args"
    return True, "the checkpoint is laid out anew, with other random numbers"


def _schedule(key: str, before: Mapping[str, Json], job: Run) -> str:
    if isinstance(job, MegatronRun) and keeps_saved_schedule(job):
        return "the checkpoint's schedule holds, as the job asks"
    follows = key.endswith("decay_iters") and "decay_iters" not in job.training.model_fields_set
    keep = f"; training.decay_iters: {before[key]} keeps the one before" if follows else ""
    return f"the job file's schedule holds from the next iteration on{keep}"
