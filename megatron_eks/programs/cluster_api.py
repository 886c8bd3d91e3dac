"""The API server as a pod of the platform reaches it, with the standard library alone."""

import http.client
import json
import os
import queue
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn

Object = dict[str, Any]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_WATCH_SECONDS, _AGAIN_SECONDS = 300, 10.0
# The object is not there, or has another uid than the one that is named.
_ANOTHER = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


class Api:
    """The API server, as pods reach it."""

    def __init__(self) -> None:
        self._context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))

    def follow(self, kind: str, path: str, readers: Sequence["queue.Queue[Object]"]) -> NoReturn:
        """Hand over objects of a kind, all there are and then each change, for good."""
        while True:
            try:
                listed = json.loads(b"".join(self._ask("GET", path)))
                _hand_over([{**each, "kind": kind} for each in listed["items"]], readers)
                version = listed["metadata"]["resourceVersion"]
                watched = f"{path}watch=1&resourceVersion={version}"
                for line in self._ask("GET", f"{watched}&timeoutSeconds={_WATCH_SECONDS}"):
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        # The version is too old: the list says what was missed.
                        break
                    gone = {"gone": True} if change["type"] == "DELETED" else {}
                    _hand_over([{**change["object"], "kind": kind, **gone}], readers)
            except (OSError, ValueError, http.client.HTTPException) as problem:
                sys.stderr.write(f"{kind}: {problem} - tried again\n")
                time.sleep(_AGAIN_SECONDS)

    def change(self, method: str, path: str, body: Object) -> None:
        """Change an object; raise FileNotFoundError if it is another one by now, or OSError."""
        try:
            b"".join(self._ask(method, path, json.dumps(body)))
        except http.client.HTTPException as problem:
            raise OSError(str(problem)) from problem

    def _ask(self, method: str, path: str, body: str | None = None) -> Iterator[bytes]:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        connection = http.client.HTTPSConnection(
            host, int(port), timeout=_WATCH_SECONDS + _AGAIN_SECONDS, context=self._context
        )
        # The kubelet renews the file.
        token = (_ACCOUNT / "token").read_text()
        with closing(connection):
            form = "application/merge-patch+json" if method == "PATCH" else "application/json"
            headers = {"Authorization": f"Bearer {token}", "Content-Type": form}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                found = f"{method} {path}: {answer.status} {answer.reason}"
                raise (FileNotFoundError if answer.status in _ANOTHER else OSError)(found)
            yield from answer


def _hand_over(objects: Sequence[Object], readers: Sequence["queue.Queue[Object]"]) -> None:
    for reader in readers:
        for each in objects:
            reader.put(each)
