"""What jobs read and leave on the shared file system.

A path that no job fills may have been filled by hand, or long ago: that is nothing to report. One
that differs by a slip from what a job fills is: the job fails on its nodes, with the files beside.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import accumulate, islice

from megatron_eks.catalog.pins import POD_UID
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, has_errors, warning
from megatron_eks.config.job import AnyJob, DdpJob, GpuJob, TrainingJob
from megatron_eks.plan.cluster.lustre import size_for
from megatron_eks.plan.cluster.storage import SHARED_DIRECTORIES
from megatron_eks.plan.cluster.teams import TEAMS
from megatron_eks.plan.jobs.models import check_model, model_shape
from megatron_eks.plan.jobs.training import checkpoint_bytes
from megatron_eks.predict.memory import GIB

_CLOSE = 0.9

_Place = tuple[str | None, str]
"""A path, and the team that has it below its own folder."""
_Makers = dict[_Place, list[tuple[AnyJob, str]]]
"""The jobs that put something at a place, and what it is."""


def _zone(job: AnyJob, cluster: ClusterConfig) -> str | None:
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
    return re.sub(r"[^a-z0-9/]", "", path.lower()), tuple(re.findall(r"\d+", path))


def check_together(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig | None
) -> Iterator[tuple[str, Finding]]:
    """Yield, with their files, what only all jobs together get wrong."""
    made: _Makers = {}
    for job, _ in jobs:
        for _, kind, place in job.used("writes"):
            made.setdefault((job.team, place), []).append((job, kind))
    yield from _near(jobs, made)
    if cluster is None:
        return
    yield from _other_zone(jobs, made, cluster)
    yield from _room_for_all(jobs, cluster)
    yield from _owner(jobs, cluster)
    top, space = f"{cluster.storage.lustre.mount_path}/{TEAMS}/", cluster.platform.namespace
    first = [each.name for each in cluster.teams if space == (each.namespace or each.name)]
    for job, file in (each for each in jobs if each[0].team in first):
        for path, _, place in (*job.used("writes"), *job.used("reads")):
            if place.startswith(top):
                found = f"{place} is below {top}, where pods of team {job.team} may not go"
                yield file, Finding(Code.JOB_TEAM, path, found, "use a path of the team's own")


def _near(jobs: Sequence[tuple[AnyJob, str]], made: _Makers) -> Iterator[tuple[str, Finding]]:
    """Yield, with its file, what is read at a place that differs by a slip from where it is put."""
    for job, file in jobs:
        for path, kind, place in job.used("reads"):
            above = accumulate(place.split("/"), "{}/{}".format)
            if any(each is not job for at in above for each, _ in made.get((job.team, at), ())):
                continue
            slips = (
                (other.name, each)
                for (team, each), makers in made.items()
                for other, what in makers
                if other is not job and (team, what) == (job.team, kind)
                if _slip(place, each, kind)
            )
            for name, each in islice(slips, 1):
                found = f"no job puts anything at {place}, and {name} fills {each}"
                yield file, warning(Code.NOT_MADE, path, found, f"use {each}")


def _other_zone(
    jobs: Sequence[tuple[AnyJob, str]], made: _Makers, cluster: ClusterConfig
) -> Iterator[tuple[str, Finding]]:
    """Yield what is read on the file system of one zone, and made on that of another."""
    for job, file in jobs if cluster.storage.lustre.per_zone else ():
        zone = _zone(job, cluster)
        for path, _, place in job.used("reads") if zone else ():
            makers = [each for each, _ in made.get((job.team, place), ()) if each is not job]
            if makers and zone not in {_zone(each, cluster) for each in makers}:
                name, theirs = makers[0].name, _zone(makers[0], cluster)
                found = f"{name} puts it on the file system of {theirs}, and this job sees {zone}'s"
                remedy = f"run {name} by a pool of {zone} as well, or this job by one of {theirs}"
                yield file, warning(Code.OTHER_ZONE, path, found, remedy)


def _room_for_all(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig
) -> Iterator[tuple[str, Finding]]:
    """Yield, with its file, the last job where checkpoints of all do not fit, and each one's do."""
    lustre = cluster.storage.lustre
    room, sizes, last = lustre.capacity_gib * GIB, dict[_Place, int](), ""
    for job, file in jobs:
        if not isinstance(job, TrainingJob) or has_errors(check_model(job.model)):
            continue
        place = job.team, job.checkpoint.directory
        if place[1].startswith(f"{lustre.mount_path}/"):  # EFS grows by itself
            needed = job.checkpoint.keep_last * checkpoint_bytes(job, model_shape(job.model))
            sizes[place], last = max(needed, sizes.get(place, 0)), file
    taken = sum(sizes.values())
    if taken > room >= max(sizes.values()):
        size, path = size_for(lustre, -(-taken // GIB)), ("checkpoint", "keep_last")
        found = f"of {len(sizes)} jobs they take {taken / GIB:.0f} GiB of {lustre.capacity_gib}"
        remedy = f"keep fewer, delete finished runs', or set storage.lustre.capacity_gib: {size}"
        yield last, warning(Code.CHECKPOINTS_TOGETHER, path, found, remedy)


def _owner(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig
) -> Iterator[tuple[str, Finding]]:
    lustre = cluster.storage.lustre
    if lustre.existing is None or lustre.existing.path is not None:
        return
    ours = [f"{lustre.mount_path}/{name}" for name in SHARED_DIRECTORIES]
    for job, file in jobs:
        for path, _, place in job.used("writes"):
            top = "/".join(place.split("/")[: lustre.mount_path.count("/") + 2])
            if place.startswith(f"{lustre.mount_path}/") and top not in ours:
                found = f"the file system exists, and nothing here makes {top} the pods'"
                remedy = f"use a path below {', '.join(ours)}, set storage.lustre.existing.path"
                remedy += f", or see that user {POD_UID} may write there"
                yield file, warning(Code.SHARED_DIRECTORIES, path, found, remedy)


@dataclass
class Claims:
    """What the jobs that were checked before have for themselves; values name their files."""

    names: dict[str, str] = field(default_factory=dict)
    services: dict[str, str] = field(default_factory=dict)
    places: dict[_Place, tuple[str, AnyJob]] = field(default_factory=dict)
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By S3 prefix; with the directory that is copied there."""

    def check(self, job: AnyJob, file: str) -> Findings:
        """Yield what a job takes from those before it, and remember what it claims."""
        services = dict.fromkeys(_services(job), file)
        if job.name in self.names:
            found = f"{self.names[job.name]} holds a job of the same name"
            yield Finding(Code.DUPLICATE_JOB, ("name",), found, "give each job its own name")
        elif clash := sorted(services.keys() & self.services):
            found = f"{self.services[clash[0]]} has a Service {clash[0]} too"
            remedy = "use another name: the operator adds -worker-N to a job's"
            yield Finding(Code.DUPLICATE_JOB, ("name",), found, remedy)
        self.names.setdefault(job.name, file)
        self.services |= services
        written = [(path, place) for path, _, place in job.used("writes")]
        for path, place in written:
            first, other = self.places.setdefault((job.team, place), (file, job))
            if other is not job:
                yield _of_two(path, place, first, (other, job))
        # Jobs of one directory have the same checkpoints.
        for (path, _, uri), (_, directory) in zip(job.used("copies"), written, strict=False):
            first, its_directory = self.copies.setdefault(uri.rstrip("/"), (file, directory))
            if its_directory != directory:
                found = f"{first} copies others to {uri} too: neither would be whole there"
                beside = uri.rstrip("/").rpartition("/")[0]
                remedy = f"give each job its own prefix: {beside}/{job.name}"
                yield Finding(Code.SHARED_S3_CHECKPOINTS, path, found, remedy)


def _of_two(path: Path, place: str, first: str, jobs: tuple[AnyJob, AnyJob]) -> Finding:
    one, other = jobs
    if not isinstance(one, TrainingJob) or not isinstance(other, TrainingJob):
        remedy = "give each its own place: one would destroy what the other made"
        return warning(Code.SAME_OUTPUT, path, f"{first} writes {place} too", remedy)
    remedy, models = "give each job its own directory", (one.model, other.model)
    known = not any(has_errors(check_model(model)) for model in models)
    if known and len({model_shape(model) for model in models}) > 1:
        found = f"{first} saves another model to {place}: neither resumes from both's"
        return Finding(Code.SHARED_CHECKPOINTS, path, found, remedy)
    found = f"{first} saves to {place} too: run together, one loses"
    return warning(Code.SHARED_CHECKPOINTS, path, found, f"{remedy}, or never run both")


def check_cluster_of(jobs: Sequence[AnyJob], cluster: ClusterConfig) -> Findings:
    """Yield what a cluster file says that does not suit its jobs."""
    runs = [job for job in jobs if isinstance(job, TrainingJob)]
    alone = [job.name for job in runs if job.checkpoint.s3_uri is None]
    if alone and not cluster.storage.retain and cluster.storage.lustre.existing is None:
        found = f"the checkpoints of {', '.join(alone)} are deleted with the Storage stack"
        remedy = "leave it at true, or set checkpoint.s3_uri"
        yield warning(Code.DATA_NOT_KEPT, ("storage", "retain"), found, remedy)


def _services(job: AnyJob) -> Iterator[str]:
    if isinstance(job, DdpJob):
        yield job.name  # of the Indexed Job
    elif isinstance(job, GpuJob):
        yield f"{job.name}-master-0"
        yield from (f"{job.name}-worker-{index}" for index in range(min(job.nodes, 500) - 1))
