"""What the jobs of one cluster do to each other: names, directories, and the file system's room."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from megatron_eks.catalog.models import PRESETS
from megatron_eks.catalog.pins import POD_UID
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, has_errors, warning
from megatron_eks.config.job import (
    AnyJob,
    ConvertCheckpointJob,
    DataPrepJob,
    DdpJob,
    FetchJob,
    GpuJob,
    MegatronRun,
    TrainingJob,
)
from megatron_eks.plan.data_access import s3_outputs
from megatron_eks.plan.jobs.layout import model_shape
from megatron_eks.plan.jobs.model_checks import check_model
from megatron_eks.plan.jobs.s3_checks import check_policy
from megatron_eks.plan.jobs.source_checks import preset_of
from megatron_eks.plan.storage import SHARED_DIRECTORIES
from megatron_eks.plan.storage_checks import size_for
from megatron_eks.predict import memory, replicas
from megatron_eks.predict.memory import GIB
from megatron_eks.predict.parameters import parameters

# bf16, as nearly all models are published.
_WEIGHT_BYTES_PER_PARAMETER = 2


@dataclass
class Neighbours:
    """The jobs that were checked before, by what they claim; values name their files."""

    names: dict[str, str] = field(default_factory=dict)
    services: dict[str, str] = field(default_factory=dict)
    directories: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    trained: dict[str, TrainingJob] = field(default_factory=dict)
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By S3 prefix; with the directory that is copied there."""

    def check(self, job: AnyJob, file: str) -> Iterator[Finding]:
        """Yield what a job takes from those before it, and remember what it claims."""
        yield from self._names(job, file)
        if isinstance(job, TrainingJob):
            yield from self._checkpoints(job)
            self.directories.setdefault(job.checkpoint.directory, file)
            self.trained.setdefault(job.checkpoint.directory, job)
        for path, output in _outputs(job):
            if output in self.outputs:
                found = f"{self.outputs[output]} writes {output} too"
                remedy = "give each its own place, or never run both"
                yield warning(Code.SAME_OUTPUT, path, found, remedy)
            self.outputs.setdefault(output, file)
        if isinstance(job, TrainingJob):
            yield from self._copies(job, file)
        yield from self._overwritten(job, file)

    def _overwritten(self, job: AnyJob, file: str) -> Iterator[Finding]:
        """Yield checkpoints that are saved where other jobs put something else."""
        made: list[tuple[Path, str]] = list(_outputs(job))
        if isinstance(job, TrainingJob):
            made = [(("checkpoint", "directory"), job.checkpoint.directory)]
        others = self.outputs if isinstance(job, TrainingJob) else self.directories
        for path, place in made:
            if others.get(place, file) != file:
                found = f"{others[place]} writes {place} too"
                remedy = "give each its own place: one would destroy what the other made"
                yield warning(Code.SAME_OUTPUT, path, found, remedy)

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
        directory = job.checkpoint.directory
        if directory in self.directories:
            other = self.directories[directory]
            found = f"{other} saves to {directory} too: run together, one loses"
            remedy = "give each job its own directory, or never run both"
            path: Path = ("checkpoint", "directory")
            level = Level.WARNING
            if _differ(self.trained[directory], job):
                level = Level.ERROR
                found = f"{other} saves another model to {directory}: neither resumes from both's"
                remedy = "give each job its own directory"
            yield Finding(Code.SHARED_CHECKPOINTS, path, found, remedy, level)

    def _copies(self, job: TrainingJob, file: str) -> Iterator[Finding]:
        """Refuse one prefix for two runs; jobs of one directory have the same checkpoints."""
        for path, uri in s3_outputs(job):
            directory = job.checkpoint.directory
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
    runtimes = [job.runtime for job in jobs]
    needed = any(runtime.host_network or runtime.ipc_lock for runtime in runtimes)
    if cluster.platform.pod_security == "privileged" and runtimes and not needed:
        found = "no job takes the host's network, and EFA needs nothing of the host"
        yield warning(Code.NEEDLESS_RIGHTS, ("platform", "pod_security"), found, "use restricted")


def check_together(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig | None
) -> Iterator[tuple[str, Finding]]:
    """Yield, with their files, what only all jobs together get wrong."""
    if cluster is not None:
        yield from _check_room(jobs, cluster)
        yield from _check_owner(jobs, cluster)
    yield from check_policy(jobs)


