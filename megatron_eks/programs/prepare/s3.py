"""Inputs in S3: found by name, prefix or pattern, read as a stream that survives a cut."""

import fnmatch
import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from megatron_eks.programs import s3_store
from megatron_eks.programs.prepare.inputs import CHUNK_BYTES, Source, has_line_name
from megatron_eks.programs.prepare.job import failure, usage
from megatron_eks.programs.program import StopError

ATTEMPTS = 6

_GONE = ("404", "NoSuchKey", "NoSuchBucket", "NotFound")
_CHANGED = ("412", "PreconditionFailed")


@functools.cache
def client() -> Any:  # noqa: ANN401 -- boto3 makes its classes at run time
    """Return the one client; region, credentials and endpoint come from the environment."""
    return boto3.client("s3")


@dataclass(frozen=True)
class S3Object(Source):
    """One object, at the version that was found first."""

    def raw(self, start: int, end: int) -> Iterator[bytes]:
        """Read the stored bytes of a range; a cut stream goes on where it was cut."""
        bucket, key = _parts(self.name)
        failures = 0
        while start < end:
            try:
                for chunk in self._get(bucket, key, start, end):
                    start += len(chunk)
                    failures = 0
                    yield chunk
            # urllib3 is botocore's own; its errors pass through a streaming body now and then.
            except (ClientError, BotoCoreError, OSError) as problem:
                failures += 1
                self._judge(problem, failures)

    def _get(self, bucket: str, key: str, start: int, end: int) -> Iterator[bytes]:
        body = client().get_object(
            Bucket=bucket,
            Key=key,
            Range=f"bytes={start}-{end - 1}",
            IfMatch=self.identity.removeprefix("etag:"),
        )["Body"]
        with body:
            yield from body.iter_chunks(CHUNK_BYTES)

    def _judge(self, problem: Exception, failures: int) -> None:
        """Raise where another attempt cannot help, else wait for a while."""
        code = problem.response["Error"]["Code"] if isinstance(problem, ClientError) else ""
        if code in {*_CHANGED, *_GONE}:
            found = "it was changed or removed while it was read"
            raise failure(self.name, found, "start again") from problem
        if failures == ATTEMPTS:
            found = f"cannot be read: {problem}"
            raise failure(self.name, found, "continue with --resume") from problem
        time.sleep(0.2 * 2 ** (failures - 1))


def find(word: str) -> list[S3Object]:
    """Return the object of this name; of a prefix that ends in `/`, or of a pattern, all."""
    try:
        s3_store.check_uri(word)
    except StopError as problem:
        raise usage(word, problem.finding.found, problem.finding.remedy) from problem
    bucket, pattern = _parts(word)
    try:
        if pattern.endswith("/") or not pattern:
            found = [item for item in _list(bucket, pattern) if has_line_name(item.name)]
        elif any(sign in pattern for sign in "*?["):
            prefix = pattern[: min(pattern.index(sign) for sign in "*?[" if sign in pattern)]
            every = _list(bucket, prefix)
            found = [item for item in every if fnmatch.fnmatchcase(_parts(item.name)[1], pattern)]
        else:
            head = client().head_object(Bucket=bucket, Key=pattern)
            found = [S3Object(word, head["ContentLength"], f"etag:{head['ETag']}")]
    except (ClientError, BotoCoreError) as problem:
        raise usage(word, f"cannot be read: {problem}", "correct --input, or the role") from problem
    if not found:
        raise usage(word, "no object matches", "correct --input")
    return found


def _list(bucket: str, prefix: str) -> list[S3Object]:
    pages = client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [
        S3Object(f"s3://{bucket}/{item['Key']}", item["Size"], f"etag:{item['ETag']}")
        for page in pages
        for item in page.get("Contents", [])
    ]


def _parts(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
