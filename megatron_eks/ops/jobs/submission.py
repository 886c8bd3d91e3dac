"""How `meks submit` reaches what the API server does not know: ECR, IAM, EC2 and /shared."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from megatron_eks.config.codes import Code
from megatron_eks.config.job import TrainingJob
from megatron_eks.ops import programs
from megatron_eks.ops.console import Console
from megatron_eks.ops.data import checkpoints, target
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import NOT_FOUND, Failure
from megatron_eks.ops.jobs import submit
from megatron_eks.ops.jobs.rendering import Wish
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened, Reach, on_cluster
from megatron_eks.plan.cluster.data_access import DataAccess
from megatron_eks.project import OUTPUTS, Project
from megatron_eks.shipping import Shipped


def run(reach: Reach, wish: Wish, options: submit.Options, *, releases: bool) -> int:
    """Submit a job; `releases` says whether its pool's nodes are given back at its end."""

    def act(on: Opened) -> int:
        access, project, console = on
        wanted = replace(
            options,
            built=partial(_built, reach.cluster, project, console),
            send=partial(_send, project, console),
            out_of_reach=partial(_out_of_reach, project, console),
            checkpoint_in=partial(_checkpoint_in, reach.cluster, access, project, console),
        )
        if releases:
            wanted = replace(
                wanted, release=partial(_release, reach.cluster, access, project, console)
            )
        return submit.run(access, project, wish, wanted, console)

    return on_cluster(reach, act, makes=True)


def digest(image: str) -> str | None:
    """Ask ECR for the digest of an image there; nobody else is asked."""
    if ".dkr.ecr." not in image:
        return None
    from megatron_eks.ops.aws import session
    from megatron_eks.ops.cluster import build_records

    region = image.split(".dkr.ecr.")[1].split(".", maxsplit=1)[0]
    repository, _, tag = image.rpartition(":")
    try:
        aws = session.open_session(region, os.environ)
        found = build_records.digest_of(repository, {"imageTag": tag}, aws.client("ecr"))
    except session.ERRORS as error:
        raise session.explained(error) from error
    return found and f"{repository}@{found}"


def _checkpoint_in(
    file: Path, access: Access, project: Project, console: Console, job: TrainingJob
) -> bool:
    found = replace(
        target.at_directory(job.checkpoint.directory, project.cluster.platform.mount_path),
        pool=job.pool,
    )
    claim = target.claim_of(found, project)
    place = SharedPod(access, project, file, console, claim)
    return checkpoints.holds_one(job.checkpoint.directory, place, console)


def _built(file: Path, project: Project, console: Console) -> Mapping[str, str]:
    """Ask CodeBuild for the digests of images of which outputs.json has the tag only."""
    from megatron_eks.ops.aws import session, tools
    from megatron_eks.ops.cluster import outputs

    try:
        aws = session.open_session(project.cluster.region, os.environ)
        opened = tools.Tools(file, project, aws, console)
        stacks = outputs.read(file.with_name(OUTPUTS)).values()
        values = {key: value for each in stacks for key, value in each.items()}
        return outputs.recorded(values, opened)
    except session.ERRORS as error:
        raise session.explained(error) from error


def _send(project: Project, console: Console, shipped: Shipped) -> None:
    """Send a large program as `meks data push` does: the same bytes are sent once."""
    archive, large, bucket = shipped.archive, shipped.needs_bucket, project.outputs.bucket
    if archive is None or large is None:
        return
    if bucket is None:
        raise Failure(Code.NO_BUCKET, large.found, large.remedy, exit_code=NOT_FOUND)
    folder, _, name = shipped.uri(bucket).rpartition("/")
    with TemporaryDirectory(prefix="meks-") as here:
        file = Path(here) / name
        file.write_bytes(archive)
        ended = programs.run(programs.Here(os.environ), "upload", [str(file), folder], console)
    if ended.code:
        found, remedy = f"{name} is not in {folder}", "see above, then run the same command again"
        raise Failure(Code.PROGRAM_FAILED, found, remedy)


def _out_of_reach(
    project: Project, console: Console, role: str, access: DataAccess
) -> Sequence[str]:
    """Ask IAM for the jobs' role, where a job needs it."""
    from megatron_eks.ops.jobs import job_access

    return job_access.out_of_reach(role, access, project.cluster.region, console)


def _release(
    file: Path, access: Access, project: Project, console: Console, pool: str
) -> Callable[[], int]:
    """Open the account before the job starts; return what gives a pool's nodes back."""
    from megatron_eks.ops.aws import session, tools
    from megatron_eks.ops.cluster import scale

    try:
        opened = tools.open_tools(file, project, console, os.environ)
        scale.node_group(pool, opened)
    except session.ERRORS as error:
        raise session.explained(error) from error

    def release() -> int:
        try:
            return scale.release(pool, opened, access.client)
        except session.ERRORS as error:
            console.say(f"the nodes of {pool} still run: meks scale {pool} 0 --when-idle")
            raise session.explained(error) from error

    return release
