"""A stand-in for Grafana: what its HTTP API documents of folders, dashboards and tokens.

Grafana, "Dashboard HTTP API", "Folder HTTP API" and "Authentication HTTP API".
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "glsa_0123456789abcdef_01234567"  # noqa: S105 -- this server's own


@dataclass
class Grafana:
    """What is in it, and how its service account may act."""

    port: int
    role: str = "Editor"
    redirects_to: str = ""
    folders: dict[str, Any] = field(default_factory=dict)
    boards: dict[str, Any] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, token: str, body: Any) -> tuple[int, Any]:
        """Answer a request as Grafana does."""
        if token != f"Bearer {TOKEN}":
            return 401, {"message": f"Invalid API key {token}"}
        parts = path.strip("/").split("/")
        if method == "GET":
            found = {"folders": self.folders, "dashboards": self.boards}[parts[1]].get(parts[-1])
            return (200, found) if found else (404, {"message": "not found"})
        if self.role == "Viewer":
            return 403, {"message": "You'll need additional permissions"}
        self.written.append(path)
        if path == "/api/folders":
            if body["uid"] in self.folders:
                return 412, {"message": "the folder has been changed by someone else"}
            self.folders[body["uid"]] = body
            return 200, {"id": len(self.folders), **body}
        assert path == "/api/dashboards/db"
        return self._save(body)

    def _save(self, body: Any) -> tuple[int, Any]:
        board, there = body["dashboard"], self.boards.get(body["dashboard"]["uid"])
        assert board["id"] is None
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        if there and not body.get("overwrite"):
            return 412, {"status": "version-mismatch", "message": "changed by someone else"}
        version = there["dashboard"]["version"] + 1 if there else 1
        saved = {**board, "id": 7, "version": version, "weekStart": ""}
        place = {"folderUid": body["folderUid"]}
        self.boards[board["uid"]] = {"dashboard": saved, "meta": place}
        return 200, {"status": "success", "uid": board["uid"], "version": version}


@contextmanager
def serve() -> Iterator[Grafana]:
    """Run one on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_words: Any) -> None:
            pass

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            token = self.headers.get("Authorization", "")
            status, answer = grafana.answer(self.command, self.path, token, body)
            self.send_response(302 if grafana.redirects_to else status)
            if grafana.redirects_to:
                self.send_header("Location", grafana.redirects_to)
            text = json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815 -- http.server calls it

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    grafana = Grafana(server.server_port)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield grafana
    finally:
        server.shutdown()
        server.server_close()
