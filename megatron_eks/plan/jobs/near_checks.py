"""Whether jobs look for files where other jobs put them, and folders are named after their model.

A path that no job fills may have been filled by hand, or long ago: that is nothing to report. One
that differs by a slip from what a job fills is: the job fails on its nodes, with the files beside.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from megatron_eks.catalog.models import PRESETS
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.job import (
    AnyJob,
    ConvertCheckpointJob,
    DataPrepJob,
    FetchJob,
    MegatronRun,
    TorchRun,
    TrainingJob,
)
from megatron_eks.plan.jobs.layout import preset_of_name
from megatron_eks.plan.jobs.path_checks import data_prefixes

_CLOSE = 0.9


def check_near(job: AnyJob, others: Sequence[AnyJob]) -> Iterator[Finding]:
    """Yield what is read at a place that differs by a slip from where a job puts it."""
    wanted = list(reads(job))
    made = [
        (other, *each) for other in others if wanted and other is not job for each in writes(other)
    ]
    for path, kind, place in wanted:
        if any(place == each or place.startswith(f"{each}/") for _, _, each in made):
            continue
        for other, what, each in made:
            if what == kind and _slip(place, each, kind):
                found = f"no job puts anything at {place}, and {other.name} fills {each}"
                yield warning(Code.NOT_MADE, path, found, f"use {each}")
                break


def check_zones(job: AnyJob, others: Sequence[AnyJob], cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield what is read on the file system of one zone, and made on that of another."""
    if not cluster.storage.lustre.per_zone:
        return
    zone = _zone(job, cluster)
    for path, _, place in reads(job):
        makers = [other for other in others if place in {each for _, each in writes(other)}]
        zones = {_zone(other, cluster) for other in makers}
        if zone is not None and makers and zone not in zones:
            name, theirs = makers[0].name, _zone(makers[0], cluster)
            found = f"{name} puts it on the file system of {theirs}, and this job sees {zone}'s"
            remedy = f"run {name} by a pool of {zone} as well, or this job by one of {theirs}"
            yield warning(Code.OTHER_ZONE, path, found, remedy)


def reads(job: AnyJob) -> Iterator[tuple[Path, str, str]]:
    """Yield what a job finds on the file system: its key, what it is, and its path."""
    if isinstance(job, ConvertCheckpointJob):
        yield ("source",), "weights" if job.direction == "import" else "trained", job.source
    elif isinstance(job, DataPrepJob):
        yield ("tokenizer",), "tokenizer", job.tokenizer
    elif isinstance(job, MegatronRun | TorchRun):
        for path, prefix in data_prefixes(job):
            yield path, "data", prefix
        yield ("data", "tokenizer"), "tokenizer", job.data.tokenizer
        if job.checkpoint.pretrained is not None:
            yield ("checkpoint", "pretrained"), "base", job.checkpoint.pretrained


def writes(job: AnyJob) -> Iterator[tuple[str, str]]:
    """Yield what a job leaves on the file system: what it is, and its path."""
    if isinstance(job, FetchJob):
        # What a prefix of S3 holds, nobody knows here.
        kinds = {"weights": job.model, "tokenizer": job.tokenizer, "files": job.s3_uri}
        yield from ((kind, job.directory) for kind, source in kinds.items() if source)
    elif isinstance(job, ConvertCheckpointJob) and job.direction == "import":
        yield "base", job.target
    elif isinstance(job, DataPrepJob):
        for key in job.json_keys:
            yield "data", f"{job.output_prefix}_{key}_document"
    elif isinstance(job, TrainingJob):
        yield "trained", job.checkpoint.directory


def _zone(job: AnyJob, cluster: ClusterConfig) -> str | None:
    """Return the zone whose file system a job sees: its pool's, and without one the first."""
    pools = {pool.name: pool.availability_zone for pool in cluster.gpu_pools}
    if job.pool is None:
        return cluster.storage.lustre.availability_zone or cluster.gpu_pools[0].availability_zone
    return pools.get(job.pool)


def _slip(place: str, made: str, kind: str) -> bool:
    """Tell whether two paths were meant to be one; other numbers mean another thing."""
    parent, _, name = place.rpartition("/")
    other_parent, _, other_name = made.rpartition("/")
    if kind != "data" and place == other_parent and place.count("/") > 1:
        return True  # a folder is read itself, and not what is in the folders below it
    (letters, numbers), (other_letters, other_numbers) = _parts(place), _parts(made)
    if numbers != other_numbers:
        return False
    if letters == other_letters or name == other_name or made == f"{place}_document":
        return True
    if kind == "data" or parent != other_parent:
        return False  # other keys of a corpus are judged by `source_checks`
    named = kind == "base" and other_name.startswith(f"{name}-")
    return named or SequenceMatcher(None, name, other_name).ratio() >= _CLOSE


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, tuple[str, ...]]:
    """Return what of a path is read aloud, and its numbers."""
    return re.sub(r"[^a-z0-9/]", "", path.lower()), tuple(re.findall(r"\d+", path))


# A name proves nothing, so it warns; what other jobs make there stands in `source_checks.py`.
_NAMED = re.compile(rf"(?<![a-z0-9.])({'|'.join(map(re.escape, PRESETS))})(?![a-z0-9.])")

# Sizes of weights, which a vocabulary is not: it is padded, and grows by rows.
_SIZES = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups"),
    *("kv_channels", "num_experts", "moe_ffn_hidden_size"),
)


def check_names(job: AnyJob, fetched: str | None) -> Iterator[Finding]:
    """Yield a folder with the name of another model; `fetched` is the preset that is fetched."""
    yield from _resized(job)
    for path, place, model in _places(job, fetched):
        # Its own name beside another one: weights that went from one to the other.
        names = set(_NAMED.findall(place.rpartition("/")[2].lower()))
        if model in PRESETS and len(names) == 1 and model not in names:
            found = f"{place} has the name of {names.pop()}, and the model is {model}"
            remedy = "name the weights of this model, or the model of these weights"
            yield warning(Code.WEIGHTS, path, found, remedy)
            return


def _resized(job: AnyJob) -> Iterator[Finding]:
    """Yield sizes of a model that weights with its preset's own name do not have."""
    if not isinstance(job, TrainingJob) or not isinstance(job.model, ModelSpec):
        return
    preset = preset_of_name(job.checkpoint.pretrained or "")
    if preset is None or preset != job.model.preset:
        return
    for name in _SIZES:
        mine, theirs = getattr(job.model, name), getattr(PRESETS[preset], name)
        if mine is not None and mine != theirs:
            found = f"{mine}, and weights of {preset} have {theirs}: they do not fit"
            remedy = "remove it, or name weights of this size"
            yield warning(Code.MODEL_VALUE, ("model", name), found, remedy)


def _places(job: AnyJob, fetched: str | None) -> Iterator[tuple[Path, str, str | None]]:
    """Yield where a job reads or writes weights, and of which model."""
    if isinstance(job, ConvertCheckpointJob):
        yield ("source",), job.source, job.model
        yield ("target",), job.target, job.model
    elif isinstance(job, FetchJob):
        yield ("directory",), job.directory, fetched
    elif isinstance(job, TrainingJob) and job.checkpoint.pretrained is not None:
        model = job.model.preset if isinstance(job.model, ModelSpec) else job.model
        yield ("checkpoint", "pretrained"), job.checkpoint.pretrained, model
