"""Whether a recipe of Megatron-Bridge and its overrides agree with the job file and each other."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.catalog.bridge_fields import FIELDS
from megatron_eks.catalog.bridge_recipes import RECIPES
from megatron_eks.catalog.job_keys import OPEN, PLANNED
from megatron_eks.catalog.megatron_conflicts import NEEDS_EXPERTS, TABLE, WRITTEN_BY_BRIDGE
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, has_errors, warning
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.environment import mounts
from megatron_eks.plan.jobs.models import BY_HAND, check_model, model_shape, preset_name
from megatron_eks.plan.jobs.options.option_checks import CHECKS, Asked
from megatron_eks.plan.jobs.options.override_checks import (
    check_effect,
    check_model_override,
    check_override,
    level_in,
)

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
            key = OPEN.get(name)
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


# Overrides that need others or a layout, and where they write. Sources: SchedulerConfig and
# ProfilingConfig of Megatron-Bridge 0.6, its checkpointing.py (non-persistent checkpoints) and
# comm_overlap.py.
_KIND = "checkpoint.non_persistent_ckpt_type"
_GLOBAL = "checkpoint.non_persistent_global_ckpt_dir"


def check_together(job: MegatronBridgeJob, cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield overrides that end a run because of what stands beside them, or because of a place."""
    for name, value in job.overrides.items():
        path = ("overrides", name)
        if name == "checkpoint.non_persistent_save_interval" and not job.overrides.get(_KIND):
            found = "the first of these checkpoints has no kind, and ends the run"
            yield Finding(Code.OVERRIDE, path, found, f"add {_KIND}: global")
        if name == "scheduler.lr_warmup_fraction" and job.training.warmup_iters:
            found = f"training.warmup_iters is {job.training.warmup_iters}, and Bridge takes one"
            yield Finding(Code.OVERRIDE, path, found, "remove one of the two")
        if name in WRITTEN_BY_BRIDGE and isinstance(value, str) and value:
            yield from _place(name, value, cluster)
        overlaps = name in {"comm_overlap.tp_comm_overlap", "model.tp_comm_overlap"}
        if overlaps and value is True and (problem := _tensor_overlap(job)):
            yield warning(Code.OVERRIDE, path, *problem)
    if _is_on(job, "profiling.use_nsys_profiler") and _is_on(job, "profiling.use_pytorch_profiler"):
        found = "one profiler runs, and profiling.use_nsys_profiler asks for another"
        path = ("overrides", "profiling.use_pytorch_profiler")
        yield Finding(Code.OVERRIDE, path, found, "keep one of the two")
    snapshot = "profiling.memory_snapshot_path"
    if job.overrides.get("profiling.record_memory_history") and not job.overrides.get(snapshot):
        mount_path = cluster.storage.lustre.mount_path
        found = "the snapshot goes to /nemo_run by default, which no pod may write to"
        path = ("overrides", "profiling.record_memory_history")
        yield Finding(Code.OVERRIDE, path, found, f"add {snapshot}: {mount_path}/NAME.pickle")


def _tensor_overlap(job: MegatronBridgeJob) -> tuple[str, str] | None:
    """Say what keeps tensors' communication from hiding behind computation."""
    if job.parallelism.tensor == 1:
        return "no tensor is divided, and Bridge switches it off", "remove it"
    if not job.parallelism.sequence_parallel:
        remedy = "set parallelism.sequence_parallel: true, or remove it"
        return "without sequence parallelism Bridge switches it off", remedy
    return None


def _is_on(job: MegatronBridgeJob, name: str) -> bool:
    return job.overrides.get(name) is True


def _place(name: str, value: str, cluster: ClusterConfig) -> Iterator[Finding]:
    mount_path = cluster.storage.lustre.mount_path
    shared = value.startswith(f"{mount_path}/")
    writable = any(value.startswith(f"{mount}/") for mount in mounts(cluster))
    if shared or "://" in value or (writable and name != _GLOBAL):
        return
    found = f"a pod may not write to {value}: all but its mounts is read-only"
    if writable:
        found = f"{value} is not on the shared file system, so other nodes do not see it"
    yield Finding(Code.SHARED_PATH, ("overrides", name), found, f"use a path below {mount_path}/")


# These are Megatron-LM's options by Bridge's names. What a recipe may set itself (a score function,
# another optimizer) is not missing where an override needs it: only what follows from the job file
# is compared. Sources: Megatron core 0.19, and Megatron-Bridge 0.6,
# megatron/bridge/training/config.py (validate).
_BLOCKS = ("model", "ddp", "optimizer", "scheduler", "validation", "comm_overlap")
# By another name than Megatron-LM's setting.
_RENAMED = {
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}
# Judged by what the job file says alone, whatever else a recipe has: here, or by Megatron.
_NUMBERS = frozenset(
    {*("cp_comm_type", "microbatch_group_size_per_vp_stage"), "num_distributed_optimizer_instances"}
)
_ASKED = BY_HAND | {*TABLE["asked_of_bridge"].split()}


def as_options(job: MegatronBridgeJob) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield overrides that Megatron-LM can be asked about, with the words that say the same."""
    options = {setting: option for option, setting in OPTIONS.items()}
    for name, setting, words in _given(job):
        if setting in _ASKED:
            yield name, (options[setting], *words)


def check_options(job: MegatronBridgeJob, copies: int | None) -> Iterator[Finding]:
    """Yield overrides that do not go with the job file; `copies` of the model learn."""
    if has_errors(check_model(job.model)):
        return
    given = list(_given(job))
    values = {setting: words for _, setting, words in given}
    asked = Asked(job, model_shape(job.model), values, copies)
    for name, setting, _ in given:
        path = ("overrides", name)
        if setting.startswith(NEEDS_EXPERTS) and asked.model.num_experts is None:
            found, remedy = "the model has no experts", "remove it, or name a model with experts"
            yield warning(Code.NO_MEANING, path, found, remedy)
        elif setting in _NUMBERS and (problem := CHECKS[setting](asked)):
            yield Finding(Code.OVERRIDE, path, *problem)


def _given(job: MegatronBridgeJob) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield overrides as options: a switch that is off is not given."""
    for name, value in job.overrides.items():
        block, _, field = name.partition(".")
        if block in _BLOCKS and value is not False:
            yield name, _RENAMED.get(field, field), () if value is True else (str(value),)
