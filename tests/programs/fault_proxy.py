"""An HTTP proxy before one server, which loses, cuts, refuses and damages what a test names."""

import base64
import hashlib
import http.client
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

How = Literal[
    "403",
    "503",
    "cut request",
    "cut answer",
    "lose answer",
    "damage request",
    "damage answer",
    "hide missing",
]
_REFUSALS: dict[str | None, bytes] = {
    "403": b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>",
    "503": b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>",
}
_BAD_DIGEST = b"<Error><Code>BadDigest</Code><Message>The checksum did not match.</Message></Error>"


@dataclass
class Fault:
    """What happens to requests, written `METHOD path?query`, that a pattern is found in."""

    pattern: str
    how: How | None = None
    times: int = 1_000_000
    """How often, from the first such request on."""
    before: Callable[[], None] | None = None
    """Runs before the request is passed on."""


@dataclass
class Proxy:
    """The proxy: its address, its faults and the requests that it has seen."""

    port: int
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    """What a test's own actions raised."""

    @property
    def url(self) -> str:
        """Return the address for clients."""
        return f"http://127.0.0.1:{self.port}"

    def seen(self, pattern: str) -> list[str]:
        """Return the requests that a pattern is found in."""
        return [request for request in self.requests if re.search(pattern, request)]


def serve(upstream_port: int) -> tuple[Proxy, ThreadingHTTPServer]:
    """Start a proxy in threads; the caller shuts the server down."""

    class Handler(_Handler):
        upstream = upstream_port

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Handler.proxy = proxy = Proxy(server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return proxy, server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream: int
    proxy: Proxy
    lock = threading.Lock()

    def handle(self) -> None:
        """Serve a connection; that a client was killed is no news."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_words: object) -> None:
        """Say nothing: the test reads `requests`."""

    def handle_one(self) -> None:
        """Pass one request on, as its fault wants it."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self._fault()
        if fault and fault.before:
            try:
                fault.before()
            except Exception as problem:  # noqa: BLE001 -- the test reads it
                self.proxy.errors.append(problem)
        how = fault.how if fault else None
        if how in _REFUSALS:
            self._answer(int(how or 0), [("Content-Type", "application/xml")], _REFUSALS[how])
            return
        if how == "cut request":
            self.close_connection = True
            return
        if how == "damage request":
            body = _damage(body)
        if not self._is_as_announced(body):
            self._answer(400, [("Content-Type", "application/xml")], _BAD_DIGEST)
            return
        status, headers, content = self._ask(body)
        if how == "hide missing" and status == HTTPStatus.NOT_FOUND:
            self._answer(403, [("Content-Type", "application/xml")], _REFUSALS["403"])
            return
        if how == "lose answer":
            self.close_connection = True
            return
        if how == "damage answer":
            content = _damage(content)
        self._answer(status, headers, content, cut=how == "cut answer")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one  # noqa: N815 -- http.server's names

    def _fault(self) -> Fault | None:
        request = f"{self.command} {self.path}"
        with self.lock:
            self.proxy.requests.append(request)
            for fault in self.proxy.faults:
                if fault.times and re.search(fault.pattern, request):
                    fault.times -= 1
                    return fault
        return None

    def _is_as_announced(self, body: bytes) -> bool:
        """Check the body's checksum, as S3 does and moto does not."""
        wanted = self.headers.get("x-amz-checksum-sha256")
        return wanted is None or wanted == base64.b64encode(hashlib.sha256(body).digest()).decode()

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name != "Expect"}
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        return answer.status, answer.getheaders(), content

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        sized = False
        for name, value in headers:
            if name.lower() not in {"connection", "transfer-encoding", "date", "server"}:
                self.send_header(name, value)
                sized |= name.lower() == "content-length"
        if not sized:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if cut:
            content = content[: len(content) // 2]
            self.close_connection = True
        if self.command != "HEAD":
            self.wfile.write(content)


def _damage(content: bytes) -> bytes:
    """Flip a bit in the middle."""
    if not content:
        return content
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
