"""Logs that are too long, no text, or cut again and again."""

import io
import json
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from megatron_eks.kubernetes.client import Client, Object, connect
from megatron_eks.ops.jobs import logs
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.project import ROOT
from tests.consoles import console, written
from tests.faults.conftest import Routed
from tests.kubernetes.answers import say

_EXPLAIN = [sys.executable, "-m", "megatron_eks", "logs", "--explain", "-o", "json"]


class Counting(io.StringIO):
    """Keeps the length of what is written, and its end."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.longest = 0, 0

    def write(self, text: str) -> int:
        """Count."""
        self.size += len(text)
        self.longest = max(self.longest, len(text))
        return len(text)


def job(name: str = "job") -> Object:
    """Return a job of one rank."""
    pod = {"containers": [{"name": "pytorch", "image": "x"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "n", "uid": "1"},
        "spec": {"parallelism": 1, "template": {"spec": pod}},
        "status": {},
    }


def pod() -> Object:
    """Return its pod."""
    return {
        "metadata": {
            "name": "job-0",
            "namespace": "n",
            "uid": "p",
            "creationTimestamp": "2026-11-22T10:00:00Z",
            "labels": {"batch.kubernetes.io/job-name": "job"},
            "ownerReferences": [{"uid": "1"}],
        },
        "spec": {"nodeName": "a", "containers": [{"name": "pytorch"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "pytorch", "restartCount": 0, "state": {"running": {}}}],
        },
    }


class Cluster:
    """An API server with one job, whose log a test writes."""

    def __init__(self, server: Routed, log: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.log, self.job = log, job()
        server.answer = self.answer
        self.client: Client = connect(server.url, server.authority, "1")

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer as an API server does."""
        path = request.path
        resources = [{"name": "jobs", "kind": "Job", "namespaced": True}]
        if path.startswith("/apis/batch/v1/namespaces"):
            say(200, self.job)(request)
        elif path.startswith("/apis/batch"):
            say(200, {"resources": resources})(request)
        elif "/log" in path:
            self.log(request)
        elif "/pods" in path:
            say(200, {"items": [pod()]})(request)
        else:
            say(200, {"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}]})(request)


def test_a_line_of_100_mb_and_bytes_that_are_no_text_fill_no_memory(routed):
    """They come in pieces, and whatever no terminal shows is escaped."""
    piece, times = b"x" * 1_000_000, 100

    def log(request):
        request.send_response(200)
        request.send_header("Content-Length", str(len(piece) * times + 5))
        request.end_headers()
        for _ in range(times):
            request.wfile.write(piece)
        request.wfile.write(b"\n\xff\x00z\n")

    cluster = Cluster(routed, log)
    out = Counting()
    rank = jobs.ranks(RunningJob(cluster.job), [pod()])[0]
    tracemalloc.start()
    last = ""
    for text in logs.printed(cluster.client, "n", rank, logs.Options()):
        out.write(text)
        last = text
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    cluster.client.close()
    assert out.size >= len(piece) * times
    assert out.longest <= 64 * 1024
    assert last == "\\xff\\x00z"
    assert peak < 8_000_000


def test_a_log_that_is_cut_again_and_again_is_printed_once(routed):
    """Each line once and in order, whole, also the one in whose middle the stream was cut."""
    lines = [f"2026-11-22T10:00:{n:02}.{n:09}Z line {n}\n".encode() for n in range(30)]
    asked: list[str] = []

    def log(request):
        asked.append(request.path)
        since = re.search(r"sinceTime=2026-11-22T10%3A00%3A(\d\d)", request.path)
        # Whole seconds, as the kubelet counts: some lines come again.
        left = lines[int(since[1]) :] if since else lines
        text = b"".join(left)
        cut = b"".join(left[:7])[:-4] if len(left) > 7 else text
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(f"{len(cut):x}\r\n".encode() + cut + b"\r\n")
        if cut == text:
            cluster.job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
            request.wfile.write(b"0\r\n\r\n")
        request.close_connection = True

    cluster = Cluster(routed, log)
    told = console()
    logs.follow(cluster.client, RunningJob(cluster.job), [0], logs.Options(follow=True), told)
    cluster.client.close()
    printed = [line.removeprefix("[0] ") for line in written(told).splitlines()]
    assert [line for line in printed if re.fullmatch(r"line \d+", line)] == [
        f"line {n}" for n in range(30)
    ]
    assert len(asked) > 3


def test_a_saved_log_of_100_mb_in_one_line_is_explained(tmp_path):
    """With bytes that are no text around what counts; from a file and from standard input."""
    file = tmp_path / "huge.log"
    with file.open("wb") as stream:
        for _ in range(100):
            stream.write(b"\xff" * 1_000_000)
        stream.write(b"\n\xfe[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n\x00\n")
    for source in (str(file), "-"):
        with file.open("rb") as stdin:
            done = subprocess.run(  # noqa: S603 -- our own command
                [*_EXPLAIN, "--file", source],
                cwd=ROOT,
                stdin=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["code"] == "MEKS-0901"
