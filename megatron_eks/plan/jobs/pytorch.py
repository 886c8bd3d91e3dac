"""Plans and checks of `kind: fsdp` and `kind: ddp`: PyTorch's own ways to train."""

import re
from collections.abc import Iterator
from functools import partial

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.catalog.tables import entries, sections
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, has_errors, warning
from megatron_eks.config.hints import of_place
from megatron_eks.config.job import DdpJob, FsdpJob, TorchRun
from megatron_eks.config.parse import check_rendered
from megatron_eks.config.training import FsdpData
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs import (
    checkpoints,
    environment,
    memory,
    models,
    pods,
    runtime,
    sources,
    tracking,
)
from megatron_eks.plan.jobs.data_prep import OTHER_FORMS
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.resources import gpu_pool
from megatron_eks.plan.jobs.schedule import check_optimizer, check_rate, check_reached
from megatron_eks.plan.jobs.training import at_fewest_nodes, checkpoint_bytes, job_memory
from megatron_eks.predict.parameters import parameters

# datasets, naming.py: a configuration names folders of the cache, so some signs are not in it.
_CONFIGURATION = re.compile(r"\w[^<>:/\\|?*\x00-\x1f]*")
_TABLE = sections("hugging_face.txt")
_CONFIGURED = dict(entries(_TABLE["configured"]))
_BY_SCRIPT = frozenset(_TABLE["by_script"].split())


def plan(job: FsdpJob | DdpJob, cluster: ClusterPlan, images: pods.Images) -> JobPlan:
    """Plan a job that has passed the checks; one of DDP needs no operator."""
    name, logs = f"train_{job.kind}", pods.log_directory(job, cluster)
    path, files = pods.config_file(name, job, ("model", "training", "data", "checkpoint"))
    token = pods.token_file(job.token_secret)
    program = pods.Program(
        name=name,
        args=(
            *("--config", path),
            *(f"--track={each}" for each in tracking.trackers(job)),
            *pods.guard_args(job, cluster),
        ),
        env=environment.environment(
            job, environment.collectives(logs), environment.hugging_face(token)
        ),
        files=files,
        secrets=(token,) if token else (),
    )
    return pods.ranks(job, cluster, images, program, training=pods.plan_training(job, cluster))


def check_ddp(job: DdpJob, cluster: ClusterConfig) -> Findings:
    """Yield everything wrong with a job of DDP."""
    yield from check(job, cluster)
    # An Indexed Job knows the rank of each pod beforehand.
    yield from runtime.no_meaning(job, ("rendezvous", "elastic"))
    if "sharding" in job.training.model_fields_set:
        found = "DDP copies the model to every GPU"
        yield Finding(Code.NO_MEANING, ("training", "sharding"), found, "remove it, or use fsdp")


