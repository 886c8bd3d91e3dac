"""What stands in for a terminal, the time and the API server in tests of the AWS commands."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from botocore.client import BaseClient

from megatron_eks.kubernetes.client import Client
from megatron_eks.ops.aws.session import Aws
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.console import Console, SystemClock
from megatron_eks.project import load_project
from tests import consoles

ROOT = Path(__file__).parents[3]
TODAY = datetime(2026, 11, 21, 12, tzinfo=UTC)
ACCOUNT = "123456789012"
NOBODY = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
CLUSTER = (
    (ROOT / "cluster.yaml")
    .read_text()
    .replace("111122223333", ACCOUNT)
    .replace("203.0.113.0/24", "8.8.4.4/32")
)


class FakeClock(SystemClock):
    """A clock on which waiting takes no time; `after` says what happens meanwhile."""

    def __init__(self) -> None:
        self.time = TODAY
        self.slept: list[float] = []
        self.during = lambda _: None

    def now(self) -> datetime:
        """Return the time."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.slept.append(seconds)
        self.time += timedelta(seconds=seconds)
        self.during(len(self.slept))


def console(answers: str | None = None, *, yes: bool = False) -> Console:
    """Return a console; None for answers is a command without a terminal."""
    return replace(consoles.console(answers, yes=yes), clock=FakeClock())


said, written = consoles.said, consoles.written
"""What a command told, and the data that it wrote."""


def clock_of(of: Console) -> FakeClock:
    """Return the clock of a console."""
    assert isinstance(of.clock, FakeClock)
    return of.clock


class Clients(Aws):
    """Clients that a test has made."""

    def __init__(self, **clients: BaseClient) -> None:
        self.region = "us-east-2"
        self._clients = clients


def project_in(folder: Path, text: str = CLUSTER) -> Path:
    """Write a cluster file of a real account, without jobs."""
    file = folder / "cluster.yaml"
    file.write_text(text)
    return file


def tools(file: Path, aws: Aws, of: Console) -> Tools:
    """Return what a command works with."""
    return Tools(file, load_project(file, TODAY.date(), makes=False), aws, of)


class FakeKubernetes(Client):
    """An API server that holds some nodes and pods."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {}
        self.deleted: list[str] = []

    def list(self, api_version, kind, namespace=None, *, labels="", fields="", missing_ok=False):
        """Return the objects of a kind that carry the labels."""
        del api_version, namespace, fields, missing_ok
        wanted = dict(pair.split("=") for pair in labels.split(",") if pair)
        return [
            each
            for each in self.objects.get(kind, [])
            if wanted.items() <= each["metadata"].get("labels", {}).items()
        ]

    def delete(self, api_version, kind, name, namespace=None, *, missing_ok=False):
        """Forget an object."""
        del api_version, namespace, missing_ok
        self.deleted.append(f"{kind}/{name}")
        self.objects[kind] = [
            each for each in self.objects[kind] if each["metadata"]["name"] != name
        ]
