"""Whether jobs find what other jobs of the same cluster leave for them, in the form they read."""

import re
from typing import TYPE_CHECKING

from megatron_eks.catalog.models import PRESETS
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.job import (
    ConvertCheckpointJob,
    DataPrepJob,
    FetchJob,
    MegatronJob,
    MegatronRun,
    TorchRun,
    TrainingJob,
)
from megatron_eks.plan.jobs.path_checks import data_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from megatron_eks.config.errors import Path
    from megatron_eks.config.job import AnyJob


def check_sources(job: "AnyJob", others: "Sequence[AnyJob]") -> "Iterator[Finding]":
    """Yield what a job reads where another one leaves something else."""
    if isinstance(job, ConvertCheckpointJob):
        yield from _conversion(job, others)
    elif isinstance(job, MegatronRun | TorchRun):
        preparations = [other for other in others if isinstance(other, DataPrepJob)]
        for path, prefix in data_prefixes(job):
            yield from _data(job.data.tokenizer, path, prefix, preparations)
        if isinstance(job, MegatronRun):
            yield from _weights(job, others)


def _data(
    tokenizer: str, path: "Path", prefix: str, preparations: "Sequence[DataPrepJob]"
) -> "Iterator[Finding]":
    """Compare a data set that is read with those that are made."""
    for preparation in preparations:
        written = _written(preparation)
        if prefix in written and preparation.tokenizer != tokenizer:
            found = f"{preparation.name} makes its tokens with {preparation.tokenizer}"
            remedy = "use the same tokenizer, or the numbers mean other words"
            yield Finding(Code.DATA_SOURCE, ("data", "tokenizer"), found, remedy, Level.WARNING)
    if any(prefix in _written(each) for each in preparations):
        return
    for preparation in preparations:
        made, base = _written(preparation), preparation.output_prefix
        if base.endswith("_document"):
            continue  # it has a finding of its own
        if prefix == base:
            found = f"{preparation.name} writes {made[0]}"
            yield Finding(Code.DATA_SOURCE, path, found, f"use {made[0]}")
        elif re.fullmatch(rf"{re.escape(base)}_[^_/]+_document", prefix):
            found = f"{preparation.name} writes {' and '.join(made)}, and no job writes {prefix}"
            remedy = f"use {made[0]}, or name the key in json_keys of {preparation.name}"
            yield Finding(Code.DATA_SOURCE, path, found, remedy, Level.WARNING)


def _written(preparation: DataPrepJob) -> list[str]:
    return [f"{preparation.output_prefix}_{key}_document" for key in preparation.json_keys]


def _weights(job: MegatronRun, others: "Sequence[AnyJob]") -> "Iterator[Finding]":
    base = job.checkpoint.pretrained
    path: Path = ("checkpoint", "pretrained")
    if base is None:
        return
    for other in others:
        if _hugging_face(other) == base:
            found = f"{other.name} has weights in Hugging Face's form there"
            remedy = "name the target of a convert_checkpoint job of direction import"
            yield Finding(Code.WEIGHTS, path, found, remedy)
            return
    preset = job.model.preset if isinstance(job.model, ModelSpec) else job.model
    for other in others:
        if not isinstance(other, ConvertCheckpointJob) or other.target != base:
            continue
        if other.direction == "import" and preset in PRESETS and preset != other.model:
            found = f"{other.name} puts weights of {other.model} there, and the model is {preset}"
            remedy = "name the weights of this model, or the model of these weights"
            yield Finding(Code.WEIGHTS, path, found, remedy)


def _conversion(job: ConvertCheckpointJob, others: "Sequence[AnyJob]") -> "Iterator[Finding]":
    for other in others:
        trains = isinstance(other, TrainingJob) and other.checkpoint.directory == job.source
        fetches = isinstance(other, FetchJob) and other.directory == job.source
        if job.direction == "import" and trains:
            found = f"{other.name} saves there, in Megatron's form already"
            yield Finding(Code.WEIGHTS, ("direction",), found, "use export")
        elif job.direction == "import" and fetches and _preset(other) not in {None, job.model}:
            found = f"{other.name} brings {_preset(other)} there, and the model is {job.model}"
            yield Finding(Code.WEIGHTS, ("model",), found, "name the model of these weights")
        elif job.direction == "export" and fetches:
            found = f"{other.name} has it from Hugging Face, in its form already"
            yield Finding(Code.WEIGHTS, ("direction",), found, "use import")
        elif trains and isinstance(other, MegatronJob):
            # Megatron-Bridge exports what it has saved itself, with its run_config.yaml.
            found = f"{other.name} saves without the configuration that the export reads"
            remedy = "train with kind: megatron_bridge what is to be exported"
            yield Finding(Code.WEIGHTS, ("source",), found, remedy, Level.WARNING)


def _preset(job: "AnyJob") -> str | None:
    """Return the preset that a fetched model's name is; None where it is none of them."""
    name = (job.model or "").rpartition("/")[2] if isinstance(job, FetchJob) else ""
    plain = re.sub(r"^meta-|-(hf|base|instruct|v0\.\d)$", "", name.lower())
    return plain if plain in PRESETS else None


def _hugging_face(job: "AnyJob") -> str | None:
    """Return the directory that holds weights as Hugging Face has them, if the job has one."""
    if isinstance(job, FetchJob):
        return job.directory if job.model else None
    if isinstance(job, ConvertCheckpointJob):
        return job.source if job.direction == "import" else job.target
    return None