def check(job: TorchRun, cluster: ClusterConfig) -> Findings:
    """Yield everything wrong with a job of FSDP, and what one of DDP has in common with it."""
    yield from runtime.check_gpus(job, cluster)
    model_findings = list(models.check_model(job.model))
    yield from model_findings
    yield from models.check_start(job)
    yield from checkpoints.check_checkpoint_paths(job)
    yield from _training(job)
    yield from _data(job, cluster)
    pool = gpu_pool(job, cluster)
    if pool is not None and not has_errors(model_findings):
        yield from models.check_values(job)
        instance, model = INSTANCES[pool.instance_type], models.model_shape(job.model)
        yield from _model(job, model, instance)
        yield from check_rate(job, parameters(model))
        smallest = at_fewest_nodes(job)
        remedy = partial(memory.smaller, smallest, model, pool)
        estimate = job_memory(smallest, model, instance)
        yield from memory.verdict(estimate, instance, ("training",), remedy, job.runtime.elastic)
        yield from checkpoints.check_disk(job, model, cluster)
        if isinstance(job, FsdpJob):
            # Each copy of a hybrid layout is on one node, which stages all of it.
            copies = 1 if job.training.sharding == "hybrid" else smallest.nodes
            yield from memory.check_host(job, instance, checkpoint_bytes(job, model) // copies)
        yield from checkpoints.check_saving(job, model, pool, cluster)


def _training(job: TorchRun) -> Findings:
    training, checkpoint = job.training, job.checkpoint
    yield from check_optimizer(training)
    if training.warmup_iters >= training.max_steps:
        found = f"{training.warmup_iters} warm-up steps of {training.max_steps}"
        remedy = f"use fewer than {training.max_steps}"
        yield Finding(Code.SCHEDULE, ("training", "warmup_iters"), found, remedy)
    intervals = ("checkpoint.interval", "training.validation_interval")
    yield from check_reached(job, training.max_steps, *intervals)
    if checkpoint.format == "torch":
        found = "PyTorch saves in its own distributed format"
        yield Finding(Code.NO_MEANING, ("checkpoint", "format"), found, "remove it")


def _data(job: TorchRun, cluster: ClusterConfig) -> Findings:
    data = job.data
    names = {"dataset": data.dataset, "tokenizer": data.tokenizer}
    places: list[tuple[Path, str | None]] = [
        (("checkpoint", "directory"), job.checkpoint.directory),
        (("checkpoint", "pretrained"), job.checkpoint.pretrained),
    ]
    for key, name in names.items():
        path = ("data", key)
        if name.startswith("/"):
            places.append((path, name))
        elif not sources.is_repository(name):
            found = f"{name!r} is neither a path nor the name of a Hugging Face repository"
            remedy = of_place(name, key) or "use /PATH or OWNER/NAME"
            yield Finding(Code.DATA_SOURCE, path, found, remedy)
        else:
            yield from sources.from_the_hub(job, path, name, cluster)
    yield from sources.outside(places, cluster)
    for problem in _dataset(data.dataset):
        yield Finding(Code.DATA_SOURCE, ("data", "dataset"), *problem)
    yield from sources.check_tokenizer(("data", "tokenizer"), data.tokenizer)
    if data.dataset in _BY_SCRIPT:
        found = f"{data.dataset} is made by a script, and datasets 4 and later run none"
        remedy = "use a corpus of plain files, such as allenai/c4, or bring the text and prepare it"
        yield warning(Code.DATA_SOURCE, ("data", "dataset"), found, remedy)
    for problem in _configuration(data):
        yield Finding(Code.DATA_SOURCE, ("data", "configuration"), *problem)
    if data.configuration and data.dataset.startswith("/"):
        yield Finding(Code.NO_MEANING, ("data", "configuration"), "files have none", "remove it")


def _dataset(name: str) -> Iterator[tuple[str, str]]:
    if name.endswith((".bin", ".idx")):
        yield f"{name!r} is a file, not a prefix", f"write {name[:-4]}"
    elif name.startswith("/") and any(sign in name for sign in "*?["):
        remedy = "prepare the files by a job of kind data_prep, which takes patterns"
        yield f"{name} is a pattern, and one file, prefix or data set is read", remedy
    elif name.startswith("/") and name.endswith(OTHER_FORMS):
        yield f"{name} does not hold a JSON object on each line", "write it as JSONL first"


def _configuration(data: FsdpData) -> Iterator[tuple[str, str]]:
    configuration = data.configuration
    if data.dataset in _CONFIGURED and not configuration:
        remedy = f"add data.configuration, such as {_CONFIGURED[data.dataset]}"
        yield f"{data.dataset} has several configurations, and none is named", remedy
    elif configuration is not None and not _CONFIGURATION.fullmatch(configuration):
        remedy = "use one that the data set's page lists, such as en, or leave it out"
        yield f"{configuration!r} is no name of a configuration", remedy


def _model(job: TorchRun, model: ModelShape, instance: InstanceType) -> Findings:
    if model.num_experts is not None:
        found = "mixtures of experts need expert parallelism, which this kind does not have"
        yield Finding(Code.LAYOUT_EXPERTS, ("model",), found, "use kind: megatron")
    if model.multi_latent_attention:
        found = "this kind's programs have no latent attention"
        path: Path = ("model", "multi_latent_attention")
        yield Finding(Code.LAYOUT_HEADS, path, found, "use kind: megatron")
    if model.num_attention_heads % model.num_query_groups:
        groups, heads = model.num_query_groups, model.num_attention_heads
        found = f"{groups} query groups do not divide {heads} attention heads"
        remedy = "use a divisor of the number of heads"
        yield Finding(Code.LAYOUT_HEADS, ("model", "num_query_groups"), found, remedy)
    if job.training.precision == "fp8" and not instance.gpu.has_fp8:
        found = f"{instance.gpu.name} has no FP8"
        yield Finding(Code.PRECISION, ("training", "precision"), found, "use bf16")
    else:
        yield from check_rendered(job)
    yield from models.check_positions(job.model, job.training.sequence_length)
