"""What a job of Megatron-LM or Megatron-Bridge can get wrong."""

from typing import TYPE_CHECKING

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.errors import Code, Finding, Level, has_errors
from megatron_eks.plan.hardware_checks import check_tensor_parallelism
from megatron_eks.plan.jobs.argument_checks import check_extra_arguments
from megatron_eks.plan.jobs.arguments import decay_iters
from megatron_eks.plan.jobs.checks import check_gpus, check_runtime, gpu_pool, outside
from megatron_eks.plan.jobs.layout import model_shape
from megatron_eks.plan.jobs.layout_checks import check_layout
from megatron_eks.plan.jobs.memory_checks import check_memory
from megatron_eks.plan.jobs.model_checks import check_model, check_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.config.cluster import ClusterConfig, GpuPool
    from megatron_eks.config.errors import Path
    from megatron_eks.config.job import MegatronBridgeJob, MegatronJob, MegatronRun

_SHARES = 3


def check(job: "MegatronJob", cluster: "ClusterConfig") -> "Iterator[Finding]":
    """Yield everything wrong with a job of Megatron-LM."""
    yield from _check(job, cluster)
    if job.extra_args and not has_errors(check_model(job.model)):
        yield from check_extra_arguments(job)


def check_bridge(job: "MegatronBridgeJob", cluster: "ClusterConfig") -> "Iterator[Finding]":
    """Yield everything wrong with a job of Megatron-Bridge."""
    yield from _check(job, cluster)
    if job.extra_args:
        found = "a recipe takes no arguments of Megatron-LM"
        yield Finding(Code.NO_MEANING, ("extra_args",), found, "write them as overrides")


def _check(job: "MegatronRun", cluster: "ClusterConfig") -> "Iterator[Finding]":
    yield from check_runtime(job, cluster)
    yield from check_gpus(job, cluster)
    if job.image == "fsdp":
        found = "this image has no Megatron-LM"
        yield Finding(Code.UNKNOWN_IMAGE, ("image",), found, "use megatron")
    model_findings = list(check_model(job.model))
    yield from model_findings
    yield from check_start(job)
    yield from _training(job)
    yield from _data(job)
    places: list[tuple[Path, str | None]] = [
        *_prefixes(job),
        (("data", "tokenizer"), job.data.tokenizer),
        (("data", "cache_dir"), job.data.cache_dir),
        (("checkpoint", "directory"), job.checkpoint.directory),
        (("checkpoint", "pretrained"), job.checkpoint.pretrained),
    ]
    yield from outside(places, cluster.storage.lustre.mount_path)
    pool = gpu_pool(job, cluster)
    if pool is not None and not has_errors(model_findings):
        yield from _placement(job, pool, cluster)


def _placement(
    job: "MegatronRun", pool: "GpuPool", cluster: "ClusterConfig"
) -> "Iterator[Finding]":
    """Check what depends on model and GPU together."""
    instance = INSTANCES[pool.instance_type]
    yield from check_tensor_parallelism(instance, job.parallelism.tensor)
    model = model_shape(job.model)
    layout_findings = list(check_layout(job, model, instance))
    yield from layout_findings
    if not has_errors(layout_findings):
        yield from check_memory(job, model, instance, cluster)
    if job.training.precision == "fp8" and not instance.gpu.has_fp8:
        path: Path = ("training", "precision")
        yield Finding(Code.PRECISION, path, f"{instance.gpu.name} has no FP8", "use bf16")
    if job.training.sequence_length > model.max_position_embeddings:
        most = model.max_position_embeddings
        found = f"{job.training.sequence_length} positions, and the model has {most}"
        remedy = "shorten the sequence, or raise model.max_position_embeddings"
        yield Finding(Code.LAYOUT_SEQUENCE, ("training", "sequence_length"), found, remedy)


def _training(job: "MegatronRun") -> "Iterator[Finding]":
    training = job.training
    if training.min_learning_rate > training.learning_rate:
        found = f"{training.min_learning_rate} is above learning_rate {training.learning_rate}"
        path: Path = ("training", "min_learning_rate")
        yield Finding(Code.SCHEDULE, path, found, "use a value between 0 and learning_rate")
    decay = decay_iters(training)
    if training.lr_schedule == "WSD":
        left = training.train_iters - decay
        found = f"{training.warmup_iters} warm-up iterations, and the last {decay} are the decay"
    else:
        left = decay
        found = f"{training.warmup_iters} warm-up iterations, and the rate decays until {decay}"
    if training.warmup_iters >= left:
        remedy = f"use fewer than {left}" if left > 0 else "shorten training.decay_iters"
        yield Finding(Code.SCHEDULE, ("training", "warmup_iters"), found, remedy)
    if job.checkpoint.interval > training.train_iters:
        found = f"the run ends after {training.train_iters} iterations, before the first checkpoint"
        remedy = f"use at most {training.train_iters}"
        yield Finding(Code.SCHEDULE, ("checkpoint", "interval"), found, remedy, Level.WARNING)
    if training.recompute != "full":
        for name in ("recompute_method", "recompute_layers"):
            if getattr(training, name) is not None:
                found = f"{name} has a meaning with recompute: full only"
                yield Finding(
                    Code.RECOMPUTE, ("training", name), found, "remove it, or set recompute: full"
                )
    if job.checkpoint.format == "torch" and job.checkpoint.async_save:
        found = "Megatron saves asynchronously in the torch_dist format only"
        yield Finding(
            Code.SCHEDULE, ("checkpoint", "async_save"), found, "set it to false, or use torch_dist"
        )


def _data(job: "MegatronRun") -> "Iterator[Finding]":
    data = job.data
    if (data.prefix is None) == (data.blend is None):
        found = "neither prefix nor blend" if data.prefix is None else "both prefix and blend"
        yield Finding(Code.DATA_SOURCE, ("data",), found, "give one of them")
    for path, prefix in _prefixes(job):
        if prefix.endswith((".bin", ".idx")):
            found = f"{prefix!r} is a file, not a prefix"
            yield Finding(Code.DATA_SOURCE, path, found, f"write {prefix[:-4]}")
    if len(data.split) != _SHARES or sum(data.split) <= 0:
        found = f"{len(data.split)} shares" if len(data.split) != _SHARES else "no share is above 0"
        yield Finding(
            Code.DATA_SPLIT, ("data", "split"), found, "give three: training, validation, test"
        )
    elif data.split[0] <= 0:
        yield Finding(
            Code.DATA_SPLIT, ("data", "split"), "nothing is left for training", "use [98, 2, 0]"
        )
    elif data.split[1] <= 0 and job.training.eval_iters:
        found = f"eval_iters is {job.training.eval_iters}, and no data is left for validation"
        remedy = "give the second share a value, or set training.eval_iters: 0"
        yield Finding(Code.DATA_SPLIT, ("data", "split"), found, remedy)


def _prefixes(job: "MegatronRun") -> "Iterator[tuple[Path, str]]":
    if job.data.prefix is not None:
        yield ("data", "prefix"), job.data.prefix
    for index, blend in enumerate(job.data.blend or ()):
        yield ("data", "blend", index, "prefix"), blend.prefix
