"""The smoke test: one GPU of each pool, for a minute."""

from dataclasses import replace

import pytest

from megatron_eks.catalog import pins
from megatron_eks.plan.cluster import ClusterPlan
from tests.charts import rendered
from tests.charts.pod_security import violations
from tests.charts.rendered import cluster, pod, validation


@pytest.fixture
def two_pools() -> ClusterPlan:
    """Return a plan with a second pool."""
    (pool,) = cluster().pools
    return replace(cluster(), pools=(pool, replace(pool, name="p4d-b")))


def test_each_pool_has_a_test_of_its_own(two_pools):
    """A node of the pool must answer, not any node with a GPU."""
    found = {item["metadata"]["name"]: pod(item).spec for item in validation(two_pools)}
    selectors = {name: spec["nodeSelector"] for name, spec in found.items()}
    assert selectors == {
        "nvidia-smi-p4d": {"megatron-eks/pool": "p4d"},
        "nvidia-smi-p4d-b": {"megatron-eks/pool": "p4d-b"},
    }


def test_a_further_pool_changes_no_other_test(two_pools):
    """Each test is rendered from its own pool alone."""
    assert validation()[0] == validation(two_pools)[0]


def test_it_takes_one_gpu_and_prints_it():
    """More would not fit beside anything else on the node."""
    (job,) = validation()
    container = pod(job).container
    assert container["command"] == ["nvidia-smi"]
    assert container["image"] == pins.CUDA_IMAGE
    limits = container["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == 1
    assert container["resources"]["requests"]["nvidia.com/gpu"] == 1
    assert "vpc.amazonaws.com/efa" not in limits


def test_it_obeys_the_namespace_of_jobs():
    """It runs where jobs run, so it passes the same level."""
    (job,) = validation()
    assert job["metadata"]["namespace"] == cluster().platform.namespace
    assert violations(pod(job).spec, "restricted") == []


def test_it_tolerates_the_taint_of_gpu_nodes():
    """Otherwise it would stay Pending beside a healthy node."""
    (job,) = validation()
    expected = {"key": cluster().platform.gpu_taint, "operator": "Exists", "effect": "NoSchedule"}
    assert expected in pod(job).spec["tolerations"]


def test_it_ends_by_itself():
    """Without a node it gives up, and afterwards it goes, so that it can run again."""
    spec = validation()[0]["spec"]
    assert pod(validation()[0]).spec["restartPolicy"] == "Never"
    assert 0 < spec["activeDeadlineSeconds"] <= 3600
    assert spec["ttlSecondsAfterFinished"] > 0


def test_the_platform_starts_no_gpu_job():
    """`kubectl apply -f dist/platform/` takes no GPU."""
    for item in rendered.pods(rendered.platform()):
        limits = item.container.get("resources", {}).get("limits", {})
        assert "nvidia.com/gpu" not in limits
