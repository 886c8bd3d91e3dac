"""Overrides of a Megatron-Bridge job that need others or a layout, and where they write.

Sources: Megatron-Bridge 0.6, megatron/bridge/training/config.py (SchedulerConfig and
ProfilingConfig), checkpointing.py (non-persistent checkpoints) and comm_overlap.py; Megatron core
0.19, `TransformerConfig.__post_init__`.
"""

from collections.abc import Iterator

from megatron_eks.catalog.megatron_conflicts import NEEDS_EXPERTS
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, has_errors, warning
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.environment import mounts
from megatron_eks.plan.jobs.models import check_model, model_shape
from megatron_eks.plan.jobs.options.option_checks import CHECKS, Asked
from megatron_eks.plan.jobs.stages import BY_HAND

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
    {
        *("cp_comm_type", "microbatch_group_size_per_vp_stage"),
        "num_distributed_optimizer_instances",
    }
)
_ASKED = BY_HAND | {
    *("defer_embedding_wgrad_compute", "delay_wgrad_compute", "distribute_saved_activations"),
    *("eval_global_batch_size", "eval_micro_batch_size", "fused_residual_rmsnorm"),
    *("lr_warmup_init", "moe_shared_expert_overlap", "no_rope_freq"),
    *("overlap_moe_expert_parallel_comm", "use_precision_aware_optimizer"),
}


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
