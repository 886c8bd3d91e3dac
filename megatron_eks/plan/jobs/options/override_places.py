"""Overrides of a Megatron-Bridge job that need others or a layout, and where they write.

Sources: Megatron-Bridge 0.6, megatron/bridge/training/config.py (SchedulerConfig and
ProfilingConfig), checkpointing.py (non-persistent checkpoints) and comm_overlap.py; Megatron core
0.19, `TransformerConfig.__post_init__`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from megatron_eks.catalog.bridge_fields import FIELDS
from megatron_eks.catalog.megatron_conflicts import NEEDS_EXPERTS
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, has_errors, warning
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.environment import mounts
from megatron_eks.plan.jobs.models import check_model, model_shape
from megatron_eks.plan.jobs.options.option_checks import Option, by_plan
from megatron_eks.plan.jobs.options.settings import OF_NUMBERS
from megatron_eks.plan.jobs.options.values import Asked
from megatron_eks.plan.jobs.stages import check_stages

_EXPERTS = "overlap_moe_expert_parallel_comm"
_KIND = "checkpoint.non_persistent_ckpt_type"
_GLOBAL = "checkpoint.non_persistent_global_ckpt_dir"
_PLACES = frozenset(
    {
        *(_GLOBAL, "checkpoint.non_persistent_local_ckpt_dir", "dataset.object_storage_cache_path"),
        *("dist.flight_recorder_dump_path", "logger.moe_routing_trace_path"),
        *("logger.tensorboard_dir", "logger.wandb_save_dir", "model.config_logger_dir"),
        *(
            "optimizer.config_logger_dir",
            "profiling.memory_snapshot_path",
            "tensor_inspect.log_dir",
        ),
    }
)


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
        if name in _PLACES and isinstance(value, str) and value:
            yield from _place(name, value, cluster)
        if problem := _of_overlap(job, name, value):
            found, remedy, level = problem
            yield Finding(Code.OVERRIDE, path, found, remedy, level)
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


def _of_overlap(job: MegatronBridgeJob, name: str, value: object) -> tuple[str, str, Level] | None:
    """Say what keeps communication from hiding behind computation, by either of two blocks."""
    block, _, setting = name.partition(".")
    if block not in {"comm_overlap", "model"} or value is not True:
        return None
    return next((verdict for applies, verdict in _overlaps(job, setting) if applies), None)


def _overlaps(
    job: MegatronBridgeJob, setting: str
) -> Iterator[tuple[bool, tuple[str, str, Level]]]:
    parallelism, tensors, experts = job.parallelism, "tp_comm_overlap", setting == _EXPERTS
    overlapped = any(_is_on(job, f"{each}.{_EXPERTS}") for each in ("comm_overlap", "model"))
    yield (
        setting == tensors and parallelism.tensor == 1,
        ("no tensor is divided, and Bridge switches it off", "remove it", Level.WARNING),
    )
    yield (
        setting == tensors and not parallelism.sequence_parallel,
        (
            "without sequence parallelism Bridge switches it off",
            "set parallelism.sequence_parallel: true, or remove it",
            Level.WARNING,
        ),
    )
    yield (
        setting == "delay_wgrad_compute" and not overlapped,
        (
            f"it takes comm_overlap.{_EXPERTS} beside it",
            f"add comm_overlap.{_EXPERTS}: true, or remove it",
            Level.ERROR,
        ),
    )
    yield (
        experts and parallelism.expert == 1,
        ("no experts are divided", "set parallelism.expert, or remove it", Level.ERROR),
    )
    yield (
        experts and parallelism.pipeline > 1 and (parallelism.virtual_pipeline or 1) == 1,
        (
            "pipeline stages need interleaving for it",
            "set parallelism.virtual_pipeline, or remove it",
            Level.ERROR,
        ),
    )
    yield (
        experts and job.training.recompute == "full",
        (
            "it does not go with full recomputing",
            "set training.recompute: selective",
            Level.ERROR,
        ),
    )
    yield (
        experts and _is_on(job, "model.moe_shared_expert_overlap"),
        (
            "model.moe_shared_expert_overlap hides the same time",
            "keep one of the two",
            Level.ERROR,
        ),
    )


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


# These are Megatron-LM's options by Bridge's names, and the checks are those of the options. What a
# recipe may set itself (a score function, another optimizer) is not missing where an override needs
# it: only what follows from the job file is compared. Sources: Megatron core 0.19, as in
# `settings.py`, and Megatron-Bridge 0.6, megatron/bridge/training/config.py (validate).
_BLOCKS = ("model", "ddp", "optimizer", "scheduler", "validation")
# By another name than Megatron-LM's setting.
_RENAMED = {
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}
_BACK = {setting: name for name, setting in _RENAMED.items()}
# Judged by what the job file says alone, whatever else a recipe has.
_NUMBERS = frozenset(
    {
        *("cp_comm_type", "eval_global_batch_size", "eval_micro_batch_size", "lr_warmup_init"),
        *("microbatch_group_size_per_vp_stage", "no_rope_freq"),
        "num_distributed_optimizer_instances",
    }
)
_LAYOUT = frozenset(
    {
        *("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"),
        *("defer_embedding_wgrad_compute", "distribute_saved_activations"),
        *("fused_residual_rmsnorm", "use_precision_aware_optimizer"),
    }
)
_OPTION = re.compile(r"--[a-z0-9][a-z0-9_-]*")


def check_options(job: MegatronBridgeJob, copies: int | None) -> Iterator[Finding]:
    """Yield overrides that do not go with the job file; `copies` of the model learn."""
    if has_errors(check_model(job.model)):
        return
    model, given = model_shape(job.model), dict(_given(job))
    names = list(job.overrides)
    for place, (name, setting, _) in given.items():
        if setting.startswith(NEEDS_EXPERTS) and model.num_experts is None:
            found, remedy = "the model has no experts", "remove it, or name a model with experts"
            yield warning(Code.NO_MEANING, ("overrides", name), found, remedy)
            continue
        asked = Asked(job, model, _values(given), copies)
        problem = by_plan(job, model, setting) if setting in _LAYOUT else None
        if problem is None and setting in _NUMBERS:
            problem = OF_NUMBERS[setting](asked)
        if problem is not None:
            found, remedy = (_translated(each) for each in problem)
            yield Finding(Code.OVERRIDE, ("overrides", names[place]), found, remedy)
    for finding in check_stages(job, model, given):
        name = names[int(finding.path[-1])]
        found = _translated(finding.found.partition(": ")[2])
        yield replace(
            finding,
            code=Code.OVERRIDE,
            path=("overrides", name),
            found=found,
            remedy=_translated(finding.remedy),
        )


def _given(job: MegatronBridgeJob) -> Iterator[tuple[int, Option]]:
    """Yield overrides as options, by their places: a switch that is off is not given."""
    for place, (name, value) in enumerate(job.overrides.items()):
        block, _, field = name.partition(".")
        if block in _BLOCKS and value is not False:
            words = () if value is True else (str(value),)
            yield place, (name, _RENAMED.get(field, field), words)


def _values(given: Mapping[int, Option]) -> dict[str, tuple[str, ...]]:
    return {setting: tuple(words) for _, setting, words in given.values()}


def _translated(text: str) -> str:
    """Name Bridge's values in place of Megatron-LM's options."""
    return _OPTION.sub(lambda found: _dotted(found[0]), text)


def _dotted(option: str) -> str:
    setting = OPTIONS.get(option, "")
    field = _BACK.get(setting, setting)
    block = next((each for each in _BLOCKS if field in FIELDS[each]), None)
    return f"{block}.{field}" if block else option
