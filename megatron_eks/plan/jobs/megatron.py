"""Plans and checks of `kind: megatron` and `kind: megatron_bridge`."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from megatron_eks.catalog.bridge_recipes import RECIPES
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.cluster import ClusterConfig, GpuPool
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, Path, has_errors, warning
from megatron_eks.config.job import MegatronBridgeJob, MegatronJob, MegatronRun
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs import (
    checkpoints,
    environment,
    models,
    pods,
    runtime,
    sources,
    tracking,
)
from megatron_eks.plan.jobs.arguments import megatron_arguments, options
from megatron_eks.plan.jobs.extra_args import check_extra_arguments
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.layout import check_layout
from megatron_eks.plan.jobs.memory import check_memory
from megatron_eks.plan.jobs.overrides import check_overrides, level_in
from megatron_eks.plan.jobs.precision import check_precision
from megatron_eks.plan.jobs.resources import gpu_instance, gpu_pool, job_gpus
from megatron_eks.plan.jobs.schedule import check_rate, check_schedule
from megatron_eks.plan.jobs.training import copies
from megatron_eks.predict.layout import Layout
from megatron_eks.predict.parameters import parameters

_SHARES = 3

# Their configuration of data, GPTSFTDatasetConfig, has no place for `data.prefix`.
_TUNING = re.compile(r"_(sft|peft|finetune)_")
# Recipes that differ by a slip.
_CLOSE = 0.85


def plan(job: MegatronJob, cluster: ClusterPlan, images: pods.Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    training = pods.plan_training(job, cluster)
    logs = pods.log_directory(job, cluster)
    program = pods.Program(
        name="train_megatron",
        args=(
            *options(keep_last=job.checkpoint.keep_last, s3_uri=job.checkpoint.s3_uri),
            *pods.guard_args(job, cluster),
            "--",
            *megatron_arguments(job, training.model, training.layout, logs),
        ),
        env=_environment(job, cluster, training.layout),
    )
    return pods.ranks(job, cluster, images, program, training=training)


def _environment(job: MegatronRun, cluster: ClusterPlan, layout: Layout) -> Mapping[str, str]:
    collectives = environment.collectives(pods.log_directory(job, cluster))
    own = environment.megatron(layout, cluster.pool(job.pool).instance)
    return environment.environment(job, collectives, own)


def plan_bridge(job: MegatronBridgeJob, cluster: ClusterPlan, images: pods.Images) -> JobPlan:
    """Plan a job that has passed the checks."""
    training = pods.plan_training(job, cluster)
    blocks = ("model", "parallelism", "training", "data", "checkpoint", "overrides")
    told = job.model_copy(update={"overrides": {**tracking.overrides(job), **job.overrides}})
    path, files = pods.config_file("train_bridge", told, blocks)
    program = pods.Program(
        name="train_bridge",
        args=("--recipe", job.recipe, "--config", path, *pods.guard_args(job, cluster)),
        env=_environment(job, cluster, training.layout),
        files=files,
    )
    return pods.ranks(job, cluster, images, program, training=training)


def check(job: MegatronJob, cluster: ClusterConfig) -> Findings:
    """Yield everything wrong with a job of Megatron-LM."""
    yield from _check(job, cluster)
    if job.extra_args and not has_errors(models.check_model(job.model)):
        yield from check_extra_arguments(job, _copies(job, cluster), cluster)


def _copies(job: MegatronRun, cluster: ClusterConfig) -> int | None:
    instance = gpu_instance(job, cluster)
    return copies(job.parallelism, job_gpus(job, instance)) if instance else None


def check_bridge(job: MegatronBridgeJob, cluster: ClusterConfig) -> Findings:
    """Yield everything wrong with a job of Megatron-Bridge."""
    yield from _check(job, cluster)
    if job.extra_args:
        found = "a recipe takes no arguments of Megatron-LM"
        yield Finding(Code.NO_MEANING, ("extra_args",), found, "write them as overrides")
    yield from check_recipe(job)
    yield from check_overrides(job, _copies(job, cluster), cluster)


def _check(job: MegatronRun, cluster: ClusterConfig) -> Findings:
    yield from runtime.check_gpus(job, cluster)
    model_findings = list(models.check_model(job.model))
    yield from model_findings
    yield from models.check_start(job)
    yield from check_schedule(job)
    data = job.data
    if (data.prefix is None) == (data.blend is None):
        found = "neither prefix nor blend" if data.prefix is None else "both prefix and blend"
        yield Finding(Code.DATA_SOURCE, ("data",), found, "give one of them")
    for found, remedy, level in _split(job):
        yield Finding(Code.DATA_SPLIT, ("data", "split"), found, remedy, level)
    yield from checkpoints.check_checkpoint_paths(job)
    yield from sources.check_data_paths(job)
    places: list[tuple[Path, str | None]] = [
        *sources.data_prefixes(job),
        (("data", "tokenizer"), job.data.tokenizer),
        (("data", "cache_dir"), job.data.cache_dir),
        (("checkpoint", "directory"), job.checkpoint.directory),
        (("checkpoint", "pretrained"), job.checkpoint.pretrained),
    ]
    yield from sources.outside(places, cluster)
    pool = gpu_pool(job, cluster)
    if pool is not None and not has_errors(model_findings):
        yield from _placement(job, pool, cluster)


def _placement(job: MegatronRun, pool: GpuPool, cluster: ClusterConfig) -> Findings:
    instance = INSTANCES[pool.instance_type]
    yield from runtime.check_tensor_parallelism(instance, job.parallelism.tensor)
    yield from models.check_values(job)
    model = models.model_shape(job.model)
    yield from check_rate(job, parameters(model))
    layout_findings = list(check_layout(job, model, instance))
    yield from layout_findings
    if not has_errors(layout_findings):
        memory_findings = list(check_memory(job, model, instance, cluster))
        yield from memory_findings
        if not has_errors(memory_findings):
            yield from checkpoints.check_saving(job, model, pool, cluster)
    yield from check_precision(job, model, instance)
    yield from models.check_positions(job.model, job.training.sequence_length)


def _split(job: MegatronRun) -> Iterator[tuple[str, str, Level]]:
    data, split, training = job.data, job.data.shares, job.training
    if not 1 <= len(data.split) <= _SHARES or sum(split) <= 0:
        found = f"{len(data.split)} shares" if sum(split) > 0 else "no share is above 0"
        yield found, "give three: training, validation, test", Level.ERROR
    elif split[0] <= 0:
        yield "nothing is left for training", "use [98, 2, 0]", Level.ERROR
    elif split[1] <= 0 and training.eval_iters:
        found = f"eval_iters is {training.eval_iters}, and no data is left for validation"
        remedy = "give the second share a value, or set training.eval_iters: 0"
        yield found, remedy, Level.ERROR
    else:
        if split[0] < sum(split) / 2:
            found = f"{split[0] / sum(split):.0%} of the data are for training"
            remedy = "the first share is training's: [98, 2, 0]; all of them in the same unit"
            yield found, remedy, Level.WARNING
        corpus, length = data.corpus_tokens, training.sequence_length
        left = int(corpus * split[1] / sum(split)) if corpus else length + 1
        if split[1] > 0 and training.eval_iters and left <= length:
            found = f"{left} tokens of {corpus} are for validation, and a sequence has {length}"
            yield found, "give the second share more, or set training.eval_iters: 0", Level.ERROR


def check_recipe(job: MegatronBridgeJob) -> Findings:
    """Yield a recipe that is not there, or of another model."""
    preset = models.preset_name(job.model)
    plain = _plain(preset or "")
    fitting = [each for each in RECIPES if preset and _plain(each).startswith(plain)]
    fitting = sorted(each for each in fitting if "_pretrain_" in each)
    if job.recipe not in RECIPES:
        close = get_close_matches(job.recipe, RECIPES, 1, _CLOSE)
        found = f"Megatron-Bridge 0.5 to 0.7 has no recipe {job.recipe}"
        remedy = f"of {preset}: {', '.join(fitting)}" if fitting else "see megatron.bridge.recipes"
        remedy = f"did you mean {close[0]}?" if close else remedy
        yield Finding(Code.RECIPE, ("recipe",), found, remedy, level_in(job.image))
    elif not _plain(job.recipe).startswith(plain):
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


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
