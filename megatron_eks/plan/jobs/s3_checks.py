"""What the S3 URIs of a job file can get wrong, alone and together."""

import re
from collections.abc import Iterator, Sequence

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.job import AnyJob, DataPrepJob
from megatron_eks.plan.data_access import (
    MOST_POLICY_CHARACTERS,
    plan_data_access,
    s3_inputs,
    s3_outputs,
    split,
)

# Amazon S3 User Guide, "General purpose bucket naming rules"; the last four are names of other
# things than buckets, for which other permissions count.
_BUCKET = re.compile(
    r"(?!xn--|sthree-|amzn-s3-demo-)(?![0-9.]+$)"
    r"[a-z0-9](?!.*\.\.)[a-z0-9.-]{1,61}[a-z0-9]"
    r"(?<!-s3alias)(?<!--ol-s3)(?<!\.mrap)(?<!--x-s3)(?<!--table-s3)"
)
# They mean something else in an IAM policy.
_SPECIAL = frozenset("$*?")
_SPECIAL_OF_A_PATTERN = frozenset("$")


def check_s3(job: AnyJob) -> Iterator[Finding]:
    """Yield which URIs name nothing that the jobs' role could be given."""
    outputs = list(s3_outputs(job))
    special = _SPECIAL_OF_A_PATTERN if isinstance(job, DataPrepJob) else _SPECIAL
    for path, uri in (*s3_inputs(job), *outputs):
        bucket, key = split(uri)
        if not _BUCKET.fullmatch(bucket):
            remedy = "use s3://BUCKET/PREFIX, BUCKET being what `aws s3 ls` prints"
            yield Finding(Code.S3_URI, path, f"{bucket!r} is no name of a bucket", remedy)
        bad = sorted({char for char in key if char in special or not _plain(char)})
        if bad:
            found = f"{''.join(bad)!r} in a key has no place in the policy of the jobs' role"
            remedy = "use letters, digits and -_./=+@:, in keys"
            yield Finding(Code.S3_URI, path, found, remedy)
    for path, uri in outputs:
        bucket, key = split(uri)
        if not key.strip("/"):
            found = "jobs would write, and delete, in the whole bucket"
            remedy = f"name a prefix of this job's own: s3://{bucket}/{job.name}"
            yield Finding(Code.S3_URI, path, found, remedy)


def check_repositories(job: AnyJob, cluster: ClusterConfig) -> Iterator[Finding]:
    """Yield prefixes that a job and the file system's data repositories both write."""
    for path, uri in s3_outputs(job):
        own = f"{uri.rstrip('/')}/"
        for repository in cluster.storage.lustre.data_repositories:
            other = f"{repository.s3_uri.rstrip('/')}/"
            if repository.export_changes and (own.startswith(other) or other.startswith(own)):
                found = (
                    f"{repository.path} of the file system is written to {repository.s3_uri} too"
                )
                remedy = "give the job a prefix outside of it, or set export_changes: false"
                yield Finding(Code.SHARED_S3_CHECKPOINTS, path, found, remedy)


def check_policy(jobs: Sequence[tuple[AnyJob, str]]) -> Iterator[tuple[str, Finding]]:
    """Yield, with its file, the last URI where all name more than a role's policy can hold."""
    size = plan_data_access(job for job, _ in jobs).policy_characters
    if size > MOST_POLICY_CHARACTERS:
        found = (
            f"with what the other jobs name, the policy of the jobs' role has {size:,} characters, "
            f"and IAM takes {MOST_POLICY_CHARACTERS:,}"
        )
        remedy = "name folders that several jobs share, or fewer and shorter URIs"
        file, path = [
            (file, path) for job, file in jobs for path, _ in (*s3_inputs(job), *s3_outputs(job))
        ][-1]
        yield file, Finding(Code.S3_POLICY_TOO_LONG, path, found, remedy)


def _plain(char: str) -> bool:
    return char.isascii() and char.isprintable()
