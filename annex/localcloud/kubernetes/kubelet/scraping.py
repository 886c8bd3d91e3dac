"""An HTTP proxy on this machine's loopback interface that reaches pods. A process.

`python -m ...scraping HOLDER PORT`: nothing outside of the pods' network sees them, so what listens
out here asks from in there.
"""

import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from megatron_eks.localcloud.kubernetes.kubelet import linux

_SECONDS = 10.0
_OPENER = build_opener(ProxyHandler({}))


class Relay(BaseHTTPRequestHandler):
    """One request to a pod."""

    timeout = _SECONDS

    def do_GET(self) -> None:
        """Answer with what the pod answers."""
        try:
            # Whoever asks has a path with a host, as clients of a proxy send it.
            with _OPENER.open(self.path, timeout=_SECONDS) as answer:
                status, body = answer.status, answer.read()
                kind = answer.headers.get("Content-Type", "text/plain")
        except (URLError, OSError, ValueError) as problem:
            status, body, kind = HTTPStatus.BAD_GATEWAY, str(problem).encode(), "text/plain"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(holder: int, port: int) -> None:
    """Serve until killed."""
    # The socket stays out here when the process goes in.
    server = ThreadingHTTPServer(("127.0.0.1", port), Relay)
    linux.enter(holder, "user", "net")
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
