"""The Job of `meks dev` is a job's pod, alone, with an end, and as hardened as the others."""

from datetime import UTC, datetime

import pytest

from megatron_eks.charts.training.dev_job import objects
from megatron_eks.guards.check import check_manifests
from megatron_eks.project import ROOT, load_project
from tests.charts import rendered

NAMES = ("megatron-cpt-techpulse", "fsdp-llama-2-7b", "ddp-llama-3-2-1b", "fetch-tokenizer")
# The last one has no pool, and so no GPU.
CASES = [*((name, gpus) for name in NAMES[:3] for gpus in (0, 1)), (NAMES[3], 0)]


@pytest.fixture(scope="module")
def project():
    """Load the default cluster with its jobs."""
    return load_project(ROOT / "cluster.yaml", datetime.now(tz=UTC).date())


@pytest.mark.parametrize(("name", "gpus"), CASES)
def test_a_pod_of_any_job_passes_the_guards(project, name, gpus):
    """With the job's image and variables, one try, Kubernetes' own deadline, and no other kind."""
    *beside, job = made = objects(project, name, gpus, 2.5, 30)
    assert check_manifests([*rendered.platform(), *made]) == []
    assert {each["kind"] for each in beside} == {"ConfigMap"}
    spec, (own,) = job["spec"], [each for each in project.jobs if each.name == name]
    assert (spec["activeDeadlineSeconds"], spec["backoffLimit"]) == (9000, 0)
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == own.image.uri
    assert {each["name"] for each in container.get("env", ())} == {*own.env, *own.secret_env}
    assert container["resources"]["limits"].get("nvidia.com/gpu", 0) == gpus
    assert ("nodeSelector" in pod) is bool(gpus)
    assert pod["priorityClassName"] == "megatron-validation"


def test_a_few_hours_of_seconds_are_a_minute(project):
    """Less would end it before it has begun."""
    *_, job = objects(project, NAMES[0], 1, 0.001, 30)
    assert job["spec"]["activeDeadlineSeconds"] == 60
