"""A server in front of the real API server: it passes everything on, but for what is to fail."""

import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from megatron_eks.kubernetes.client import Client, connect
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from tests.kubernetes.certificates import certificate

Forward = Callable[[], http.client.HTTPResponse]
Act = Callable[["_Handler", Forward], None]


@dataclass
class Fault:
    """What becomes of some requests."""

    method: str
    path: str
    """A pattern."""
    act: Act
    left: int
    """How many requests it still meets."""


class FaultProxy(ThreadingHTTPServer):
    """Requests to it reach the control plane, unless a fault is in the way."""

    daemon_threads = True

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.authority, key = certificate(folder, "127.0.0.1")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.authority, key)
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.plane = plane
        self.faults: list[Fault] = []
        self.met: list[tuple[str, str]] = []
        """Method and path of the requests that met a fault."""
        self.streams: set[socket.socket] = set()
        self.client: Client = connect(
            f"https://127.0.0.1:{self.server_port}", self.authority, plane.token
        )

    def kubeconfig(self, file: Path, **cluster: str) -> Path:
        """Write the administrator's kubeconfig, leading here."""
        config = json.loads(self.plane.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {
            "server": f"https://127.0.0.1:{self.server_port}",
            "certificate-authority": str(self.authority),
            **cluster,
        }
        file.write_text(json.dumps(config))
        return file

    @contextmanager
    def failing(self, method: str, path: str, act: Act, times: int = 1) -> Iterator[None]:
        """Let requests fail for as long as the block lasts."""
        fault = Fault(method, path, act, times)
        self.faults.append(fault)
        try:
            yield
        finally:
            self.faults.remove(fault)
            self.met.clear()

    def cut_streams(self) -> None:
        """Cut every answer that is still on its way."""
        for each in list(self.streams):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that give up are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        self._upstream: http.client.HTTPSConnection | None = None
        try:
            self._answer()
        finally:
            if self._upstream is not None:
                self._upstream.close()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        for fault in self.server.faults:
            if fault.left and self.command == fault.method and re.search(fault.path, self.path):
                fault.left -= 1
                self.server.met.append((self.command, self.path))
                fault.act(self, lambda: self.ask(body))
                return
        self.relay(self.ask(body))

    def ask(self, body: bytes) -> http.client.HTTPResponse:
        """Send the request to the API server."""
        plane = self.server.plane
        tls = ssl.create_default_context(cafile=str(plane.authority))
        port = urlsplit(plane.server).port
        self._upstream = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=60)
        kept = {k: v for k, v in self.headers.items() if k.lower() not in {"host", "connection"}}
        self._upstream.request(self.command, self.path, body or None, kept)
        return self._upstream.getresponse()

    def relay(self, response: http.client.HTTPResponse, lines: int | None = None) -> None:
        """Pass an answer on; after so many lines the connection is cut."""
        self.send_response(response.status)
        for name in ("Content-Type", "Retry-After"):
            if value := response.getheader(name):
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.streams.add(self.connection)
        try:
            self._relay_lines(response, lines)
        finally:
            self.server.streams.discard(self.connection)

    def _relay_lines(self, response: http.client.HTTPResponse, lines: int | None) -> None:
        while line := response.readline(1 << 16):
            if lines is not None:
                if not lines:
                    self.close_connection = True
                    self.wfile.flush()
                    return
                lines -= 1
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def say(self, status: int, **fields: object) -> None:
        """Answer with a Status."""
        data = json.dumps({"kind": "Status", "apiVersion": "v1", **fields}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def refuse(status: int, reason: str = "", message: str = "") -> Act:
    """Answer for the API server."""
    return lambda handler, _: handler.say(status, reason=reason, message=message or reason)


def drop(handler: _Handler, _: Forward) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True


def lose_answer(handler: _Handler, forward: Forward) -> None:
    """Let the API server do it, and tell nobody."""
    forward().read()
    handler.close_connection = True


def cut(lines: int) -> Act:
    """Cut an answer after some of its lines."""
    return lambda handler, forward: handler.relay(forward(), lines)


@contextmanager
def fault_proxy(plane: ControlPlane, folder: Path) -> Iterator[FaultProxy]:
    """Run such a server."""
    proxy = FaultProxy(plane, folder)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield proxy
    proxy.client.close()
    proxy.shutdown()
    proxy.server_close()
    thread.join()
