"""The API server as pods of the platform reach it, with the standard library alone."""

import http.client
import json
import os
import queue
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

Object = dict[str, Any]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REQUEST_SECONDS, _WATCH_SECONDS, _AGAIN_SECONDS = 60, 300, 10.0
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
# The object is not there, or has another uid than the one that is named.
_ANOTHER = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


class Api:
    """The API server, by its URL and the folder of a ServiceAccount."""

    def __init__(self, url: str, account: Path) -> None:
        self._url, self._account = url, account
        context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def items(self, path: str) -> list[Object]:
        """Return all objects of a path."""
        found: list[Object] = self.send("GET", path)["items"]
        return found

    def send(self, method: str, path: str, body: Object | None = None, form: str = "") -> Object:
        """Send a request and return the answer.

        Raises OSError with what the server says; FileNotFoundError if it is about an object that is
        another one by now.
        """
        data = json.dumps(body).encode() if body is not None else None
        found: Object = json.loads(b"".join(self._lines(method, path, data, form)))
        return found

    def follow(self, kind: str, path: str, readers: Sequence["queue.Queue[Object]"]) -> NoReturn:
        """Hand over objects of a kind, all there are and then each change, for good."""

        def hand_over(found: Object, **more: object) -> None:
            for reader in readers:
                reader.put({**found, "kind": kind, **more})

        while True:
            try:
                listed = self.send("GET", path)
                for each in listed["items"]:
                    hand_over(each)
                version = listed["metadata"]["resourceVersion"]
                watched = f"{path}watch=1&resourceVersion={version}"
                for line in self._lines("GET", f"{watched}&timeoutSeconds={_WATCH_SECONDS}"):
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        # The version is too old: the list says what was missed.
                        break
                    hand_over(
                        change["object"], **{"gone": True} if change["type"] == "DELETED" else {}
                    )
            except (OSError, ValueError) as problem:
                sys.stderr.write(f"{kind}: {problem} - tried again\n")
                time.sleep(_AGAIN_SECONDS)

    def _lines(
        self, method: str, path: str, data: bytes | None = None, form: str = ""
    ) -> Iterator[bytes]:
        # The kubelet renews the file.
        token = (self._account / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"} | ({"Content-Type": form} if form else {})
        request = urllib.request.Request(  # noqa: S310 -- the API server's
            f"{self._url}{path}", data=data, headers=headers, method=method
        )
        seconds = _WATCH_SECONDS + _AGAIN_SECONDS if "watch=1" in path else _REQUEST_SECONDS
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                yield from answer
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:500]
            what = FileNotFoundError if error.code in _ANOTHER else OSError
            raise what(f"{method} {path}: {error.code} {said}") from None
        except http.client.HTTPException as problem:
            raise OSError(f"{method} {path}: {problem!r}") from problem


def of_pod() -> Api:
    """Return it as a pod's variables name it."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return Api(f"https://{host}:{port}", _ACCOUNT)
