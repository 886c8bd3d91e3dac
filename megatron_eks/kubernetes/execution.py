"""Runs commands in containers: the `exec` of the Kubernetes API over a WebSocket."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from urllib.parse import quote, urlencode

from megatron_eks.kubernetes import websocket
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.kubernetes.connection import UnreachableError, refusal
from megatron_eks.kubernetes.websocket import RefusedError, WebSocket

PROTOCOL = "v4.channel.k8s.io"
"""Of the versions the one that the API server hands on as it is; v5 becomes SPDY on the way."""

_OPEN_SECONDS = 30
_PIECE_BYTES = 16 * 1024

# v4 has no way to say that the input has ended. So it comes in pieces, each with its length before
# it and the last one empty, and a shell in the container puts them together. The command may end
# without having read all, which must not leave the reader of the pieces, and so the shell, behind;
# of all signals, shells say nothing about this one.
_PIECES = 'echo $$; while read -r n && [ "$n" -gt 0 ]; do head -c "$n"; done'
_JOINED = (
    f"sh -c '{_PIECES}' 2>/dev/null"
    ' | { read -r reader; "$@"; code=$?; kill -s PIPE "$reader" 2>/dev/null; exit "$code"; }'
)


class Channel(IntEnum):
    """The first byte of each message."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    RESIZE = 4


@dataclass(frozen=True)
class Result:
    """How a command ended, and all that it wrote."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """What it wrote to stdout."""
        return self.stdout.decode(errors="replace")


class Execution:
    """A command that runs in a container. Written to and read from by one thread each."""

    def __init__(self, socket: WebSocket, server: str, *, tty: bool) -> None:
        self._socket, self._server, self._tty = socket, server, tty
        self.exit_code: int | None = None
        """Once the output has been read to its end."""

    def close(self) -> None:
        """Let go of the command: its input ends, and it may go on without anybody who reads."""
        self._socket.close()

    def output(self, deadline: float | None = None) -> Iterator[tuple[Channel, bytes]]:
        """Yield what the command writes, to its end; then the exit code is known.

        A deadline (of `time.monotonic`) raises TimeoutError, a lost connection UnreachableError,
        and a command that cannot be started ApiError.
        """
        while True:
            try:
                message = self._socket.receive(deadline)
            except ConnectionError as error:
                lost = "the connection was lost before the command ended, which may go on"
                raise UnreachableError(f"{self._server}: {lost}") from error
            if not message[1:]:
                # The first message of all is empty: it says that the streams are open.
                continue
            channel = Channel(message[0])
            if channel is Channel.STATUS:
                self.exit_code = _exit_code(json.loads(message[1:]))
                return
            yield channel, message[1:]

    def write(self, data: bytes) -> None:
        """Send the command input; does nothing if it has ended."""
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self._send(Channel.STDIN, piece if self._tty else b"%d\n%b" % (len(piece), piece))

    def end_input(self) -> None:
        """Say that there is no more input. On a terminal this is a key, so it is not said there."""
        if not self._tty:
            self._send(Channel.STDIN, b"0\n")

    def give(self, data: bytes) -> None:
        """Send the command all of its input."""
        self.write(data)
        self.end_input()

    def resize(self, columns: int, rows: int) -> None:
        """Tell the command how large its terminal is."""
        self._send(Channel.RESIZE, json.dumps({"Width": columns, "Height": rows}).encode())

    def _send(self, channel: Channel, data: bytes) -> None:
        self._socket.send(bytes([channel]) + data)


def start(
    client: Client,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    stdin: bool = False,
    tty: bool = False,
) -> Execution:
    """Start a command in a container; with a terminal, stdout and stderr are one.

    Input that is not from a terminal needs `sh` and `head` in the container. Raises ApiError
    (404: no such pod; 403: not allowed to create pods/exec; else the server's or the kubelet's
    own words, for example that the container does not run) and UnreachableError.
    """
    words = ["sh", "-c", _JOINED, "sh", *command] if stdin and not tty else command
    query = [("command", word) for word in words]
    streams = {"container": container, "stdin": stdin, "stdout": True, "stderr": not tty}
    query += [(key, str(value).lower()) for key, value in {**streams, "tty": tty}.items()]
    path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/exec?{urlencode(query)}"
    return Execution(_connect(client, path), client.server, tty=tty)


def run(
    client: Client,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    stdin: bytes | None = None,
    timeout: float | None = 60,
) -> Result:
    """Run a command in a container to its end; raise as `start` does, and TimeoutError."""
    deadline = None if timeout is None else time.monotonic() + timeout
    written = {Channel.STDOUT: bytearray(), Channel.STDERR: bytearray()}
    started = start(client, namespace, pod, container, command, stdin=stdin is not None)
    with contextlib.closing(started) as execution:
        if stdin is not None:
            # A command that writes while it reads would wait for somebody who reads.
            threading.Thread(target=execution.give, args=(stdin,), daemon=True).start()
        try:
            for channel, data in execution.output(deadline):
                written[channel] += data
        except TimeoutError as error:
            found = f"`{' '.join(command)}` in pod {pod} did not end within {timeout:g} s"
            raise TimeoutError(f"{found}, and may go on there") from error
    code = execution.exit_code or 0
    return Result(code, bytes(written[Channel.STDOUT]), bytes(written[Channel.STDERR]))


def _connect(client: Client, target: str) -> WebSocket:
    connection = client.connection
    for renewed in (False, True):
        socket = connection.dial()
        address, headers = connection.asked(target)
        try:
            return websocket.client(socket, f"wss://{address}", headers, PROTOCOL, _OPEN_SECONDS)
        except RefusedError as error:
            socket.close()
            expired = error.status == HTTPStatus.UNAUTHORIZED and not renewed
            if not (expired and connection.renew()):
                raise refusal(error.status, error.body) from error
        except BaseException as error:
            socket.close()
            if isinstance(error, OSError):
                raise connection.unreachable(error) from error
            raise
    raise AssertionError  # the second round returns or raises


def _exit_code(status: Object) -> int:
    """Return the exit code that a v1.Status tells; raise ApiError if no command ran."""
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    code = status.get("code", HTTPStatus.INTERNAL_SERVER_ERROR)
    raise ApiError(code, status.get("reason", ""), status.get("message", ""))
