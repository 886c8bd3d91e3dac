"""Overrides of a Megatron-Bridge job that need others beside them, and where they write.

Sources: Megatron-Bridge 0.6, megatron/bridge/training/config.py (SchedulerConfig and
ProfilingConfig) and checkpointing.py (non-persistent checkpoints).
"""

from typing import TYPE_CHECKING

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.plan.jobs.environment_folders import mounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.config.cluster import ClusterConfig
    from megatron_eks.config.job import MegatronBridgeJob

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


def check_together(job: "MegatronBridgeJob", cluster: "ClusterConfig") -> "Iterator[Finding]":
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
    snapshot = "profiling.memory_snapshot_path"
    if job.overrides.get("profiling.record_memory_history") and not job.overrides.get(snapshot):
        mount_path = cluster.storage.lustre.mount_path
        found = "the snapshot goes to /nemo_run by default, which no pod may write to"
        path = ("overrides", "profiling.record_memory_history")
        yield Finding(Code.OVERRIDE, path, found, f"add {snapshot}: {mount_path}/NAME.pickle")


def _place(name: str, value: str, cluster: "ClusterConfig") -> "Iterator[Finding]":
    mount_path = cluster.storage.lustre.mount_path
    shared = value.startswith(f"{mount_path}/")
    writable = any(value.startswith(f"{mount}/") for mount in mounts(cluster))
    if shared or "://" in value or (writable and name != _GLOBAL):
        return
    found = f"a pod may not write to {value}: all but its mounts is read-only"
    if writable:
        found = f"{value} is not on the shared file system, so other nodes do not see it"
    yield Finding(Code.SHARED_PATH, ("overrides", name), found, f"use a path below {mount_path}/")
