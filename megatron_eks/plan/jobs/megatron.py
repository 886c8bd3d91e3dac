"""Plans and checks of `kind: megatron` and `kind: megatron_bridge`."""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig, GpuPool
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, has_errors, warning
from megatron_eks.config.job import MegatronBridgeJob, MegatronJob, MegatronRun
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs import environment, tracking
from megatron_eks.plan.jobs.arguments import megatron_arguments, options
from megatron_eks.plan.jobs.checkpoints import check_checkpoint_paths, check_saving
from megatron_eks.plan.jobs.corpora import check_amount
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.layout import check_layout
from megatron_eks.plan.jobs.memory import check_expert_placement, check_memory
from megatron_eks.plan.jobs.models import (
    check_model,
    check_positions,
    check_start,
    check_values,
    model_shape,
)
from megatron_eks.plan.jobs.options.argument_checks import check_extra_arguments
from megatron_eks.plan.jobs.options.recipes import check_options, check_recipe, check_together
from megatron_eks.plan.jobs.paths import check_data_paths, data_prefixes, outside
from megatron_eks.plan.jobs.pods import (
    Images,
    Program,
    config_file,
    guard_args,
    log_directory,
    plan_training,
    ranks,
)
from megatron_eks.plan.jobs.precision import check_precision
from megatron_eks.plan.jobs.resources import gpu_pool, gpus_per_node
from megatron_eks.plan.jobs.runtime import check_gpus, check_tensor_parallelism
from megatron_eks.plan.jobs.schedule import check_schedule
from megatron_eks.predict.layout import Layout