def _check_room(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig
) -> Iterator[tuple[str, Finding]]:
    """Yield, with its file, the job whose checkpoints fill what the others leave."""
    capacity = cluster.storage.lustre.capacity_gib * GIB
    kinds: dict[bool, dict[str, int]] = {True: {}, False: {}}
    whole: dict[bool, dict[str, int]] = {True: {}, False: {}}
    rooms = [
        (file, isinstance(job, TrainingJob), *room)
        for job, file in jobs
        for room in _room(job)
        # EFS grows by itself.
        if room[1].startswith(f"{cluster.storage.lustre.mount_path}/")
    ]
    for _, trains, _, place, needed in rooms:
        whole[trains][place] = max(needed, whole[trains].get(place, 0))
    for file, trains, path, place, needed in rooms:
        taken = kinds[trains]
        before = sum(taken.values())
        taken[place] = max(needed, taken.get(place, 0))
        after = sum(taken.values())
        room = f"GiB of {cluster.storage.lustre.capacity_gib}"
        if before <= capacity < after and needed <= capacity:
            what = "checkpoints" if trains else "weights"
            found = f"the {what} of {len(taken)} jobs take {after / GIB:.0f} {room}"
            size = size_for(cluster.storage.lustre, -(-sum(whole[trains].values()) // GIB))
            remedy = (
                "keep fewer, delete those of finished runs, or set "
                f"storage.lustre.capacity_gib: {size}"
            )
            code = Code.CHECKPOINTS_TOGETHER
            yield file, warning(code, path, found, remedy)


def _check_owner(
    jobs: Sequence[tuple[AnyJob, str]], cluster: ClusterConfig
) -> Iterator[tuple[str, Finding]]:
    """Yield, with its file, what a job writes where nobody has made room for pods."""
    lustre = cluster.storage.lustre
    if lustre.existing is None or lustre.existing.path is not None:
        return
    ours = [f"{lustre.mount_path}/{name}" for name in SHARED_DIRECTORIES]
    for job, file in jobs:
        written = [*_outputs(job)]
        if isinstance(job, TrainingJob):
            written.append((("checkpoint", "directory"), job.checkpoint.directory))
        for path, place in written:
            top = "/".join(place.split("/")[: lustre.mount_path.count("/") + 2])
            if place.startswith(f"{lustre.mount_path}/") and top not in ours:
                found = f"the file system exists, and nothing here makes {top} the pods'"
                remedy = (
                    f"use a path below {', '.join(ours)}, or set storage.lustre.existing.path; "
                    f"or see that user {POD_UID} may write there"
                )
                yield file, warning(Code.SHARED_DIRECTORIES, path, found, remedy)


def _room(job: AnyJob) -> Iterator[tuple[Path, str, int]]:
    """Yield what a job leaves on the file system: for which key, where, and how many bytes."""
    if isinstance(job, TrainingJob) and not has_errors(check_model(job.model)):
        yield ("checkpoint", "keep_last"), job.checkpoint.directory, _checkpoint_bytes(job)
    elif isinstance(job, FetchJob) and (preset := preset_of(job)):
        size = parameters(PRESETS[preset]) * _WEIGHT_BYTES_PER_PARAMETER
        yield ("directory",), job.directory, size
    elif isinstance(job, ConvertCheckpointJob) and job.model in PRESETS:
        size = parameters(PRESETS[job.model]) * _WEIGHT_BYTES_PER_PARAMETER
        yield ("target",), job.target, size


def _checkpoint_bytes(job: TrainingJob) -> int:
    each = replicas.CHECKPOINT_BYTES_PER_PARAMETER
    if isinstance(job, MegatronRun):
        each = memory.CHECKPOINT_BYTES_PER_PARAMETER
    return job.checkpoint.keep_last * each * parameters(model_shape(job.model))


def _services(job: AnyJob) -> Iterator[str]:
    """Yield the names of the Services that pods of a job find each other by."""
    if isinstance(job, DdpJob):
        yield job.name  # of the Indexed Job
    elif isinstance(job, GpuJob):
        yield f"{job.name}-master-0"
        yield from (f"{job.name}-worker-{index}" for index in range(min(job.nodes, 500) - 1))


def _outputs(job: AnyJob) -> Iterator[tuple[Path, str]]:
    if isinstance(job, FetchJob):
        yield ("directory",), job.directory
    elif isinstance(job, ConvertCheckpointJob):
        yield ("target",), job.target
    elif isinstance(job, DataPrepJob):
        for index, key in enumerate(job.json_keys):
            path: Path = (
                ("json_keys", index) if "json_keys" in job.model_fields_set else ("output_prefix",)
            )
            yield path, f"{job.output_prefix}_{key}_document"
