"""How `meks submit` reaches what the API server does not know: ECR, IAM, EC2 and /shared."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from megatron_eks.config.codes import Code
from megatron_eks.config.job import TrainingJob
from megatron_eks.ops import programs
from megatron_eks.ops.data import checkpoints, target
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import NOT_FOUND, Failure
from megatron_eks.ops.kube.teams import of_team
from megatron_eks.ops.opening import Opened
from megatron_eks.plan.cluster.data_access import DataAccess
from megatron_eks.project import OUTPUTS
from megatron_eks.shipping import Shipped


def digest(image: str) -> str | None:
    """Ask ECR for the digest of an image there; nobody else is asked."""
    if ".dkr.ecr." not in image:
        return None
    from megatron_eks.ops.aws import session
    from megatron_eks.ops.cluster import build_records

    region = image.split(".dkr.ecr.")[1].split(".", maxsplit=1)[0]
    repository, _, tag = image.rpartition(":")
    with session.explaining():
        aws = session.open_session(region, os.environ)
        found = build_records.digest_of(repository, {"imageTag": tag}, aws.client("ecr"))
    return found and f"{repository}@{found}"


def checkpoint_in(on: Opened, job: TrainingJob) -> bool:
    """Tell whether a job's directory holds a checkpoint."""
    directory, project = job.checkpoint.directory, of_team(on.project, job.team)
    mount = project.cluster.platform.mount_path
    claim = target.claim_of(replace(target.at_directory(directory, mount), pool=job.pool), project)
    place = SharedPod(on.access, project, on.console, claim)
    return checkpoints.holds_one(directory, place, on.console)


def built(on: Opened) -> Mapping[str, str]:
    """Ask CodeBuild for the digests of images of which outputs.json has the tag only."""
    from megatron_eks.ops.aws import session, tools
    from megatron_eks.ops.cluster import outputs

    with session.explaining():
        aws = session.open_session(on.plan.region, os.environ)
        stacks = outputs.read(on.project.file.with_name(OUTPUTS)).values()
        values = {key: value for each in stacks for key, value in each.items()}
        return outputs.recorded(values, tools.Tools(on.project.file, on.project, aws, on.console))


def send(on: Opened, shipped: Shipped) -> None:
    """Send a large program as `meks data push` does: the same bytes are sent once."""
    archive, large, bucket = shipped.archive, shipped.needs_bucket, on.project.outputs.bucket
    if archive is None or large is None:
        return
    if bucket is None:
        raise Failure(Code.NO_BUCKET, large.found, large.remedy, exit_code=NOT_FOUND)
    folder, _, name = shipped.uri(bucket).rpartition("/")
    with TemporaryDirectory(prefix="meks-") as here:
        file = Path(here) / name
        file.write_bytes(archive)
        ended = programs.run(programs.Here(os.environ), "upload", [str(file), folder], on.console)
    if ended.code:
        found, remedy = f"{name} is not in {folder}", "see above, then run the same command again"
        raise Failure(Code.PROGRAM_FAILED, found, remedy)


def out_of_reach(on: Opened, role: str, access: DataAccess) -> Sequence[str]:
    """Ask IAM what of a job's needs in S3 the jobs' role, by its ARN, lacks."""
    if not access.grants:
        return ()
    from megatron_eks.ops.jobs import job_access

    return job_access.out_of_reach(role, access, on.plan.region, on.console)
