"""Serves `exec`: a command in a container, its streams on a WebSocket in the v4 protocol."""

import contextlib
import fcntl
import json
import os
import selectors
import socket
import ssl
import struct
import subprocess
import termios
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from megatron_eks.kubernetes import websocket
from megatron_eks.kubernetes.client import Object
from megatron_eks.kubernetes.execution import PROTOCOL, Channel
from megatron_eks.kubernetes.websocket import WebSocket
from megatron_eks.localcloud.kubernetes.kubelet import linux
from megatron_eks.localcloud.kubernetes.kubelet.execute import Command
from megatron_eks.localcloud.kubernetes.kubelet.running import (
    ContainerProcess,
    bare_environment,
    python,
)

_PIECE_BYTES = 32 * 1024


def serve(
    connection: ssl.SSLSocket,
    headers: Iterable[tuple[str, str]],
    container: ContainerProcess,
    query: Sequence[tuple[str, str]],
) -> None:
    """Answer a request, with the query that the API server sends, until the command has ended."""
    client = websocket.server(connection, headers, PROTOCOL)
    if client is not None:
        _Session(client, container, query).run()


class _Session:
    """One command and the client that sees it. Everything happens in the caller's thread."""

    def __init__(
        self, client: WebSocket, container: ContainerProcess, query: Sequence[tuple[str, str]]
    ) -> None:
        self._client = client
        self._words = [value for key, value in query if key == "command"]
        on = {key for key, value in query if value in {"1", "true"}}
        self._stdin, self._tty = "input" in on, "tty" in on
        self._pending = bytearray()
        self._input: int | None = None
        self._outputs: dict[int, Channel] = {}
        self._watch = selectors.DefaultSelector()
        self._control, theirs = socket.socketpair()
        self._process = self._start(container, theirs)
        theirs.close()
        if self._tty:
            self._take_terminal()

    def _start(
        self, container: ContainerProcess, theirs: socket.socket
    ) -> "subprocess.Popen[bytes]":
        spec = container.spec
        command = Command(
            sandbox=spec.sandbox,
            words=self._words,
            environment=spec.environment,
            directory=spec.directory,
            user=spec.user,
            group=spec.group,
            tty=self._tty,
        )
        written = subprocess.DEVNULL if self._tty else subprocess.PIPE
        read = subprocess.PIPE if self._stdin and not self._tty else subprocess.DEVNULL
        process = subprocess.Popen(  # noqa: S603 -- our own module
            python("execute", str(theirs.fileno()), str(container.pid)),
            stdin=read,
            stdout=written,
            stderr=written,
            env=bare_environment(),
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        self._control.sendall(json.dumps(asdict(command)).encode() + b"\n")
        # Copies, which live as long as this session wants.
        if process.stdout and process.stderr:
            self._outputs[os.dup(process.stdout.fileno())] = Channel.STDOUT
            self._outputs[os.dup(process.stderr.fileno())] = Channel.STDERR
            process.stdout.close()
            process.stderr.close()
        if process.stdin:
            self._input = os.dup(process.stdin.fileno())
            process.stdin.close()
        return process

    def _take_terminal(self) -> None:
        _, passed, _, _ = socket.recv_fds(self._control, 1, 1)
        for terminal in passed:
            self._outputs[terminal] = Channel.STDOUT
            self._input = os.dup(terminal)

    def run(self) -> None:
        """Move data until the command has ended, then say how."""
        # A client waits for this to know that the command has its streams.
        self._send(Channel.STDOUT, b"")
        ended = os.pidfd_open(self._process.pid)
        for each in (self._client.connection.fileno(), ended, *self._outputs):
            self._watch.register(each, selectors.EVENT_READ)
        for each in (*self._outputs, *([self._input] if self._input is not None else [])):
            os.set_blocking(each, False)
        while ended not in (ready := {key.fd for key, _ in self._watch.select()}):
            self._move(ready)
        for each in list(self._outputs):
            while self._forward(each):
                pass
            self._close(each)
        self._send(Channel.STATUS, json.dumps(self._status()).encode())
        self._client.close()
        self._end_input()
        self._control.close()
        self._watch.close()
        os.close(ended)

    def _move(self, ready: set[int]) -> None:
        for each in list(self._outputs):
            if each in ready and not self._forward(each):
                self._close(each)
        if self._input in ready:
            self._feed()
        if self._client.connection.fileno() in ready:
            for message in self._client.pull():
                self._take(message)
            if not self._client.is_open:
                # As on a real node the command goes on, without input; a terminal hangs up.
                self._watch.unregister(self._client.connection.fileno())
                self._client.close()
                self._end_input()
                for each in list(self._outputs) if self._tty else []:
                    self._close(each)

    def _take(self, message: bytes) -> None:
        match message[:1]:
            case b"\x00":
                self._pending += message[1:]
                self._await_reader()
            case b"\x04" if self._tty and self._input is not None:
                size = json.loads(message[1:])
                shape = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                fcntl.ioctl(self._input, termios.TIOCSWINSZ, shape)

    def _forward(self, output: int) -> bool:
        """Send what has been written; return whether there may be more."""
        try:
            data = os.read(output, _PIECE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            # A terminal that nobody holds any more.
            data = b""
        if data:
            self._send(self._outputs[output], data)
        return bool(data)

    def _await_reader(self) -> None:
        """Look whether the command takes input as long as there is some."""
        if self._input is None:
            self._pending.clear()
        elif self._pending and self._input not in self._watch.get_map():
            self._watch.register(self._input, selectors.EVENT_WRITE)
        elif not self._pending and self._input in self._watch.get_map():
            self._watch.unregister(self._input)

    def _feed(self) -> None:
        try:
            written = os.write(self._input or 0, self._pending)
        except OSError:
            self._end_input()
        else:
            del self._pending[:written]
            self._await_reader()

    def _end_input(self) -> None:
        if self._input is not None:
            self._pending.clear()
            self._await_reader()
            os.close(self._input)
            self._input = None

    def _close(self, output: int) -> None:
        self._watch.unregister(output)
        del self._outputs[output]
        os.close(output)

    def _send(self, channel: Channel, data: bytes) -> None:
        self._client.send(bytes([channel]) + data)

    def _status(self) -> Object:
        code = linux.exit_code(self._process.wait())
        found: Object = {"metadata": {}, "status": "Success"}
        said = b""
        with contextlib.suppress(OSError):
            said = self._control.recv(_PIECE_BYTES, socket.MSG_DONTWAIT)
        if said:
            message = f"failed to exec in container: {said.decode(errors='replace')}"
            return {
                **found,
                "status": "Failure",
                "reason": "InternalError",
                "message": f"Internal error occurred: {message}",
                "code": 500,
            }
        if code == 0:
            return found
        return {
            **found,
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
