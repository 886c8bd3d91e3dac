"""Jobs that a test submits, from a project of few of them."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from megatron_eks.ops.jobs import rendering, submit
from megatron_eks.ops.jobs.rendering import Wish
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from megatron_eks.project import load_project
from tests.annex import jobs

NAMESPACE = "megatron-workshop"


@pytest.fixture(scope="module")
def small(project, tmp_path_factory):
    """Copy the shared project with two of its jobs, which render faster than eleven."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "jobs").mkdir()
    shutil.copy(project / "cluster.yaml", folder)
    for name in ("megatron-gpt-7b", "fsdp-llama-2-7b", "fetch-tokenizer"):
        shutil.copy(project / "jobs" / f"{name}.yaml", folder / "jobs")
    return folder / "cluster.yaml"


@pytest.fixture(scope="module")
def loaded(small):
    """Load it."""
    return load_project(small, datetime.now(tz=UTC).date())


@pytest.fixture
def job_name(request):
    """Return the name that `send` gives a job."""
    return request.node.name.removeprefix("test_").replace("_", "-")[:30].strip("-")


@pytest.fixture
def send(client, loaded, small, console, job_name):
    """Return a function that submits a job under the test's name, cancelled after the test."""
    made = set()

    def call(job="megatron-gpt-7b", *changes, name=job_name, **options):
        values = [f"name={name}", f"checkpoint.directory=/shared/checkpoints/{name}", *changes]
        if job == "fetch-tokenizer":
            values = [f"name={name}", *changes]
        wish = Wish(small, job, rendering.parse(values), datetime.now(tz=UTC).date())
        access = Access(client, is_local=True)
        made.add(name)
        wanted = submit.Options(previews=True, wait_seconds=60)
        return submit.run(wish, replace(wanted, **options), Opened(access, loaded, console))

    yield call
    for each in made:
        found = client.find("kubeflow.org/v1", "PyTorchJob", each, NAMESPACE)
        if found is not None:
            jobs.delete(client, {**found, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"})
