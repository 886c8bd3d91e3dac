"""What jobs read and leave on the shared file system.

A path that no job fills may have been filled by hand, or long ago: that is nothing to report. One
that differs by a slip from what a job fills is: the job fails on its nodes, with the files beside.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from megatron_eks.catalog.pins import POD_UID
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, has_errors, warning
from megatron_eks.config.job import (
    AnyJob,
    ConvertCheckpointJob,
    DataPrepJob,
    FetchJob,
    MegatronRun,
    TorchRun,
    TorchrunJob,
    TrainingJob,
)
from megatron_eks.plan.cluster.data_access import check_policy
from megatron_eks.plan.cluster.lustre import size_for
from megatron_eks.plan.cluster.storage import SHARED_DIRECTORIES
from megatron_eks.plan.cluster.teams import TEAMS
from megatron_eks.plan.jobs.corpora import prepared
from megatron_eks.plan.jobs.models import check_model, model_shape
from megatron_eks.plan.jobs.paths import data_prefixes
from megatron_eks.plan.jobs.training import checkpoint_bytes
from megatron_eks.predict.memory import GIB

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
        yield from (("data", place) for place in prepared(job))
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
        return False  # other keys of a corpus are judged by `corpora`
    named = kind == "base" and other_name.startswith(f"{name}-")
    return named or SequenceMatcher(None, name, other_name).ratio() >= _CLOSE


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, tuple[str, ...]]:
    """Return what of a path is read aloud, and its numbers."""
    return re.sub(r"[^a-z0-9/]", "", path.lower()), tuple(re.findall(r"\d+", path))


def check_together(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig | None
) -> Iterator[tuple[str, Finding]]:
    """Yield, with their files, what only all jobs together get wrong."""
    if cluster is not None:
        yield from _room_for_all(jobs, cluster)
        yield from _owner(jobs, cluster)
        yield from _others(jobs, cluster)
    yield from check_policy(jobs)


def _room_for_all(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig
) -> Iterator[tuple[str, Finding]]:
    """Yield, with its file, the last job where checkpoints of all do not fit, and each one's do."""
    lustre = cluster.storage.lustre
    room, sizes, last = lustre.capacity_gib * GIB, dict[tuple[str | None, str], int](), ""
    for job, file in jobs:
        if not isinstance(job, TrainingJob) or has_errors(check_model(job.model)):
            continue
        place = job.team, job.checkpoint.directory
        if place[1].startswith(f"{lustre.mount_path}/"):  # EFS grows by itself
            needed = job.checkpoint.keep_last * checkpoint_bytes(job, model_shape(job.model))
            sizes[place], last = max(needed, sizes.get(place, 0)), file
    taken = sum(sizes.values())
    if taken > room >= max(sizes.values()):
        size = f"{taken / GIB:.0f} GiB of {lustre.capacity_gib}"
        found = f"the checkpoints of {len(sizes)} jobs take {size}"
        remedy = "keep fewer, delete those of finished runs, or set "
        remedy += f"storage.lustre.capacity_gib: {size_for(lustre, -(-taken // GIB))}"
        path = ("checkpoint", "keep_last")
        yield last, warning(Code.CHECKPOINTS_TOGETHER, path, found, remedy)


def _owner(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig
) -> Iterator[tuple[str, Finding]]:
    """Yield, with its file, what a job writes where nobody has made room for pods."""
    lustre = cluster.storage.lustre
    if lustre.existing is None or lustre.existing.path is not None:
        return
    ours = [f"{lustre.mount_path}/{name}" for name in SHARED_DIRECTORIES]
    for job, file in jobs:
        for path, place in outputs(job):
            top = "/".join(place.split("/")[: lustre.mount_path.count("/") + 2])
            if place.startswith(f"{lustre.mount_path}/") and top not in ours:
                found = f"the file system exists, and nothing here makes {top} the pods'"
                remedy = (
                    f"use a path below {', '.join(ours)}, or set storage.lustre.existing.path; "
                    f"or see that user {POD_UID} may write there"
                )
                yield file, warning(Code.SHARED_DIRECTORIES, path, found, remedy)


def _others(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig
) -> Iterator[tuple[str, Finding]]:
    """Yield, with its file, what is in folders that a team sees and may not go into: others'."""
    top, space = f"{cluster.storage.lustre.mount_path}/{TEAMS}/", cluster.platform.namespace
    first = [each.name for each in cluster.teams if space == (each.namespace or each.name)]
    for job, file in (each for each in jobs if each[0].team in first):
        for path, place in (*outputs(job), *((path, place) for path, _, place in reads(job))):
            if place.startswith(top):
                found = f"{place} is below {top}, where pods of team {job.team} may not go"
                yield file, Finding(Code.JOB_TEAM, path, found, "use a path of the team's own")


def outputs(job: AnyJob) -> Iterator[tuple[Path, str]]:
    """Yield where a job writes, each with its key: what a directory or prefix stands for."""
    if isinstance(job, FetchJob):
        yield ("directory",), job.directory
    elif isinstance(job, ConvertCheckpointJob):
        yield ("target",), job.target
    elif isinstance(job, TrainingJob | TorchrunJob) and job.checkpoint is not None:
        yield ("checkpoint", "directory"), job.checkpoint.directory
    elif isinstance(job, DataPrepJob):
        for index, place in enumerate(prepared(job)):
            given = "json_keys" in job.model_fields_set
            yield ("json_keys", index) if given else ("output_prefix",), place
