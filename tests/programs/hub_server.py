"""As much of Hugging Face's hub as a download needs: listing, metadata, ranges, gates, failures."""

import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_of_somebody_with_access"  # noqa: S105 -- no token of anybody
_RANGE = re.compile(r"bytes=(\d+)-")


@dataclass
class Hub:
    """One model's repository; a test changes what it holds and how it behaves."""

    url: str
    files: dict[str, bytes]
    gated: bool = False
    down: int = 0
    """How many requests from now on get 503."""
    cut: int = 0
    """How many downloads of large files from now on end after half of their bytes."""
    hold: str = ""
    """The file whose download waits until the client is gone."""
    damage: int = 0
    """How many downloads from now on have a wrong byte."""
    requests: list[str] = field(default_factory=list)
    authorization: set[str] = field(default_factory=set)


def serve(files: dict[str, bytes]) -> tuple[Hub, ThreadingHTTPServer]:
    """Start a hub with one model, `org/model`; the caller shuts the server down."""

    class Handler(_Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Handler.hub = hub = Hub(f"http://127.0.0.1:{server.server_port}", files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return hub, server


def is_large(name: str) -> bool:
    """Tell whether the hub keeps a file with LFS."""
    return name.endswith((".safetensors", ".bin"))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_words: object) -> None:
        """Say nothing: the test reads `requests`."""

    def do_GET(self) -> None:
        """Answer."""
        self._route()

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self._route()

    def _route(self) -> None:
        hub = self.hub
        path = self.path.partition("?")[0]
        hub.requests.append(f"{self.command} {path}")
        token = self.headers.get("authorization", "")
        hub.authorization.add(token)
        if hub.down:
            hub.down -= 1
            self._send(503, {}, b"busy")
        elif not path.startswith(("/api/models/org/model", "/org/model/")):
            self._send(404, {"X-Error-Code": "RepoNotFound"}, b"")
        elif hub.gated and token != f"Bearer {TOKEN}" and "/resolve/" in path:
            self._send(403 if token else 401, {"X-Error-Code": "GatedRepo"}, b"")
        elif path.startswith("/api/"):
            self._describe(path)
        else:
            self._download(path.split("/resolve/", 1)[1].partition("/")[2])

    def _describe(self, path: str) -> None:
        revision = path.partition("/revision/")[2] or "main"
        if revision not in {"main", "v1", COMMIT}:
            self._send(404, {"X-Error-Code": "RevisionNotFound"}, b"")
            return
        siblings = []
        for name, content in self.hub.files.items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(content)}
            entry["blobId"] = _blob(content)
            if is_large(name):
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"size": len(content), "sha256": sha256, "pointerSize": 134}
            siblings.append(entry)
        body = {"id": "org/model", "sha": COMMIT, "siblings": siblings, "private": False}
        body |= {"gated": self.hub.gated, "tags": [], "downloads": 0, "likes": 0}
        self._send(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def _download(self, name: str) -> None:
        content = self.hub.files.get(name)
        if content is None:
            self._send(404, {"X-Error-Code": "EntryNotFound"}, b"")
            return
        etag = hashlib.sha256(content).hexdigest() if is_large(name) else _blob(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        asked = _RANGE.match(self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        while self.command == "GET" and self.hub.hold == name:
            time.sleep(0.05)
        size = len(content)
        if asked:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        body = content[start:]
        cut = False
        if self.command == "GET" and self.hub.damage:
            self.hub.damage -= 1
            body = bytes([body[0] ^ 1]) + body[1:]
        if self.command == "GET" and self.hub.cut and is_large(name):
            self.hub.cut -= 1
            cut = True
        self._send(206 if asked else 200, headers, body, cut=cut)

    def _send(
        self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if cut:
            body = body[: len(body) // 2]
            self.close_connection = True
        if self.command == "GET":
            self.wfile.write(body)


def _blob(content: bytes) -> str:
    start = f"blob {len(content)}\0".encode()
    return hashlib.sha1(start + content, usedforsecurity=False).hexdigest()
