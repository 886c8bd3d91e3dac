"""What a job claims for itself: its name, Services, directories and S3 prefixes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, has_errors, warning
from megatron_eks.config.job import AnyJob, DdpJob, GpuJob, TrainingJob
from megatron_eks.plan.cluster.data_access import s3_outputs
from megatron_eks.plan.jobs.file_system import outputs
from megatron_eks.plan.jobs.models import check_model, model_shape

_Place = tuple[str | None, str]
"""A path, and the team that has it below its own folder."""


@dataclass
class Neighbours:
    """The jobs that were checked before, by what they claim; values name their files."""

    names: dict[str, str] = field(default_factory=dict)
    services: dict[str, str] = field(default_factory=dict)
    directories: dict[_Place, str] = field(default_factory=dict)
    outputs: dict[_Place, str] = field(default_factory=dict)
    trained: dict[_Place, TrainingJob] = field(default_factory=dict)
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By S3 prefix; with the directory that is copied there."""

    def check(self, job: AnyJob, file: str) -> Iterator[Finding]:
        """Yield what a job takes from those before it, and remember what it claims."""
        yield from self._names(job, file)
        mine, others = self.outputs, self.directories
        if isinstance(job, TrainingJob):
            mine, others = others, mine
            yield from self._checkpoints(job)
        yield from self._copies(job, file)
        for path, place in outputs(job):
            own = job.team, place
            if mine is self.outputs and own in mine:
                found = f"{mine[own]} writes {place} too"
                remedy = "give each its own place, or never run both"
                yield warning(Code.SAME_OUTPUT, path, found, remedy)
            if others.get(own, file) != file:
                found = f"{others[own]} writes {place} too"
                remedy = "give each its own place: one would destroy what the other made"
                yield warning(Code.SAME_OUTPUT, path, found, remedy)
            mine.setdefault(own, file)

    def _names(self, job: AnyJob, file: str) -> Iterator[Finding]:
        services = set(_services(job))
        if job.name in self.names:
            found = f"{self.names[job.name]} holds a job of the same name"
            yield Finding(Code.DUPLICATE_JOB, ("name",), found, "give each job its own name")
        elif clash := sorted(services & self.services.keys()):
            found = f"{self.services[clash[0]]} has a Service {clash[0]} too"
            remedy = "use another name: the operator adds -worker-N to a job's"
            yield Finding(Code.DUPLICATE_JOB, ("name",), found, remedy)
        self.names.setdefault(job.name, file)
        self.services |= dict.fromkeys(services, file)

    def _checkpoints(self, job: TrainingJob) -> Iterator[Finding]:
        directory, own = job.checkpoint.directory, (job.team, job.checkpoint.directory)
        if own in self.directories:
            other = self.directories[own]
            found = f"{other} saves to {directory} too: run together, one loses"
            remedy = "give each job its own directory, or never run both"
            path: Path = ("checkpoint", "directory")
            level = Level.WARNING
            if _differ(self.trained[own], job):
                level = Level.ERROR
                found = f"{other} saves another model to {directory}: neither resumes from both's"
                remedy = "give each job its own directory"
            yield Finding(Code.SHARED_CHECKPOINTS, path, found, remedy, level)
        self.trained.setdefault(own, job)

    def _copies(self, job: AnyJob, file: str) -> Iterator[Finding]:
        """Refuse one prefix for two runs; jobs of one directory have the same checkpoints."""
        for (path, uri), (_, directory) in zip(s3_outputs(job), outputs(job), strict=False):
            other, its_directory = self.copies.setdefault(uri.rstrip("/"), (file, directory))
            if its_directory != directory:
                found = (
                    f"{other} copies other checkpoints to {uri} too: neither would be whole there"
                )
                beside = uri.rstrip("/").rpartition("/")[0]
                remedy = f"give each job its own prefix: {beside}/{job.name}"
                yield Finding(Code.SHARED_S3_CHECKPOINTS, path, found, remedy)


def _differ(one: TrainingJob, other: TrainingJob) -> bool:
    """Tell whether two jobs cannot take up each other's checkpoints: another shape."""
    if has_errors((*check_model(one.model), *check_model(other.model))):
        return False
    return model_shape(one.model) != model_shape(other.model)


def check_cluster_of(jobs: Sequence[AnyJob], cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield what a cluster file says that does not suit its jobs."""
    runs = [job for job in jobs if isinstance(job, TrainingJob)]
    alone = [job.name for job in runs if job.checkpoint.s3_uri is None]
    if alone and not cluster.storage.retain and cluster.storage.lustre.existing is None:
        found = f"the checkpoints of {', '.join(alone)} are deleted with the Storage stack"
        remedy = "leave it at true, or set checkpoint.s3_uri"
        yield warning(Code.DATA_NOT_KEPT, ("storage", "retain"), found, remedy)


def _services(job: AnyJob) -> Iterator[str]:
    """Yield the names of the Services that pods of a job find each other by."""
    if isinstance(job, DdpJob):
        yield job.name  # of the Indexed Job
    elif isinstance(job, GpuJob):
        yield f"{job.name}-master-0"
        yield from (f"{job.name}-worker-{index}" for index in range(min(job.nodes, 500) - 1))
