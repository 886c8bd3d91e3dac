"""What `meks ckpt` was told to look at: a job of jobs/, a directory, or an S3 URI."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path, PurePosixPath
from posixpath import normpath

from megatron_eks import DEFAULT_CLUSTER
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Level
from megatron_eks.config.job import TorchrunJob, TrainingJob
from megatron_eks.config.storage import MOUNT_PATH
from megatron_eks.config.training import OwnCheckpoint
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import USAGE, Failure, no_such
from megatron_eks.ops.opening import Reach, at, console_here, load, today
from megatron_eks.ops.programs import Place
from megatron_eks.plan.cluster.data_access import S3
from megatron_eks.project import Project, check_files, job_files


@dataclass(frozen=True)
class Target:
    """Where checkpoints are."""

    word: str
    """As the user wrote it."""
    directory: str | None = None
    uri: str | None = None
    pool: str | None = None
    """Of a job: its zone may have a file system of its own."""
    marker: str | None = None
    """Of a program of the user's: the file that its saves write last."""
    is_shared: bool = False
    """Whether the directory is on the shared file system."""


def act(
    reach: Reach,
    word: str,
    do: Callable[[Target, Place, Console], int],
    toward: Callable[[Target, str], Target] = lambda found, _: found,
    *,
    yes: bool = False,
) -> int:
    """Find out what was named and act where that is: in the cluster, or on this machine.

    `toward` says where it goes, from what was found and the path of /shared in pods.
    """
    # What is in S3 or on this machine needs no cluster.
    alone = reach.cluster == Path(DEFAULT_CLUSTER) and not reach.cluster.exists()
    project = None if alone and _is_place(word) else load(reach.cluster, console_here())
    mount = project.cluster.platform.mount_path if project else MOUNT_PATH
    found = toward(resolve(word, mount, reach.cluster, today()), mount)
    claim = None
    if found.is_shared:
        project = project or load(reach.cluster, console_here())
        claim = claim_of(found, project)
    job = None if _is_place(word) else word
    return at(reach, project, claim, partial(do, found), yes=yes, job=job)


def to_pull(found: Target, shared: str | None, local: str | None, mount: str) -> Target:
    """Return where a pull fetches from and to. Raises Failure if one of both is not said."""
    if found.uri is None:
        if local is not None and found.is_shared:
            return found
        raise _no_copy(found, "pull")
    if local is not None:
        return replace(found, directory=str(Path(local).absolute()), is_shared=False)
    if shared is None:
        if found.directory is None:
            remedy = f"add a directory below {mount}, or --local DIR"
            raise _refused(f"nobody says where {found.uri} goes to", remedy)
        return found
    place = at_directory(shared, mount)
    if not place.is_shared:
        raise _refused(f"{shared} is not below {mount}", f"--local {shared} fetches to here")
    return replace(found, directory=place.directory, is_shared=True)


def to_push(found: Target, uri: str | None) -> Target:
    """Return where a push sends from and to. Raises Failure if one of both is not said."""
    if found.directory is None:
        raise _refused(f"{found.word} is in S3 already", "name a job or a directory first")
    if uri is None and found.uri is None:
        raise _no_copy(found, "push")
    return replace(found, uri=_checked(uri or str(found.uri)))


def resolve(word: str, mount: str, cluster_file: Path, today: date) -> Target:
    """Say where a job, a directory or an S3 URI leads; raise Failure with what is allowed."""
    if word.startswith(S3):
        return Target(word, uri=_checked(word))
    if _is_place(word):
        return at_directory(word, mount)
    files = check_files(cluster_file, job_files(cluster_file), today)
    wrong = {each.file for each in files.findings if each.level is Level.ERROR}
    jobs = {
        job.name: (job, job.checkpoint)
        for document, job in files.jobs
        if isinstance(job, TrainingJob | TorchrunJob)
        and job.checkpoint is not None
        and document.file not in wrong
    }
    if word not in jobs:
        if wrong:
            raise ConfigError(files.findings)
        found = f"no training job {word!r} in jobs/, so its checkpoints are not known"
        more = "; or name a directory (with a /) or an S3 URI"
        raise no_such(Code.NO_CHECKPOINTS, found, word, jobs, more=more)
    job, saved = jobs[word]
    place = at_directory(saved.directory, mount)
    if not place.is_shared:
        found = f"{word} saves to {saved.directory}, which is deleted with its pods"
        raise _refused(found, f"let checkpoint.directory be below {mount}")
    marker = saved.complete_marker if isinstance(saved, OwnCheckpoint) else None
    return replace(place, word=word, uri=saved.s3_uri, pool=job.pool, marker=marker)


def at_directory(word: str, mount: str) -> Target:
    """Return a directory: below the mount path it is the cluster's, else this machine's."""
    is_shared = PurePosixPath(normpath(word)).is_relative_to(mount)
    directory = word if is_shared else str(Path(word).absolute())
    return Target(word, directory=directory.rstrip("/") or "/", is_shared=is_shared)


def claim_of(target: Target, project: Project) -> str:
    """Return the claim on the file system that a target's job saves to."""
    plan = project.cluster
    pool = plan.pool(target.pool) if target.pool else None
    return plan.platform.claim_in(pool.zone) if pool else plan.platform.claim


def _is_place(word: str) -> bool:
    return "/" in word or word in {".", ".."}


def _no_copy(found: Target, verb: str) -> Failure:
    text = f"{found.word} names no copy in S3"
    remedy = (
        f"set checkpoint.s3_uri of the job, or name s3://BUCKET/PREFIX: meks ckpt {verb} --help"
    )
    return Failure(Code.NO_S3_COPY, text, remedy, exit_code=USAGE)


def _checked(uri: str) -> str:
    bucket, _, key = uri.removeprefix(S3).partition("/")
    if not uri.startswith(S3) or not bucket or not key.strip("/"):
        found = f"{uri!r} is no place for the checkpoints of a run"
        raise _refused(found, "write s3://BUCKET/PREFIX")
    return uri.rstrip("/")


def _refused(found: str, remedy: str) -> Failure:
    return Failure(Code.NO_CHECKPOINTS, found, remedy, exit_code=USAGE)
