"""AWS's Signature Version 4, as whoever receives a request checks it.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

ALGORITHM = "AWS4-HMAC-SHA256"
EMPTY = hashlib.sha256(b"").hexdigest()
"""The hash of no content."""

_AUTHORIZATION = re.compile(
    ALGORITHM
    + r" Credential=(?P<credential>[^,\s]+),\s*SignedHeaders=(?P<headers>[^,\s]+),"
    + r"\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_SCOPE = re.compile(r"([^/]+)/(\d{8})/([\w-]+)/([\w.-]+)/aws4_request")
_TIME = "%Y%m%dT%H%M%SZ"
# How far the clocks may be apart, and how long a presigned request may hold.
_SKEW = timedelta(minutes=15)
_LONGEST_SECONDS = 7 * 24 * 3600


class RefusedError(Exception):
    """A request without a valid signature: AWS's code, and what is wrong."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Sent:
    """A request as it was sent."""

    method: str
    path: str
    """With its escapes."""
    query: str
    headers: Mapping[str, str]
    """By names in small letters."""
    content_hash: str = EMPTY


@dataclass(frozen=True)
class Signature:
    """What a request says of who signed it."""

    key: str
    day: str
    region: str
    service: str
    time: datetime
    headers: Sequence[str]
    value: str
    token: str
    """Of the session whose key it is; empty for a key that lasts."""
    presigned: bool

    @property
    def scope(self) -> str:
        """What the key is derived for."""
        return f"{self.day}/{self.region}/{self.service}/aws4_request"

    @property
    def authorization(self) -> str:
        """The header that says so."""
        headers = ";".join(self.headers)
        return (
            f"{ALGORITHM} Credential={self.key}/{self.scope}, SignedHeaders={headers}, "
            f"Signature={self.value}"
        )


def signature(sent: Sent) -> Signature:
    """Read a request's signature, from its header or its query; it may be anybody's."""
    query = dict(_pairs(sent.query))
    given = query.get("X-Amz-Algorithm") == ALGORITHM
    if given and "authorization" not in sent.headers:
        found = {
            "credential": query.get("X-Amz-Credential", ""),
            "headers": query.get("X-Amz-SignedHeaders", ""),
            "signature": query.get("X-Amz-Signature", ""),
        }
        time, token = query.get("X-Amz-Date", ""), query.get("X-Amz-Security-Token", "")
    elif match := _AUTHORIZATION.fullmatch(sent.headers.get("authorization", "")):
        given, found = False, match.groupdict()
        time = sent.headers.get("x-amz-date", "")
        token = sent.headers.get("x-amz-security-token", "")
    else:
        raise RefusedError(
            "MissingAuthenticationToken", f"the request is not signed by {ALGORITHM}"
        )
    scope = _SCOPE.fullmatch(found["credential"])
    try:
        signed = datetime.strptime(time, _TIME).replace(tzinfo=UTC)
    except ValueError:
        signed = None
    headers = found["headers"].split(";")
    if scope is None or signed is None or "host" not in headers or time[:8] != scope[2]:
        raise RefusedError("IncompleteSignature", "the signature lacks key, scope, host or date")
    key, day, region, service = scope.groups()
    return Signature(
        key, day, region, service, signed, headers, found["signature"], token, presigned=given
    )


def check(sent: Sent, found: Signature, secret: str) -> None:
    """Raise RefusedError if a request is not what the owner of a secret has signed."""
    if not hmac.compare_digest(_expected(sent, found, secret), found.value):
        raise RefusedError(
            "SignatureDoesNotMatch", "the signature is not the one of this request and key"
        )


def check_time(sent: Sent, found: Signature) -> None:
    """Raise RefusedError if a request was signed too long ago, or in the future."""
    allowed = _SKEW
    if found.presigned:
        seconds = dict(_pairs(sent.query)).get("X-Amz-Expires", "")
        if not seconds.isdecimal() or int(seconds) > _LONGEST_SECONDS:
            raise RefusedError("AuthorizationQueryParametersError", "X-Amz-Expires is no week")
        allowed = timedelta(seconds=int(seconds))
    age = datetime.now(tz=UTC) - found.time
    if not -_SKEW <= age <= allowed:
        raise RefusedError("RequestExpired", f"the request was signed at {found.time:{_TIME}}")


def _expected(sent: Sent, found: Signature, secret: str) -> str:
    """Sign a request once more, as boto3 would."""
    is_s3 = found.service == "s3"
    kind = S3SigV4Auth if is_s3 else SigV4Auth
    signer = kind(Credentials(found.key, secret), found.service, found.region)
    request = AWSRequest(
        sent.method,
        f"http://localhost{sent.path or '/'}",
        # What the signature itself says cannot be part of it.
        params=[pair for pair in _pairs(sent.query) if pair[0] != "X-Amz-Signature"],
        headers={name: sent.headers.get(name, "") for name in found.headers},
    )
    request.context["timestamp"] = found.time.strftime(_TIME)
    head, _, _ = signer.canonical_request(request).rpartition("\n")
    # Whoever gets such an address may send what he likes.
    payload = "UNSIGNED-PAYLOAD" if found.presigned and is_s3 else sent.content_hash
    text = signer.string_to_sign(request, f"{head}\n{payload}")
    return str(signer.signature(text, request))


def _pairs(query: str) -> list[tuple[str, str]]:
    parts = (each.partition("=") for each in query.split("&") if each)
    return [(unquote(name), unquote(value)) for name, _, value in parts]
