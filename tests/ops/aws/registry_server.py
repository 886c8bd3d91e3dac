"""As much of a container registry as a pull by tag needs, and the ways in which one can fail."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
CONTENT = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
_TOKEN = "of-anybody"  # noqa: S105 -- of a server in this process


@dataclass
class Registry:
    """What a registry answers; a test changes it."""

    host: str
    content: bytes = CONTENT
    stated: str | None = DIGEST
    status: int = 200
    realm: str | None = None
    """Where a token is to be fetched; none is wanted without."""
    basic: str | None = None
    """What only the owner of credentials may say."""
    drip_seconds: float = 0
    """A pause after each byte."""
    cut: bool = False
    requests: list[str] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    accepted: str = ""


@contextmanager
def serve() -> Iterator[Registry]:
    """Run a registry on this machine."""

    class Handler(_Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Handler.registry = registry = Registry(f"127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def log_message(self, *_words: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer."""
        registry = self.registry
        authorization = self.headers.get("Authorization")
        registry.requests.append(self.path)
        registry.authorizations.append(authorization)
        if self.path.startswith("/token"):
            self._send(200, json.dumps({"token": _TOKEN}).encode(), {})
        elif registry.basic and authorization != f"Basic {registry.basic}":
            self._send(401, b"", {"WWW-Authenticate": 'Basic realm="ecr"'})
        elif registry.realm and authorization != f"Bearer {_TOKEN}":
            scope = "repository:kubeflow/training-operator:pull"
            words = f'realm="{registry.realm}",service="here",scope="{scope}"'
            self._send(401, b"", {"WWW-Authenticate": f"Bearer {words}"})
        else:
            registry.accepted = self.headers.get("Accept", "")
            stated = {"Docker-Content-Digest": registry.stated} if registry.stated else {}
            self._send(registry.status, registry.content, stated)

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) + self.registry.cut))
        self.end_headers()
        try:
            for byte in content if self.registry.drip_seconds else ():
                self.wfile.write(bytes([byte]))
                time.sleep(self.registry.drip_seconds)
            if not self.registry.drip_seconds:
                self.wfile.write(content)
        except OSError:
            return  # the client has gone
