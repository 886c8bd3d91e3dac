"""A small client of the Kubernetes API over the standard library."""

import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from megatron_eks.kubernetes.connection import (
    FIRST_ERROR,
    ApiError,
    Connection,
    Credentials,
    UnreachableError,
    refusal,
)

__all__ = ["ApiError", "Client", "Object", "connect", "wait_for"]

# An API object is JSON, which has no narrower type.
Object = dict[str, Any]

_Found = TypeVar("_Found")

_POLL_SECONDS = 0.05
_MANAGER = "meks"


@dataclass(frozen=True)
class _Resource:
    """How a kind is called in paths."""

    path: str
    plural: str
    namespaced: bool


class Client:
    """One user's requests, by kind and name."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        """For other protocols than requests by kind and name."""
        self._resources: dict[tuple[str, str], _Resource] = {}
        self.close = connection.close
        self.now = connection.now

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self.connection.server

    def apply(self, manifest: Object, *, manager: str = _MANAGER, dry_run: bool = False) -> Object:
        """Apply an object on the server's side; an unknown field is an error, not ignored."""
        query = {**_strict(manager, dry_run=dry_run), "force": "true"}
        path = self._path_of(manifest, manifest["metadata"]["name"])
        return self.request("PATCH", path, manifest, query, "application/apply-patch+yaml")

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create an object, with the same strictness."""
        query = _strict(_MANAGER, dry_run=dry_run)
        return self.request("POST", self._path_of(manifest), manifest, query)

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object:
        """Return one object; ApiError with status 404 if there is none."""
        return self.request("GET", self._path(api_version, kind, namespace, name))

    def find(
        self, api_version: str, kind: str, name: str, namespace: str | None = None
    ) -> Object | None:
        """Return one object, or None if there is none."""
        with _missing_ok():
            return self.get(api_version, kind, name, namespace)
        return None

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        missing_ok: bool = False,
    ) -> list[Object]:
        """Return all objects of a kind, of one namespace or of all, by label and field selector.

        Where `missing_ok`, there are none of a kind that the server does not know.
        """
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = {key: value for key, value in selectors.items() if value}
        with _missing_ok(allowed=missing_ok):
            found = self.request("GET", self._path(api_version, kind, namespace), query=query)
            return list(found["items"])
        return []

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        missing_ok: bool = False,
    ) -> None:
        """Delete one object and what it owns, in the background."""
        query = {"propagationPolicy": "Background"}
        with _missing_ok(allowed=missing_ok):
            self.request("DELETE", self._path(api_version, kind, namespace, name), query=query)

    def service_account_token(self, name: str, namespace: str) -> str:
        """Return a day's token of a ServiceAccount, as its pods would get one."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 24 * 3600},
        }
        path = self._path("v1", "ServiceAccount", namespace, name)
        return str(self.request("POST", f"{path}/token", body)["status"]["token"])

    def serves(self, api_version: str, kind: str) -> bool:
        """Say whether the server knows a kind by now."""
        try:
            self._path(api_version, kind, None)
        except ApiError:
            return False
        return True

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request and return the object that comes back; raise ApiError if refused."""
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body).encode()
        status, text = self.connection.exchange(
            method, target, data, {"Content-Type": content_type}
        )
        if status >= FIRST_ERROR:
            raise refusal(status, text)
        answer: Object = json.loads(text)
        return answer

    def stream(
        self, path: str, query: Mapping[str, str], timeout: float, longest_line: int = -1
    ) -> Iterator[bytes]:
        """Yield the lines of an answer as they come; see `Connection.stream`."""
        yield from self.connection.stream(f"{path}?{urlencode(query)}", timeout, longest_line)

    def ready(self) -> bool:
        """Say whether the server has started completely."""
        try:
            status, _ = self.connection.exchange("GET", "/readyz", None, {})
        except UnreachableError:
            return False
        return status < FIRST_ERROR

    def _path_of(self, manifest: Object, name: str | None = None) -> str:
        namespace = manifest["metadata"].get("namespace")
        return self._path(manifest["apiVersion"], manifest["kind"], namespace, name)

    def _path(
        self, api_version: str, kind: str, namespace: str | None, name: str | None = None
    ) -> str:
        resource = self._resource(api_version, kind)
        scope = f"/namespaces/{namespace}" if resource.namespaced and namespace else ""
        path = f"{resource.path}{scope}/{resource.plural}"
        return f"{path}/{name}" if name else path

    def _resource(self, api_version: str, kind: str) -> _Resource:
        key = (api_version, kind)
        if key not in self._resources:
            path = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
            for each in self.request("GET", path)["resources"]:
                # A subresource (pods/eviction) may carry a kind of its own.
                if "/" not in each["name"]:
                    found = _Resource(path, each["name"], each["namespaced"])
                    self._resources[api_version, each["kind"]] = found
        if key not in self._resources:
            raise ApiError(
                HTTPStatus.NOT_FOUND, "NotFound", f"the server has no kind {kind} {api_version}"
            )
        return self._resources[key]


@contextmanager
def _missing_ok(*, allowed: bool = True) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if not (allowed and error.status == HTTPStatus.NOT_FOUND):
            raise


def _strict(manager: str, *, dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": manager, "fieldValidation": "Strict"}
    return {**query, "dryRun": "All"} if dry_run else query


def connect(
    server: str,
    authority: Path,
    token: str,
    *,
    impersonate: str | None = None,
    group: str | None = None,
) -> Client:
    """Return a client with a token that does not change, whose user may act as another."""
    asked = {"Impersonate-User": impersonate, "Impersonate-Group": group}
    headers = {name: value for name, value in asked.items() if value}
    tls = ssl.create_default_context(cafile=str(authority))
    return Client(Connection(server, tls, Credentials(token), headers=headers))


def wait_for(
    what: str,
    condition: Callable[[], _Found | None],
    seconds: float = 60,
    *,
    pause: float = _POLL_SECONDS,
) -> _Found:
    """Return what a condition finds as soon as it finds something; raise TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)
