"""An S3 of this machine behind a proxy that can fail, and a program run against it."""

import io
import json
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from megatron_eks.programs import program
from megatron_eks.programs.program import Report
from tests.programs import fault_proxy
from tests.programs.fault_proxy import Fault, How, Proxy
from tests.programs.run_program import Ended

BUCKET = "checkpoints"
URI = f"s3://{BUCKET}/run"
ACCESS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",  # moto takes any
    "AWS_DEFAULT_REGION": "us-east-1",
    # boto3's own attempts would hide the program's, and take longer.
    "AWS_MAX_ATTEMPTS": "1",
}


class World:
    """S3, its proxy and the variables with which a program finds it."""

    def __init__(self, client: Any, proxy: Proxy) -> None:
        self.client = client
        """Past the proxy: for looking, and for damage at rest."""
        self.proxy = proxy
        self.environment = {**ACCESS, "AWS_ENDPOINT_URL_S3": proxy.url}

    def fail(self, pattern: str, how: How, times: int = 1_000_000) -> None:
        """Let requests fail."""
        self.proxy.faults.append(Fault(pattern, how, times))

    def before(self, pattern: str, action: Callable[[], None]) -> None:
        """Do something before the first such request arrives."""
        self.proxy.faults.append(Fault(pattern, times=1, before=action))

    def heal(self) -> None:
        """End all faults and forget the requests."""
        self.proxy.faults.clear()
        self.proxy.requests.clear()

    def names(self) -> list[str]:
        """Return all objects' keys below the run's prefix."""
        found = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return [entry["Key"].removeprefix("run/") for entry in found]

    def content(self, key: str) -> bytes:
        """Return an object's content."""
        body: bytes = self.client.get_object(Bucket=BUCKET, Key=f"run/{key}")["Body"].read()
        return body

    def json(self, key: str) -> Any:
        """Return an object's content as JSON."""
        return json.loads(self.content(key))

    def clear(self) -> None:
        """Remove all objects."""
        for key in self.names():
            self.delete(key)

    def put(self, key: str, content: bytes) -> None:
        """Write an object past the proxy."""
        self.client.put_object(Bucket=BUCKET, Key=f"run/{key}", Body=content)

    def delete(self, key: str) -> None:
        """Remove an object past the proxy."""
        self.client.delete_object(Bucket=BUCKET, Key=f"run/{key}")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[Any, int]]:
    """Run moto's server; yield a client past any proxy, and the port."""
    # One line for each request is no help in a failed test's report.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",  # noqa: S106 -- moto takes any
        region_name="us-east-1",
    )
    try:
        yield client, port
    finally:
        server.stop()


@pytest.fixture
def s3(s3_server: tuple[Any, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return an empty bucket behind a proxy that can fail."""
    client, port = s3_server
    client.create_bucket(Bucket=BUCKET)
    proxy, server = fault_proxy.serve(port)
    made = World(client, proxy)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
            client.delete_object(Bucket=BUCKET, Key=entry["Key"])
        client.delete_bucket(Bucket=BUCKET)
    assert proxy.errors == []


def call(
    name: str, main: Callable[[Sequence[str], Report], None], *words: str | Path | int
) -> Ended:
    """Run a program in this process, which saves the second that boto3 takes to import."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = program.run(name, main, [str(word) for word in words])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Ended(code, out.getvalue(), err.getvalue())
