"""What the pods of jobs may reach in AWS: pushed data, URIs of job files, trackers."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path
from megatron_eks.config.job import AnyJob, DataPrepJob, Job

S3 = "s3://"
PUSHED_DATA = "data"
"""Where `meks data push` puts files in the cluster's bucket; every job may read them."""

POLICY_NAME = "Permissions"
"""Of the policy inside a role of this project."""

# Where a pattern of Python's fnmatch begins.
_PATTERN = re.compile(r"[*?\[]")

# Amazon S3 User Guide, "General purpose bucket naming rules"; what ends so is no bucket, and other
# permissions count for it.
_BUCKET = re.compile(r"(?![0-9.]+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_BUCKET_STARTS = ("xn--", "sthree-", "amzn-s3-demo-")
_BUCKET_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
# They mean something else in an IAM policy.
_SPECIAL = frozenset("$*?")
_SPECIAL_OF_A_PATTERN = frozenset("$")


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
    trackers: tuple[str, ...] = ()
    """ARNs of SageMaker's MLflow."""

    @property
    def grants(self) -> tuple[Grant, ...]:
        """What the role must allow, in the order of the URIs."""
        return (
            *(Grant(uri, "s3:GetObject", tuple(_readable(split(uri)[1]))) for uri in self.reads),
            *(Grant(uri, "s3:PutObject", (_written(split(uri)[1]),)) for uri in self.writes),
        )

    @property
    def is_named(self) -> bool:
        """Whether the role allows more than it would without job files."""
        return bool(self.grants or self.trackers)


def plan_data_access(jobs: Iterable[AnyJob]) -> DataAccess:
    """Collect what jobs that have passed the checks name; without jobs nothing is named."""
    jobs = tuple(jobs)
    reads = sorted({uri for job in jobs for *_, uri in job.used("fetches")})
    writes = sorted({uri for job in jobs for *_, uri in job.used("copies")})
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
    trackers = sorted({arn for job in jobs for _, arn in mlflow_arns(job)})
    return DataAccess(tuple(reads), tuple(writes), buckets, tuple(trackers))


def mlflow_arns(job: Job) -> Iterator[tuple[Path, str]]:
    """Yield what a job logs to with its pods' own credentials, with its place in the file."""
    tracking = job.runtime.tracking
    if tracking and tracking.mlflow and tracking.mlflow.arn is not None:
        yield ("runtime", "tracking", "mlflow", "arn"), tracking.mlflow.arn


def split(uri: str) -> tuple[str, str]:
    """Return the bucket and the key of a URI; the key of a whole bucket is empty."""
    bucket, _, key = uri.removeprefix(S3).partition("/")
    return bucket, key


def overlap(one: str, other: str) -> bool:
    """Tell whether one of two folders holds the other."""
    one, other = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return one.startswith(other) or other.startswith(one)


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


def check_s3(job: AnyJob) -> Findings:
    """Yield which URIs name nothing that the jobs' role could be given."""
    outputs = job.used("copies")
    special = _SPECIAL_OF_A_PATTERN if isinstance(job, DataPrepJob) else _SPECIAL
    for path, _, uri in (*job.used("fetches"), *outputs):
        bucket, key = split(uri)
        if not _BUCKET.fullmatch(bucket) or _misnamed(bucket):
            remedy = "use s3://BUCKET/PREFIX, BUCKET being what `aws s3 ls` prints"
            yield Finding(Code.S3_URI, path, f"{bucket!r} is no name of a bucket", remedy)
        bad = sorted({char for char in key if char in special or not " " <= char <= "~"})
        if bad:
            found = f"{''.join(bad)!r} in a key has no place in the policy of the jobs' role"
            yield Finding(Code.S3_URI, path, found, "use letters, digits and -_./=+@:, in keys")
    for path, _, uri in outputs:
        bucket, key = split(uri)
        if not key.strip("/"):
            found = "jobs would write, and delete, in the whole bucket"
            remedy = f"name a prefix of this job's own: s3://{bucket}/{job.name}"
            yield Finding(Code.S3_URI, path, found, remedy)


def check_exported(job: AnyJob, cluster: ClusterConfig) -> Findings:
    """Yield prefixes that a job and the file system's data repositories both write."""
    for path, _, uri in job.used("copies"):
        for repository in cluster.storage.lustre.data_repositories:
            if repository.export_changes and overlap(uri, repository.s3_uri):
                found = f"{repository.path} of Lustre is written to {repository.s3_uri} too"
                remedy = "give the job a prefix outside of it, or set export_changes: false"
                yield Finding(Code.SHARED_S3_CHECKPOINTS, path, found, remedy)


def check_bucket(path: Path, uri: str) -> Findings:
    """Yield why S3 has no bucket of this name, or none that takes requests by its name alone."""
    name = split(uri)[0]
    if problem := _misnamed(name):
        yield Finding(Code.BUCKET_NAME, path, f"{name!r} {problem}", "use the bucket's own name")


def _misnamed(name: str) -> str | None:
    rules = (
        (".." in name, "has two dots in a row"),
        (_is_address(name), "has the form of an address"),
        (name.startswith(_BUCKET_STARTS[:2]), "starts with what S3 keeps for itself"),
        (name.endswith(_BUCKET_ENDS), "is an access point's or a directory's, not a bucket's"),
        (name.startswith(_BUCKET_STARTS), "is one of AWS's examples"),
    )
    return next((problem for applies, problem in rules if applies), None)


def _is_address(name: str) -> bool:
    try:
        IPv4Address(name)
    except AddressValueError:
        return False
    return True
