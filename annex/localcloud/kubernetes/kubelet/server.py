"""A kubelet's own API, as far as the API server needs it for `kubectl logs` and `kubectl exec`."""

import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TextIO
from urllib.parse import parse_qsl, urlsplit

from megatron_eks.localcloud.kubernetes.kubelet import execution
from megatron_eks.localcloud.kubernetes.kubelet.context import NODE_ADDRESS, Context
from megatron_eks.localcloud.kubernetes.kubelet.node import Node
from megatron_eks.localcloud.kubernetes.kubelet.running import ContainerProcess

_POLL_SECONDS = 0.2
# Between a container's report that it runs and its program's first instruction.
_START_SECONDS = 10


class Server(ThreadingHTTPServer):
    """Serves logs and exec to the API server over TLS, on loopback, until the process ends."""

    daemon_threads = True

    def __init__(self, context: Context, node: Node) -> None:
        self.context, self.node = context, node
        settings = context.settings
        super().__init__((NODE_ADDRESS, settings.port), _Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(settings.certificate, settings.key)
        # Everybody on the machine reaches the port, and `exec` is more than a look.
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(settings.client_certificate)
        # In the thread of each connection, not in the one that accepts them.
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        """Answer `/containerLogs/NAMESPACE/POD/CONTAINER` and `/exec/...` of the same form."""
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query))
        match address.path.strip("/").split("/"):
            case ["containerLogs", namespace, name, container]:
                self._send_logs(namespace, name, container, query)
            case ["exec", namespace, name, container]:
                self._execute(namespace, name, container)
            case _:
                self._refuse(
                    HTTPStatus.NOT_IMPLEMENTED, "a kubelet of processes serves logs and exec"
                )

    do_POST = do_GET  # noqa: N815 -- the standard library's name

    def _send_logs(self, namespace: str, name: str, container: str, query: dict[str, str]) -> None:
        pod = self.server.node.find(namespace, name)
        if pod is None:
            self._refuse(HTTPStatus.NOT_FOUND, f'pod "{name}" not found')
            return
        folder = self.server.context.logs(pod) / container
        files = _log_files(folder)
        if query.get("previous") == "true":
            files = files[:-1]
        if not files:
            message = f'no logs of container "{container}" in pod "{name}"'
            self._refuse(HTTPStatus.BAD_REQUEST, message)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def goes_on() -> bool:
            # The next container of the same name has a file of its own.
            is_newest = _log_files(folder)[-1:] == files[-1:]
            return is_newest and self.server.node.process(pod, container) is not None

        for line in _lines(files[-1], query, goes_on):
            self._chunk(line.encode())
        self._chunk(b"")

    def _execute(self, namespace: str, name: str, container: str) -> None:
        pod = self.server.node.find(namespace, name)
        process = self.server.node.process(pod, container) if pod else None
        if pod is None:
            self._refuse(HTTPStatus.NOT_FOUND, "pod does not exist")
        elif process is None or not _has_started(process):
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f'container not found ("{container}")')
        else:
            # Whatever comes next is no HTTP any more.
            self.close_connection = True
            query = parse_qsl(urlsplit(self.path).query, keep_blank_values=True)
            execution.serve(self.connection, self.headers.items(), process, query)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        body = message.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing: the API server has its own log."""


def _has_started(process: ContainerProcess) -> bool:
    return process.started.wait(_START_SECONDS) and not process.start_error


def _log_files(folder: Path) -> list[Path]:
    """Return the logs of a container's runs, the newest last."""
    return sorted(folder.glob("*.log"), key=lambda file: int(file.stem))


def _lines(file: Path, query: dict[str, str], is_running: Callable[[], bool]) -> Iterator[str]:
    since = _since(query)
    stamped = query.get("timestamps") == "true"

    def shown(line: str) -> str | None:
        stamp, _, whole, text = line.rstrip("\n").split(" ", 3)
        if stamp < since:
            return None
        ending = "\n" if whole == "F" else ""
        return f"{stamp} {text}{ending}" if stamped else f"{text}{ending}"

    with file.open(encoding="utf-8", newline="\n") as lines:
        tail = int(query["tailLines"]) if "tailLines" in query else None
        for line in deque(_whole_lines(lines), maxlen=tail):
            if (found := shown(line)) is not None:
                yield found
        while query.get("follow") == "true":
            # Asked before looking, or the last lines could be missed.
            goes_on = is_running()
            for line in _whole_lines(lines):
                if (found := shown(line)) is not None:
                    yield found
            if not goes_on:
                return
            time.sleep(_POLL_SECONDS)


def _whole_lines(lines: TextIO) -> Iterator[str]:
    """Yield lines up to the first that is still being written."""
    while True:
        start = lines.tell()
        line = lines.readline()
        if not line.endswith("\n"):
            lines.seek(start)
            return
        yield line


def _since(query: dict[str, str]) -> str:
    """Return the first time that is asked for, as the log files write it."""
    if "sinceSeconds" in query:
        begin = datetime.now(tz=UTC) - timedelta(seconds=int(query["sinceSeconds"]))
    elif "sinceTime" in query:
        begin = datetime.fromisoformat(query["sinceTime"]).astimezone(UTC)
    else:
        return ""
    return begin.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
