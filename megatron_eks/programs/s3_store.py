"""Objects in S3: boto3's transfer manager moves them; here are checksums, conditions and reasons.

Checksums are those that S3 keeps: the SHA-256 of a small object, and for one that was sent in
parts the SHA-256 of the parts' SHA-256
(https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html). S3 checks
each part on arrival, so an object whose checksum is ours holds our bytes.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from megatron_eks.programs import program, s3_errors
from megatron_eks.programs.program import Finding, StopError
from megatron_eks.programs.s3_errors import GoneError, RaceError

__all__ = ["GoneError", "RaceError", "Store", "Stored", "checksum", "part_bytes"]

PART_BYTES = 64 * 2**20
SMALL_BYTES = 512 * 2**20
"""Of the largest manifest: a million files with long names."""
_MOST_PARTS = 10_000
_CONNECT_SECONDS = 10.0
_CHECK = ".write-check"
_PAUSE_SECONDS = 1.0
_READ_BYTES = 2**20

T = TypeVar("T")


@dataclass(frozen=True)
class Stored:
    """An object as S3 lists it."""

    key: str
    size: int
    age_seconds: float
    tag: str


def part_bytes(size: int) -> int:
    """Return the part size in bytes for an object; S3 takes at most 10,000 parts."""
    needed = -(-size // _MOST_PARTS)
    mib = 2**20
    return max(PART_BYTES, -(-needed // mib) * mib)


def checksum(path: Path, part: int) -> str:
    """Return a file's checksum as S3 reports it for this part size in bytes."""
    whole = hashlib.sha256()
    digests: list[bytes] = []
    with path.open("rb", buffering=0) as file:
        left = part
        while chunk := file.read(min(left, _READ_BYTES)):
            whole.update(chunk)
            left -= len(chunk)
            if not left:
                digests.append(whole.digest())
                whole, left = hashlib.sha256(), part
    if left < part or not digests:
        digests.append(whole.digest())
    whole_digest = digests[0] if len(digests) == 1 else hashlib.sha256(b"".join(digests)).digest()
    return base64.b64encode(whole_digest).decode()


def check_uri(uri: str) -> None:
    """Raise StopError for a URI that names no object: HTTP libraries resolve `..`, S3 does not."""
    parts = uri.removeprefix("s3://").rstrip("/").split("/")
    if not uri.startswith("s3://") or {"", ".", ".."} & {*parts} or not uri.isprintable():
        remedy = "write s3://BUCKET/PREFIX, without '.', '..' and '//' in it"
        raise StopError(program.EXIT_USAGE, uri, "no S3 URI", remedy)


