"""How `meks submit` reaches what the API server does not know: S3, IAM and /shared."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from botocore.client import BaseClient

from megatron_eks.config.codes import Code
from megatron_eks.config.job import TrainingJob
from megatron_eks.ops import programs
from megatron_eks.ops.data import checkpoints, target
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import NOT_FOUND, Failure
from megatron_eks.ops.kube.teams import of_team
from megatron_eks.ops.opening import Opened
from megatron_eks.plan.cluster.data_access import POLICY_NAME, DataAccess, split
from megatron_eks.shipping import Shipped

REMEDY = "run: meks deploy Storage, which gives the role what job files in jobs/ name"


def checkpoint_in(on: Opened, job: TrainingJob) -> bool:
    """Tell whether a job's directory holds a checkpoint."""
    directory, project = job.checkpoint.directory, of_team(on.project, job.team)
    mount = project.cluster.platform.mount_path
    claim = target.claim_of(replace(target.at_directory(directory, mount), pool=job.pool), project)
    place = SharedPod(on.access, project, on.console, claim)
    return checkpoints.holds_one(directory, place, on.console)


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
    """Ask IAM what of a job's needs in S3 the jobs' role, by its ARN, lacks.

    Who may not look is told so, and held up by nothing.
    """
    if not access.grants:
        return ()
    from megatron_eks.ops.aws import session

    try:
        iam = session.open_session(on.plan.region, os.environ).client("iam")
        return lacking(role, access, iam)
    except session.ERRORS as error:
        told = session.explained(error)
        on.console.say(f"note: what the jobs' role may do in S3 is not checked: {told}")
        return ()


def lacking(role: str, access: DataAccess, iam: BaseClient) -> list[str]:
    """Return URIs and trackers that a role, by its ARN, may not use as jobs would.

    Raises what boto3 raises where nobody may look, or the role is in another account.
    """
    if not access.is_named:
        return []
    name = role.rpartition("/")[2]
    found = iam.get_role_policy(RoleName=name, PolicyName=POLICY_NAME)["PolicyDocument"]
    statements: Sequence[Mapping[str, Any]] = found["Statement"]
    missing = []
    for grant in access.grants:
        # Buckets with patterns of keys, as the Storage stack writes them: lists of both.
        allowed = [
            resource.partition(":::")[2]
            for each in statements
            if grant.action in each["Action"]
            for resource in each["Resource"]
        ]
        wanted = (f"{split(grant.uri)[0]}/{pattern}" for pattern in grant.patterns)
        if not all(
            any(key == each or (each[-1:] == "*" and key.startswith(each[:-1])) for each in allowed)
            for key in wanted
        ):
            missing.append(grant.uri)
    named = {resource for each in statements for resource in each["Resource"]}
    return [*missing, *(arn for arn in access.trackers if arn not in named)]
