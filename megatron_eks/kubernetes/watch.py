"""Follows objects of the API through cut connections and expired versions."""

import http.client
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from megatron_eks.kubernetes.client import ApiError, Client, Object

# The server ends a watch after this long; a dead connection is noticed soon after.
_WATCH_SECONDS = 240
_RETRY_SECONDS = 0.5


@dataclass(frozen=True)
class Change:
    """One object that is there, or was deleted."""

    manifest: Object
    deleted: bool = False


class Watch:
    """All objects at a path, told one by one: what there is, then every change, for ever.

    An object may be told again as it is; one that went away while nobody looked is told as deleted.
    """

    def __init__(self, client: Client, path: str, query: Mapping[str, str] | None = None) -> None:
        self._client, self._path, self._query = client, path, dict(query or {})
        self._known: dict[str, Object] = {}

    def follow(self, tell: Callable[[Change], None], stopped: threading.Event) -> None:
        """Tell every change until stopped; failures of the server only delay it."""
        while not stopped.is_set():
            try:
                version = self._list(tell)
                while version and not stopped.is_set():
                    version = self._stream(tell, version)
            except (ApiError, http.client.HTTPException, OSError, ValueError):
                stopped.wait(_RETRY_SECONDS)

    def _list(self, tell: Callable[[Change], None]) -> str:
        found = self._client.request("GET", self._path, query=self._query)
        now = {each["metadata"]["uid"]: each for each in found["items"]}
        for uid in self._known.keys() - now.keys():
            tell(Change(self._known[uid], deleted=True))
        self._known = now
        for each in now.values():
            tell(Change(each))
        return str(found["metadata"]["resourceVersion"])

    def _stream(self, tell: Callable[[Change], None], version: str) -> str:
        """Tell changes after a version; return the last one, or nothing if it has expired."""
        query = {
            **self._query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        for line in self._client.stream(self._path, query, timeout=_WATCH_SECONDS + 30):
            event = json.loads(line)
            manifest: Object = event["object"]
            if event["type"] == "ERROR":
                return ""
            version = manifest["metadata"]["resourceVersion"]
            uid = manifest["metadata"].get("uid", "")
            match event["type"]:
                case "DELETED":
                    self._known.pop(uid, None)
                    tell(Change(manifest, deleted=True))
                case "ADDED" | "MODIFIED":
                    self._known[uid] = manifest
                    tell(Change(manifest))
        return version
