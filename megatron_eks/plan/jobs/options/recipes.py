"""Whether a recipe of Megatron-Bridge and its overrides agree with the rest of the job file."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.bridge_fields import FIELDS
from megatron_eks.catalog.bridge_recipes import RECIPES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.models import preset_name
from megatron_eks.plan.jobs.options.override_checks import (
    check_effect,
    check_model_override,
    check_override,
    level_in,
)

PLANNED: dict[str, str] = {
    "model.tensor_model_parallel_size": "parallelism.tensor",
    "model.pipeline_model_parallel_size": "parallelism.pipeline",
    "model.virtual_pipeline_model_parallel_size": "parallelism.virtual_pipeline",
    "model.context_parallel_size": "parallelism.context",
    "model.expert_model_parallel_size": "parallelism.expert",
    "model.expert_tensor_parallel_size": "parallelism.expert_tensor",
    "model.sequence_parallel": "parallelism.sequence_parallel",
    "ddp.use_distributed_optimizer": "parallelism.distributed_optimizer",
    "optimizer.use_distributed_optimizer": "parallelism.distributed_optimizer",
    "train.micro_batch_size": "training.micro_batch_size",
    "train.global_batch_size": "training.global_batch_size",
    "train.train_iters": "training.train_iters",
    "model.seq_length": "training.sequence_length",
    "dataset.seq_length": "training.sequence_length",
    "dataset.sequence_length": "training.sequence_length",
    "mixed_precision": "training.precision",
    "model.recompute_granularity": "training.recompute",
    "model.recompute_method": "training.recompute_method",
    "model.recompute_num_layers": "training.recompute_layers",
    "checkpoint.save": "checkpoint.directory",
    "checkpoint.load": "checkpoint.directory",
    "checkpoint.pretrained_checkpoint": "checkpoint.pretrained",
    "checkpoint.save_interval": "checkpoint.interval",
    "checkpoint.most_recent_k": "checkpoint.keep_last",
    "checkpoint.ckpt_format": "checkpoint.format",
    "checkpoint.async_save": "checkpoint.async_save",
    "dist.distributed_timeout_minutes": "runtime.distributed_timeout_minutes",
    "dataset.blend": "data.prefix or data.blend",
    "dataset.split": "data.split",
}
"""What layout, memory, time and restarts are planned with, and the key of the job file for it.

Names: `megatron_eks/programs/start/bridge_config.py`.
"""

_ALSO_SAID: dict[str, str] = {
    "optimizer.lr": "training.learning_rate",
    "optimizer.min_lr": "training.min_learning_rate",
    "scheduler.lr_decay_style": "training.lr_schedule",
    "scheduler.lr_warmup_iters": "training.warmup_iters",
    "scheduler.lr_decay_iters": "training.decay_iters",
    "optimizer.weight_decay": "training.weight_decay",
    "optimizer.adam_beta1": "training.adam_beta1",
    "optimizer.adam_beta2": "training.adam_beta2",
    "optimizer.clip_grad": "training.clip_grad",
    "rng.seed": "training.seed",
    "validation.eval_interval": "training.eval_interval",
    "validation.eval_iters": "training.eval_iters",
    "logger.log_interval": "training.log_interval",
    "dataset.num_workers": "data.num_workers",
    "dataset.path_to_cache": "data.cache_dir",
    "tokenizer.tokenizer_model": "data.tokenizer",
}
"""What may be overridden where the job file leaves it open, and contradicts it where it does not.
"""

# `model.cross_entropy_fusion_impl: te` is what Megatron-LM's validate_args calls unstable.
_UNSTABLE = ("model.cross_entropy_fusion_impl", "te")

# Their configuration of data, GPTSFTDatasetConfig, has no place for `data.prefix`.
_TUNING = re.compile(r"_(sft|peft|finetune)_")
# Recipes that differ by a slip.
_CLOSE = 0.85


def _of_preset(preset: str | None) -> list[str]:
    """Return the recipes that pre-train a model."""
    known = [each for each in RECIPES if preset and _plain(each).startswith(_plain(preset))]
    return sorted(each for each in known if "_pretrain_" in each)


def check_recipe(job: MegatronBridgeJob) -> Iterator[Finding]:
    """Yield a recipe of another model, and overrides that the plan does not know of."""
    preset = preset_name(job.model)
    fitting = _of_preset(preset)
    if job.recipe not in RECIPES:
        close = get_close_matches(job.recipe, RECIPES, 1, _CLOSE)
        found = f"Megatron-Bridge 0.5 to 0.7 has no recipe {job.recipe}"
        remedy = f"of {preset}: {', '.join(fitting)}" if fitting else "see megatron.bridge.recipes"
        remedy = f"did you mean {close[0]}?" if close else remedy
        yield Finding(Code.RECIPE, ("recipe",), found, remedy, level_in(job.image))
    elif preset and not _plain(job.recipe).startswith(_plain(preset)):
        # No error: a config.json beside the tokenizer takes the place of the recipe's model, and
        # only on the node is it seen (megatron_eks/programs/train_bridge.py, configuration_from).
        found = f"{job.recipe} is no recipe of {preset} by its name"
        name = f"write {min(fitting, key=len)}" if fitting else "name the recipe of this model"
        remedy = f"{name}; the program compares their models before it trains"
        yield warning(Code.RECIPE, ("recipe",), found, remedy)
    if _TUNING.search(job.recipe):
        found = f"{job.recipe} tunes on questions and answers, and data are documents to train on"
        remedy = "name a recipe of pretraining; checkpoint.pretrained continues from base weights"
        yield Finding(Code.RECIPE, ("recipe",), found, remedy)
    for name, value in job.overrides.items():
        path: Path = ("overrides", name)
        if name in PLANNED:
            found = f"{name} follows from the job file"
            yield Finding(Code.OVERRIDE, path, found, f"remove it, and set {PLANNED[name]}")
        elif "." not in name.strip("."):
            found = f"{name!r} names no value of a configuration"
            yield Finding(Code.OVERRIDE, path, found, _with_block(name))
        elif (name, value) == _UNSTABLE:
            found = "Megatron refuses it as unstable"
            yield Finding(Code.OVERRIDE, path, found, "use native")
        else:
            wrong = (
                list(check_override(job.image, name, value))
                or list(check_effect(job, name, value))
                or list(check_model_override(job, name, value))
            )
            yield from wrong
            key = _ALSO_SAID.get(name)
            if key and not wrong and _said(job, key, value):
                found = f"{value} would win over {key}, which says something else"
                yield Finding(Code.OVERRIDE, path, found, f"remove it, and set {key}")


def _said(job: MegatronBridgeJob, key: str, value: object) -> bool:
    """Tell whether the job file itself says another value of a key."""
    block, _, name = key.partition(".")
    part = getattr(job, block)
    return name in part.model_fields_set and getattr(part, name) != value


def _with_block(name: str) -> str:
    """Say in which blocks there is a value of a name that stands alone."""
    blocks = [block for block, fields in FIELDS.items() if name.strip(".") in fields]
    whole = [f"{block}.{name.strip('.')}" for block in blocks]
    return f"write {' or '.join(whole)}" if whole else "write BLOCK.NAME, such as ddp.NAME"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
