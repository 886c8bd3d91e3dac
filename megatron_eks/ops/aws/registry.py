"""The digest of an image that is known by tag, as its registry states it and its content proves.

OCI Distribution Specification 1.1, "Pulling manifests", and CNCF Distribution, "Token
Authentication": a registry that wants a token says where anybody gets one.
"""

import hashlib
import http.client
import json
import re
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPResponse
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit

_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
# What a registry must take (OCI Distribution Specification, "Pushing Manifests").
_MOST_BYTES = 4 * 1024 * 1024
_SECONDS = 5.0
_UNAUTHORIZED = 401
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
# As Docker does: a registry on this machine has no certificate.
_HERE = ("127.0.0.1", "localhost")


class RegistryError(Exception):
    """No digest came, or none that can be believed; the message says why."""


def pinned(image: str, credentials: Callable[[str], str | None]) -> str:
    """Return `REGISTRY/PATH:TAG@sha256:...` for `REGISTRY/PATH:TAG`; raise RegistryError.

    `credentials` are what the registry of a host takes as `Basic`; None where anybody may pull.
    """
    host, _, rest = image.partition("/")
    path, _, tag = rest.rpartition(":")
    scheme = "http" if urlsplit(f"//{host}").hostname in _HERE else "https"
    url = f"{scheme}://{host}/v2/{path}/manifests/{tag}"
    deadline = time.monotonic() + 2 * _SECONDS
    try:
        content, stated = _manifest(url, credentials(host), deadline)
    except HTTPError as error:
        with error:
            raise RegistryError(f"{host} answers {error.code} {error.reason}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise RegistryError(f"{host}: {reason}") from error
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if stated not in {None, digest}:
        raise RegistryError(f"{host} states {stated}, and sends what has {digest}")
    if "schemaVersion" not in _json(content):
        raise RegistryError(f"{host} sends no manifest")
    return f"{image}@{digest}"


def _manifest(url: str, basic: str | None, deadline: float) -> tuple[bytes, str | None]:
    """Return a manifest, and the digest that its registry states."""
    authorization = f"Basic {basic}" if basic else None
    try:
        return _get(url, authorization, deadline)
    except HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "")
        if error.code != _UNAUTHORIZED or basic or not challenge.lower().startswith("bearer "):
            raise
        error.close()
    return _get(url, f"Bearer {_token(challenge, url, deadline)}", deadline)


def _token(challenge: str, url: str, deadline: float) -> str:
    """Fetch the token that anybody gets, from where the registry says."""
    asked = dict(_PARAMETER.findall(challenge))
    realm = asked.pop("realm", "")
    if urlsplit(realm).scheme not in {"https", urlsplit(url).scheme}:
        raise ValueError(f"it wants a token of {realm!r}")
    wanted = {key: value for key, value in asked.items() if key in {"service", "scope"}}
    content, _ = _get(f"{realm}?{urlencode(wanted)}", None, deadline)
    answer = _json(content)
    token = answer.get("token") or answer.get("access_token")
    if not isinstance(token, str):
        raise ValueError(f"{urlsplit(realm).hostname} gives no token")  # noqa: TRY004 -- an answer
    return token


def _get(url: str, authorization: str | None, deadline: float) -> tuple[bytes, str | None]:
    request = urllib.request.Request(url, headers={"Accept": ", ".join(_MANIFESTS)})  # noqa: S310 -- http and https alone, as the callers see to
    if authorization:
        # Not for another host that the registry may send us to.
        request.add_unredirected_header("Authorization", authorization)
    near = [urllib.request.ProxyHandler({})] if urlsplit(url).hostname in _HERE else []
    opener = urllib.request.build_opener(*near)
    with opener.open(request, timeout=_SECONDS) as response:
        return _content(response, deadline), response.headers.get("Docker-Content-Digest")


def _content(response: HTTPResponse, deadline: float) -> bytes:
    content = b""
    while chunk := response.read1(65536):
        content += chunk
        if len(content) > _MOST_BYTES:
            raise ValueError("it sends more than a manifest may have")
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
    if response.length:
        raise ValueError("its answer was cut")
    return content


def _json(content: bytes) -> dict[str, object]:
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(content), dict):
            return found
    return {}
