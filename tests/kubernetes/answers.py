"""What the API server of a test answers."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

Answer = Callable[[BaseHTTPRequestHandler], None]


def say(status: int, body: object = None, **headers: str) -> Answer:
    """Answer with a status and an object."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        data = json.dumps(body if body is not None else {"message": f"status {status}"}).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(data)

    return answer


def stream(*lines: bytes, cut: bool = False) -> Answer:
    """Send lines as the log of a pod; `cut` closes the connection without an end."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for line in lines:
            request.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        if not cut:
            request.wfile.write(b"0\r\n\r\n")
        request.close_connection = True

    return answer


def silence(seconds: float) -> Answer:
    """Let the client wait."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        time.sleep(seconds)
        request.close_connection = True

    return answer


def interrupted(number: int) -> Answer:
    """Send half an answer, then a signal to the client, which is this process."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "8")
        request.end_headers()
        request.wfile.write(b'{"a"')
        # By then the client waits for the other half.
        time.sleep(0.3)
        os.kill(os.getpid(), number)
        with contextlib.suppress(OSError):
            request.wfile.write(b": 2}")

    return answer
