"""One end of a WebSocket on a TLS connection: messages, over the protocol of `websockets`.

Its own connections read in one thread while another writes. OpenSSL must not do both at once, so
here a lock keeps them apart.
"""

import contextlib
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Protocol, State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

_READ_BYTES = 64 * 1024
# At a time, so that whoever sends faster than messages are taken fills no memory.
_READS = 64
# A load balancer on the way closes what was silent for 350 s.
_PING_SECONDS = 30
_CLOSE_SECONDS = 1
_WRITABLE_SECONDS = 1


class RefusedError(Exception):
    """The server answered in HTTP."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP status {status}")
        self.status, self.body = status, body


class WebSocket:
    """Binary messages in both ways. One thread reads, any may write."""

    def __init__(self, connection: ssl.SSLSocket, protocol: Protocol) -> None:
        self.connection = connection
        connection.settimeout(0)
        self._protocol = protocol
        self._lock = threading.Lock()
        self._unsent = bytearray()
        self._begun = bytearray()
        self._messages: deque[bytes] = deque()

    @property
    def is_open(self) -> bool:
        """Say whether messages can be sent."""
        return self._protocol.state is State.OPEN

    def send(self, message: bytes) -> None:
        """Send a message, waiting for the other end to take it; does nothing once closed."""
        with self._lock:
            if not self.is_open:
                return
            self._protocol.send_binary(message)
        self._flush()

    def receive(self, deadline: float | None) -> bytes:
        """Return the next message; raise TimeoutError, and ConnectionError after the last one."""
        while not self._messages:
            self._messages += self.pull()
            if self._messages:
                break
            if self._protocol.state is State.CLOSED:
                raise ConnectionError("the other end has closed the connection")
            self._wait(deadline)
        return self._messages.popleft()

    def pull(self) -> list[bytes]:
        """Return the messages that have come by now."""
        for _ in range(_READS):
            if not self._read():
                break
        with self._lock:
            frames = [each for each in self._protocol.events_received() if isinstance(each, Frame)]
        self._write()
        found = []
        for frame in frames:
            if frame.opcode in {Opcode.BINARY, Opcode.TEXT, Opcode.CONT}:
                self._begun += frame.data
                if frame.fin:
                    found.append(bytes(self._begun))
                    self._begun.clear()
        return found

    def close(self) -> None:
        """Say that this was all, and let go; an end that does not answer is not waited for."""
        if self.connection.fileno() < 0:
            return
        with self._lock:
            if self.is_open:
                self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
        self._write()
        deadline = time.monotonic() + _CLOSE_SECONDS
        # After Ctrl-C in its midst the parser, a generator, is at its end.
        with contextlib.suppress(OSError, StopIteration):
            while not self._is_over:
                self._wait(deadline)
                self.pull()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    @property
    def _is_over(self) -> bool:
        """Say whether the other end has said that it was all, or is gone."""
        return self._protocol.close_rcvd is not None or self._protocol.state is State.CLOSED

    def request(self, protocol: ClientProtocol, headers: Mapping[str, str], seconds: float) -> None:
        """Become a WebSocket; raise RefusedError, ConnectionError or TimeoutError."""
        request = protocol.connect()
        request.headers.update(headers)
        protocol.send_request(request)
        self._flush()
        deadline = time.monotonic() + seconds
        while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
            if not self._read():
                self._wait(deadline)
        error = protocol.handshake_exc
        if isinstance(error, InvalidStatus):
            raise RefusedError(error.response.status_code, bytes(error.response.body or b""))
        if error is not None:
            raise ConnectionError(f"no WebSocket: {error}") from error

    def accept(self, protocol: ServerProtocol, headers: Iterable[tuple[str, str]]) -> bool:
        """Answer the request with these headers; say whether it is a WebSocket now."""
        # The protocol wants to read the request itself, of which only the headers matter to it.
        lines = ["GET / HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
        protocol.receive_data("\r\n".join(lines).encode("latin-1"))
        for request in protocol.events_received():
            assert isinstance(request, Request)  # noqa: S101 -- the first event of a server
            protocol.send_response(protocol.accept(request))
        self._flush()
        return self.is_open

    def _wait(self, deadline: float | None) -> None:
        """Wait until something has come, and keep those on the way from forgetting us."""
        left = _PING_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        writing = [self.connection] if self._unsent else []
        ready, free, _ = select.select([self.connection], writing, [], min(left, _PING_SECONDS))
        if not ready and not free and left >= _PING_SECONDS:
            with self._lock:
                if self.is_open:
                    self._protocol.send_ping(b"")
        self._write()

    def _read(self) -> bool:
        """Take in what has come; return whether there may be more."""
        with self._lock:
            if self._protocol.state is State.CLOSED:
                return False
            try:
                data = self.connection.recv(_READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            except OSError:
                data = b""
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
        self._write()
        return bool(data)

    def _flush(self) -> None:
        while not self._write():
            select.select([], [self.connection], [], _WRITABLE_SECONDS)

    def _write(self) -> bool:
        """Send what can be sent without waiting; return whether that was all."""
        with self._lock:
            self._unsent += b"".join(self._protocol.data_to_send())
            try:
                while self._unsent:
                    # What was tried once must be tried again, and may have grown: SSL_write(3).
                    del self._unsent[: self.connection.send(self._unsent)]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            except (OSError, ValueError):
                # Nobody is there any more, which the reader finds out too.
                self._unsent.clear()
        return True


def client(
    connection: ssl.SSLSocket, url: str, headers: Mapping[str, str], name: str, seconds: float
) -> WebSocket:
    """Ask for a WebSocket that speaks the protocol of a name; raises as `request` does."""
    protocol = ClientProtocol(parse_uri(url), subprotocols=[Subprotocol(name)], max_size=None)
    found = WebSocket(connection, protocol)
    found.request(protocol, headers, seconds)
    return found


def server(
    connection: ssl.SSLSocket, headers: Iterable[tuple[str, str]], name: str
) -> WebSocket | None:
    """Answer a client that asks for the protocol of a name; None if it asks for something else."""
    protocol = ServerProtocol(subprotocols=[Subprotocol(name)], max_size=None)
    found = WebSocket(connection, protocol)
    return found if found.accept(protocol, headers) else None