def plan(job: MegatronJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    training = plan_training(job, cluster)
    logs = log_directory(job, cluster)
    program = Program(
        name="train_megatron",
        args=(
            *options(keep_last=job.checkpoint.keep_last, s3_uri=job.checkpoint.s3_uri),
            *guard_args(job, cluster),
            "--",
            *megatron_arguments(job, training.model, training.layout, logs),
        ),
        env=_environment(job, cluster, training.layout),
        files={},
    )
    return ranks(job, cluster, images, program, training=training)


def _environment(job: MegatronRun, cluster: ClusterPlan, layout: Layout) -> Mapping[str, str]:
    collectives = environment.collectives(log_directory(job, cluster))
    own = environment.megatron(layout, cluster.pool(job.pool).instance)
    return environment.environment(job, collectives, own)


def plan_bridge(job: MegatronBridgeJob, cluster: ClusterPlan, images: Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    training = plan_training(job, cluster)
    blocks = ("model", "parallelism", "training", "data", "checkpoint", "overrides")
    told = job.model_copy(update={"overrides": {**tracking.overrides(job), **job.overrides}})
    path, files = config_file("train_bridge", told, blocks)
    program = Program(
        name="train_bridge",
        args=("--recipe", job.recipe, "--config", path, *guard_args(job, cluster)),
        env=_environment(job, cluster, training.layout),
        files=files,
    )
    return ranks(job, cluster, images, program, training=training)


_SHARES = 3


def check(job: MegatronJob, cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield everything wrong with a job of Megatron-LM."""
    yield from _check(job, cluster)
    if job.extra_args and not has_errors(check_model(job.model)):
        yield from check_extra_arguments(job, _copies(job, cluster), cluster)


def _copies(job: MegatronRun, cluster: ClusterConfig) -> int | None:
    """Return the data parallel size; None where type or layout do not give one."""
    pool, parallelism = gpu_pool(job, cluster), job.parallelism
    if pool is None:
        return None
    world = job.nodes * gpus_per_node(job, INSTANCES[pool.instance_type])
    return None if world % parallelism.model_gpus else world // parallelism.model_gpus


def check_bridge(job: MegatronBridgeJob, cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield everything wrong with a job of Megatron-Bridge."""
    yield from _check(job, cluster)
    if job.extra_args:
        found = "a recipe takes no arguments of Megatron-LM"
        yield Finding(Code.NO_MEANING, ("extra_args",), found, "write them as overrides")
    yield from check_recipe(job)
    yield from check_together(job, cluster)
    yield from check_options(job, _copies(job, cluster))


def _check(job: MegatronRun, cluster: ClusterConfig) -> Iterator[Finding]:
    yield from check_gpus(job, cluster)
    if job.image == "fsdp":
        found = "this image has no Megatron-LM"
        yield Finding(Code.UNKNOWN_IMAGE, ("image",), found, "use megatron")
    model_findings = list(check_model(job.model))
    yield from model_findings
    yield from check_start(job)
    yield from check_schedule(job)
    yield from _data(job)
    yield from check_amount(job)
    yield from check_tracker(job)
    yield from check_checkpoint_paths(job)
    yield from check_data_paths(job)
    places: list[tuple[Path, str | None]] = [
        *data_prefixes(job),
        (("data", "tokenizer"), job.data.tokenizer),
        (("data", "cache_dir"), job.data.cache_dir),
        (("checkpoint", "directory"), job.checkpoint.directory),
        (("checkpoint", "pretrained"), job.checkpoint.pretrained),
    ]
    yield from outside(places, cluster)
    pool = gpu_pool(job, cluster)
    if pool is not None and not has_errors(model_findings):
        yield from _placement(job, pool, cluster)


def _placement(job: MegatronRun, pool: GpuPool, cluster: ClusterConfig) -> Iterator[Finding]:
    """Check what depends on model and GPU together."""
    instance = INSTANCES[pool.instance_type]
    yield from check_tensor_parallelism(instance, job.parallelism.tensor)
    yield from check_values(job)
    model = model_shape(job.model)
    layout_findings = list(check_layout(job, model, instance))
    yield from layout_findings
    if not has_errors(layout_findings):
        memory_findings = list(check_memory(job, model, instance, cluster))
        yield from memory_findings
        if not has_errors(memory_findings):
            yield from check_saving(job, model, pool, cluster)
            yield from check_expert_placement(job, model, instance)
    yield from check_precision(job, model, instance)
    yield from check_positions(job.model, job.training.sequence_length)


def _data(job: MegatronRun) -> Iterator[Finding]:
    data, split = job.data, job.data.shares
    if (data.prefix is None) == (data.blend is None):
        found = "neither prefix nor blend" if data.prefix is None else "both prefix and blend"
        yield Finding(Code.DATA_SOURCE, ("data",), found, "give one of them")
    path: Path = ("data", "split")
    if not 1 <= len(data.split) <= _SHARES or sum(split) <= 0:
        found = f"{len(data.split)} shares" if sum(split) > 0 else "no share is above 0"
        yield Finding(Code.DATA_SPLIT, path, found, "give three: training, validation, test")
    elif split[0] <= 0:
        yield Finding(Code.DATA_SPLIT, path, "nothing is left for training", "use [98, 2, 0]")
    elif split[1] <= 0 and job.training.eval_iters:
        found = f"eval_iters is {job.training.eval_iters}, and no data is left for validation"
        remedy = "give the second share a value, or set training.eval_iters: 0"
        yield Finding(Code.DATA_SPLIT, path, found, remedy)


# Weights & Biases, "Environment variables"; megatron/training/global_vars.py (core_v0.19), where
# the last rank calls wandb.init.
_OPTION, _OVERRIDE = "--wandb-project", "logger.wandb_project"
# Each of these needs no key, or says where there is one; WANDB_API_KEY has a finding of its own.
_GIVEN = re.compile(r"WANDB_(API_KEY|MODE|DISABLED|IDENTITY_TOKEN_FILE|CONFIG_DIR)|NETRC")


def check_tracker(job: MegatronRun) -> Iterator[Finding]:
    """Warn of a run that ends as it starts, because nobody answers the question for a key."""
    if any(_GIVEN.fullmatch(name) for name in (*job.runtime.env, *tracking.keys(job))):
        return
    for path, name in _asked(job):
        found = f"{name}: W&B asks for a key, and no terminal answers"
        remedy = "name the Secret: runtime.secret_env: {WANDB_API_KEY: {secret: ..., key: ...}}"
        yield warning(Code.VARIABLE_MISSING, path, found, remedy)


def _asked(job: MegatronRun) -> Iterator[tuple[Path, str]]:
    if isinstance(job, MegatronBridgeJob):
        if job.overrides.get(_OVERRIDE):
            yield ("overrides", _OVERRIDE), _OVERRIDE
        return
    for index, word in enumerate(job.extra_args):
        if word.partition("=")[0] == _OPTION:
            yield ("extra_args", index), _OPTION
