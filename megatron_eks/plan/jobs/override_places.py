"""Overrides of a Megatron-Bridge job that need others beside them, and where they write.

Sources: Megatron-Bridge 0.6, megatron/bridge/training/config.py (SchedulerConfig and
ProfilingConfig), checkpointing.py (non-persistent checkpoints) and comm_overlap.py; Megatron core
0.19, `TransformerConfig.__post_init__`.
"""

from collections.abc import Iterator

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.environment_folders import mounts

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
