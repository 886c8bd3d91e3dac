"""A server that fails in front of a real API server, and the commands behind it."""

import shutil
from datetime import UTC, datetime

import pytest
import yaml

from megatron_eks.__main__ import main
from megatron_eks.ops.jobs import rendering, submit
from megatron_eks.ops.jobs.rendering import Wish
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from megatron_eks.project import load_project
from tests.annex import jobs
from tests.annex.fault_proxy import fault_proxy
from tests.annex.meks.faults.world import JOB, MAPS, NAMESPACE
from tests.consoles import console, said


@pytest.fixture(scope="module")
def small(project, tmp_path_factory, emitted):
    """Copy the shared project with one of its jobs."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "jobs").mkdir()
    shutil.copy(project / "cluster.yaml", folder)
    shutil.copy(project / "jobs" / f"{JOB}.yaml", folder / "jobs")
    (folder / "dist").symlink_to(emitted)
    return folder / "cluster.yaml"


@pytest.fixture(scope="module")
def loaded(small):
    """Load it."""
    return load_project(small, datetime.now(tz=UTC).date())


@pytest.fixture
def proxy(control_plane, client, tmp_path):
    """Stand in front of the API server."""
    assert client
    (tmp_path / "proxy").mkdir()
    with fault_proxy(control_plane, tmp_path / "proxy") as found:
        yield found


@pytest.fixture
def send(small, loaded, client):
    """Return a function that submits a job through some client."""
    made = set()

    def call(way, name, *changes):
        made.add(name)
        directory = f"checkpoint.directory=/shared/checkpoints/{name}"
        values = rendering.parse([f"name={name}", directory, *changes])
        wish = Wish(small, JOB, values, datetime.now(tz=UTC).date())
        told = console(yes=True)
        options = submit.Options(previews=True, wait_seconds=60)
        code = submit.run(wish, options, Opened(Access(way, is_local=True), loaded, told))
        return code, said(told)

    yield call
    for name in made:
        found = client.find("kubeflow.org/v1", "PyTorchJob", name, NAMESPACE)
        if found is not None:
            jobs.delete(client, {**found, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"})


@pytest.fixture
def unreachable(proxy, tmp_path, monkeypatch, small):
    """Return a function that runs a command with a way that leads nowhere."""
    (tmp_path / "maps.yaml").write_text(yaml.safe_dump_all(MAPS))
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def call(command, **cluster):
        given = [str(tmp_path / "maps.yaml") if word == "MAPS" else word for word in command]
        file = proxy.kubeconfig(tmp_path / "kubeconfig", **cluster)
        return main([*given, "--cluster", str(small), "--kubeconfig", str(file)])

    return call
