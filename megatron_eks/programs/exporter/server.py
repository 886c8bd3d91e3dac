"""Answers whoever scrapes."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_REQUEST_SECONDS = 10.0


def serve(port: int, text: Callable[[], str], scraped: Callable[[], None]) -> None:
    """Answer from now on, in threads of its own. Raises OSError where the port is taken."""

    class Answer(BaseHTTPRequestHandler):
        timeout = _REQUEST_SECONDS

        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/metrics"
            body = text().encode() if found else b"see /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if found:
                scraped()

        def log_message(self, *_: object) -> None:
            """Say nothing: it would stand in the job's log."""

    server = ThreadingHTTPServer(("", port), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
