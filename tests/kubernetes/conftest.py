"""An API server of a few lines, to fail as real ones do when nobody can arrange it."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.kubernetes.certificates import certificate

Answer = Callable[[BaseHTTPRequestHandler], None]


class Api(ThreadingHTTPServer):
    """Serves what a test says, over TLS, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.authority, key = certificate(folder, "127.0.0.1")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.authority, key)
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.answers: list[Answer] = []
        """The last one is given again and again."""
        self.asked: list[tuple[str, str]] = []
        """Path and authorization of each request."""

    @property
    def url(self) -> str:
        """The server's address."""
        return f"https://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that give up are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization", "")))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(server: Api) -> Iterator[Api]:
    """Let a server answer."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """Run such a server."""
    with serving(Api(tmp_path)) as server:
        yield server