class Store:
    """The objects below an S3 URI.

    Raises StopError where S3 cannot be reached or refuses; GoneError and RaceError where the
    caller can act.
    """

    def __init__(
        self, uri: str, *, connections: int = 10, attempts: int = 4, seconds: float = 60.0
    ) -> None:
        """Take a URI, and for how long, and how often, an answer is waited for."""
        check_uri(uri)
        self.uri = uri.rstrip("/")
        self.bucket, _, self.prefix = self.uri.removeprefix("s3://").partition("/")
        try:
            import boto3  # noqa: PLC0415 -- `--help` needs no boto3
            from botocore.config import Config  # noqa: PLC0415 -- as above
        except ImportError as problem:
            found, remedy = "not installed", "run this in a training image"
            raise StopError(program.EXIT_NOT_FOUND, "boto3", found, remedy) from problem
        self._connections, self._attempts = connections, attempts
        config = Config(
            # Three attempts, or AWS_MAX_ATTEMPTS; each of ours has that many.
            retries={"mode": "standard"},
            connect_timeout=min(_CONNECT_SECONDS, seconds),
            read_timeout=seconds,
            max_pool_connections=connections + 2,
        )
        self._client: Any = boto3.client("s3", config=config)

    def upload(
        self, path: Path, key: str, part: int, tell: Callable[[int], None] | None = None
    ) -> None:
        """Send a file, with a SHA-256 for every part; `tell` gets the bytes that went."""
        extra = {"ChecksumAlgorithm": "SHA256"}
        words = {"ExtraArgs": extra, "Callback": tell, "Config": self._config(part)}
        self._ask("upload_file", key, Filename=str(path), **words)

    def download(self, key: str, path: Path) -> None:
        """Fetch an object; the file appears under its name when all bytes are there."""
        config = self._config(PART_BYTES)
        self._ask("download_file", key, reads=True, Filename=str(path), Config=config)

    def describe(self, key: str) -> tuple[int, str | None]:
        """Return size in bytes and SHA-256 checksum of an object, without fetching it."""
        head = self._ask("head_object", key, reads=True, ChecksumMode="ENABLED")
        found = head.get("ChecksumSHA256")
        # Of an object that was sent in parts: the checksum, a dash and the number of parts.
        return head["ContentLength"], found.partition("-")[0] if found else None

    def read(self, key: str) -> tuple[bytes, str]:
        """Return a small object, cut where it is not small, and its entity tag."""

        def get() -> tuple[bytes, str]:
            answer = self._client.get_object(Bucket=self.bucket, Key=self._key(key))
            is_small = answer["ContentLength"] <= SMALL_BYTES
            # Read to its end, an answer that was cut on the way is an error.
            return answer["Body"].read(None if is_small else SMALL_BYTES), answer["ETag"]

        return self._try(key, get, reads=True)

    def part(self, stored: Stored, begin: int, end: int) -> bytes:
        """Return a range of an object; raises RaceError if it has changed since it was listed."""
        words = {"Key": self._key(stored.key), "IfMatch": stored.tag}

        def get() -> bytes:
            span = f"bytes={begin}-{end - 1}"
            answer = self._client.get_object(Bucket=self.bucket, Range=span, **words)
            content: bytes = answer["Body"].read()
            return content

        return self._try(stored.key, get, reads=True)

    def write(self, key: str, content: bytes, *, replacing: str | None) -> None:
        """Write a small object if the one with this entity tag, or none, is there."""
        condition: dict[str, Any] = {"IfMatch": replacing} if replacing else {"IfNoneMatch": "*"}
        self._ask("put_object", key, Body=content, ChecksumAlgorithm="SHA256", **condition)

    def check(self) -> Iterator[Finding]:
        """List, write, read and remove, as copies need it; what only tidying needs is a warning.

        Raises StopError where copies cannot work.
        """
        listed = {"Bucket": self.bucket, "Prefix": self._key(_CHECK), "MaxKeys": 1}
        self._try("", partial(self._client.list_objects_v2, **listed))
        self._ask("put_object", _CHECK, Body=b"x")
        self.read(_CHECK)
        try:
            self._ask("delete_object", _CHECK)
        except StopError as problem:
            yield replace(problem.finding, level="warning")

    def names(self) -> list[str]:
        """Return the names directly below the URI, of what have objects below them."""
        skip = len(self._key(""))
        found = self._list("CommonPrefixes", Prefix=self._key(""), Delimiter="/")
        return [entry["Prefix"][skip:].rstrip("/") for entry in found]

    def objects(self, start: str) -> list[Stored]:
        """Return all objects whose keys start so; keys as the other methods take them."""
        skip, now = len(self._key("")), time.time()
        listed = self._list("Contents", Prefix=self._key(start))
        ages = (now - entry["LastModified"].timestamp() for entry in listed)
        return [
            Stored(entry["Key"][skip:], entry["Size"], age, entry["ETag"])
            for entry, age in zip(listed, ages, strict=True)
        ]

    def delete(self, keys: list[str]) -> None:
        """Remove objects; what is gone already is no error."""
        for start in range(0, len(keys), 1000):
            batch = [{"Key": self._key(key)} for key in keys[start : start + 1000]]
            wanted = {"Objects": batch, "Quiet": True}
            remove = partial(self._client.delete_objects, Bucket=self.bucket, Delete=wanted)
            answer: dict[str, Any] = self._try(keys[start], remove)
            for problem in answer.get("Errors", []):
                place, found = f"s3://{self.bucket}/{problem['Key']}", problem.get("Message")
                remedy = "give the role s3:DeleteObject there"
                raise StopError(program.EXIT_FAILED, place, found or problem["Code"], remedy)

    def _list(self, kind: str, **words: str) -> list[dict[str, Any]]:
        def fetch() -> list[dict[str, Any]]:
            paginator = self._client.get_paginator("list_objects_v2")
            pages = paginator.paginate(Bucket=self.bucket, **words)
            return [entry for page in pages for entry in page.get(kind, [])]

        return self._try("", fetch)

    def _ask(self, method: str, key: str, *, reads: bool = False, **words: object) -> Any:  # noqa: ANN401 -- boto3 ships no types
        call = getattr(self._client, method)
        action = partial(call, Bucket=self.bucket, Key=self._key(key), **words)
        return self._try(key, action, reads=reads)

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _config(self, part: int) -> Any:  # noqa: ANN401 -- boto3 ships no types
        from boto3.s3.transfer import TransferConfig  # noqa: PLC0415 -- as in __init__

        return TransferConfig(
            multipart_threshold=part + 1,
            multipart_chunksize=part,
            max_concurrency=self._connections,
        )

    def _is_absent(self, key: str) -> bool:
        """Whether a listing shows that an object is not there.

        Without the right to list the whole bucket S3 answers a request for a missing object with
        "denied" (S3 API reference, GetObject); a role that may list below a prefix finds out so.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 -- as above

        wanted = self._key(key)
        try:
            found = self._client.list_objects_v2(Bucket=self.bucket, Prefix=wanted, MaxKeys=1)
        except (BotoCoreError, ClientError):
            return False
        return all(entry["Key"] != wanted for entry in found.get("Contents", []))

    def _try(self, key: str, action: Callable[[], T], *, reads: bool = False) -> T:
        """Do something with S3; connections that break are tried again beyond boto3's own."""
        from boto3.exceptions import Boto3Error  # noqa: PLC0415 -- as in __init__
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 -- as above

        subject = f"{self.uri}/{key}"
        for attempt in range(1, self._attempts + 1):
            try:
                return action()
            except (Boto3Error, BotoCoreError, ClientError, ConnectionError) as problem:
                # boto3 wraps what an upload raised, and loses the code in a text.
                cause = problem.__context__ if isinstance(problem, Boto3Error) else problem
                cause = cause or problem
                if (
                    reads
                    and s3_errors.code_of(cause) in {"403", "AccessDenied"}
                    and self._is_absent(key)
                ):
                    raise GoneError(subject) from problem
                s3_errors.judge(subject, cause)
                if attempt == self._attempts:
                    raise s3_errors.given_up(subject, cause) from problem
                time.sleep(_PAUSE_SECONDS * 2**attempt)
        raise AssertionError
