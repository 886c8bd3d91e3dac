"""What the pods of jobs may reach in S3: data that was pushed for them, and what job files name."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from megatron_eks.config.errors import Path
from megatron_eks.config.job import AnyJob, DataPrepJob, FetchJob, Job, TrainingJob

S3 = "s3://"
PUSHED_DATA = "data"
"""Where `meks data push` puts files in the cluster's bucket; every job may read them."""

MOST_POLICY_CHARACTERS = 10_240
"""Of all policies inside a role, without white space (IAM User Guide, "IAM and STS quotas")."""

POLICY_NAME = "Permissions"
"""Of the policy inside a role of this project."""

# What the policy takes without what jobs name; for each bucket; and for each pattern of a key, at
# the longest names of partitions. A test compares them with a real policy.
_POLICY, _A_BUCKET, _A_PATTERN = 620, 310, 26

# Where a pattern of Python's fnmatch begins.
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class BucketAccess:
    """What is allowed in one bucket, as patterns of keys in which only `*` is special."""

    bucket: str
    read: tuple[str, ...]
    write: tuple[str, ...]
    """Also read, and delete."""


@dataclass(frozen=True)
class Grant:
    """What one URI of a job file needs."""

    uri: str
    action: str
    """That of S3 which tells reading from writing."""
    patterns: tuple[str, ...]
    """Of keys in the URI's bucket."""


@dataclass(frozen=True)
class DataAccess:
    """Of all jobs together: they share a service account, hence a role."""

    reads: tuple[str, ...]
    """URIs of job files, in order; `PUSHED_DATA` of the cluster's own bucket is always there."""
    writes: tuple[str, ...]
    buckets: tuple[BucketAccess, ...]

    @property
    def grants(self) -> tuple[Grant, ...]:
        """What the role must allow, in the order of the URIs."""
        return (
            *(Grant(uri, "s3:GetObject", tuple(_readable(split(uri)[1]))) for uri in self.reads),
            *(Grant(uri, "s3:PutObject", (_written(split(uri)[1]),)) for uri in self.writes),
        )

    @property
    def policy_characters(self) -> int:
        """Length of the role's policy, or a little more."""
        patterns = [
            f"{each.bucket}{pattern}"
            for each in self.buckets
            # What is read or written is listed too.
            for pattern in 2 * (*each.read, *each.write)
        ]
        buckets = sum(_A_BUCKET + len(each.bucket) for each in self.buckets)
        return _POLICY + buckets + sum(_A_PATTERN + len(pattern) for pattern in patterns)


def plan_data_access(jobs: Iterable[AnyJob]) -> DataAccess:
    """Collect what jobs that have passed the checks name; without jobs nothing is named."""
    jobs = tuple(jobs)
    reads = sorted({uri for job in jobs for _, uri in s3_inputs(job)})
    writes = sorted({uri for job in jobs for _, uri in s3_outputs(job)})
    read: dict[str, set[str]] = defaultdict(set)
    write: dict[str, set[str]] = defaultdict(set)
    for uri in reads:
        bucket, key = split(uri)
        read[bucket].update(_readable(key))
    for uri in writes:
        bucket, key = split(uri)
        write[bucket].add(_written(key))
    buckets = tuple(
        BucketAccess(name, tuple(sorted(read[name])), tuple(sorted(write[name])))
        for name in sorted({*read, *write})
    )
    return DataAccess(tuple(reads), tuple(writes), buckets)


def s3_inputs(job: Job) -> Iterator[tuple[Path, str]]:
    """Yield the URIs that a job reads, each with its place in the file."""
    if isinstance(job, FetchJob) and job.s3_uri is not None:
        yield ("s3_uri",), job.s3_uri
    if isinstance(job, DataPrepJob):
        for index, source in enumerate(job.input):
            if source.startswith(S3):
                yield ("input", index), source


def s3_outputs(job: Job) -> Iterator[tuple[Path, str]]:
    """Yield the URIs that a job writes below, each with its place in the file."""
    if isinstance(job, TrainingJob) and job.checkpoint.s3_uri is not None:
        yield ("checkpoint", "s3_uri"), job.checkpoint.s3_uri


def split(uri: str) -> tuple[str, str]:
    """Return the bucket and the key of a URI; the key of a whole bucket is empty."""
    bucket, _, key = uri.removeprefix(S3).partition("/")
    return bucket, key


def _written(key: str) -> str:
    return f"{key.rstrip('/')}/*"


def _readable(key: str) -> Iterator[str]:
    """Yield the keys that a URI stands for: an object, a folder, or what a pattern may match."""
    special = _PATTERN.search(key)
    if special:
        yield f"{key[: special.start()]}*"
    elif not key or key.endswith("/"):
        yield f"{key}*"
    else:
        yield key
        yield f"{key}/*"
