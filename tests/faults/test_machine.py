"""What the machine itself refuses: pipes, disks, folders, clocks, and logs that are no text."""

import io
import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler

import boto3
import pytest
from botocore import exceptions
from botocore.stub import Stubber

from megatron_eks.kubernetes.client import Client, Object, connect
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.aws.session import explained
from megatron_eks.ops.jobs import logs
from megatron_eks.ops.kube import access, jobs
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.project import ROOT
from tests.consoles import console, written
from tests.kubernetes.answers import say
from tests.kubernetes.conftest import Api, serving

NOBODY = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
_MEKS = [sys.executable, "-m", "megatron_eks"]


@pytest.mark.parametrize(
    "command", [["plan"], ["plan", "-o", "json"], ["explain", "0312"], ["validate", "cluster.yaml"]]
)
def test_a_reader_that_goes_away_ends_a_command_in_silence(command):
    """As with `| head -1`: nobody is left to tell."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(  # noqa: S603 -- our own command
        [*_MEKS, *command], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    # What has nothing to write does not notice.
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr


_WRITE = """\
from pathlib import Path
from megatron_eks.ops.output import replace_file
from megatron_eks.ops.failure import Failure
try:
    replace_file(Path("place/outputs.json"), "x" * 200_000, "then run: meks outputs")
except Failure as failure:
    print(failure.code, failure)
"""


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        (
            "mount -t tmpfs -o size=64k none place && cp outputs.json place",
            "No space left on device",
        ),
        (
            "cp outputs.json place && mount --bind place place && mount -o remount,ro,bind place",
            "Read-only file system",
        ),
    ],
    ids=["full", "read-only"],
)
def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path, mount, why):
    """On a disk that is full, and in a folder that is read-only; nothing half written is left."""
    (tmp_path / "place").mkdir()
    (tmp_path / "outputs.json").write_text('{"old": 1}\n')
    (tmp_path / "write.py").write_text(_WRITE)
    script = f"{mount} && {sys.executable} write.py; ls -A place; cat place/outputs.json"
    done = subprocess.run(  # noqa: S603 -- our own script
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],  # noqa: S607
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    assert lines[0].startswith(f"1 MEKS-0794 place/outputs.json cannot be written: {why} - ")
    assert lines[0].endswith("then run: meks outputs")
    assert lines[1:] == ["outputs.json", '{"old": 1}']


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("RequestTimeTooSkewed", "The difference between the request time and ..."),
        ("InvalidSignatureException", "Signature expired: 20261122T100000Z is now earlier than"),
        ("SignatureDoesNotMatch", "Signature not yet current: 20261122T100000Z is still later"),
    ],
)
def test_a_clock_that_differs_from_aws_is_named(code, message):
    """It looks like wrong credentials, and these are right."""
    sts = boto3.client("sts", region_name="us-east-2", **NOBODY)
    with Stubber(sts) as stub:
        stub.add_client_error("get_caller_identity", code, message)
        with pytest.raises(exceptions.ClientError) as raised:
            sts.get_caller_identity()
    failure = explained(raised.value)
    assert failure.code == 1
    assert "MEKS-0740 this machine's clock differs from AWS's" in str(failure)


class Routed(Api):
    """Answers by path, in any number of threads."""

    answer: Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def routed(tmp_path) -> Iterator[Routed]:
    """Run a server whose answers a test gives."""
    server = Routed(tmp_path)
    # Looked up with each request: a test may change it.
    server.answers = [lambda request: server.answer(request)]  # noqa: PLW0108
    with serving(server):
        yield server


@pytest.mark.parametrize(("start", "end"), [(-3, -2), (1, 2)], ids=["expired", "not yet"])
def test_a_certificate_out_of_its_time_points_at_the_clock(monkeypatch, start, end, request):
    """A machine that woke up in the past sees every certificate as one of the future."""
    now = datetime.now(tz=UTC)
    bounds = iter([now + timedelta(days=start), now + timedelta(days=end)])
    # The certificate is made with these bounds instead of a day before and a day after.
    from cryptography import x509  # noqa: PLC0415 -- to change it

    kind = x509.CertificateBuilder
    for name in ("not_valid_before", "not_valid_after"):
        real = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda self, _, real=real: real(self, next(bounds)))
    server = request.getfixturevalue("routed")
    server.answer = say(200, {"major": "1"})
    client = connect(server.url, server.authority, "1")
    with pytest.raises(UnreachableError) as raised:
        client.request("GET", "/version")
    client.close()
    failure = access.explained(raised.value)
    assert failure.code == 5
    assert "see to this machine's clock first" in str(failure)


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
                [*_MEKS, "logs", "--explain", "--file", source, "-o", "json"],
                cwd=ROOT,
                stdin=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["code"] == "MEKS-0901"
