"""The smoke test: one GPU of each pool, for a minute. The others: that they come, and end."""

from dataclasses import replace

import pytest

from megatron_eks.plan.cluster import ClusterPlan
from tests.charts import rendered
from tests.charts.rendered import cluster, validation


@pytest.fixture
def two_pools() -> ClusterPlan:
    """Return a plan with a second pool."""
    (pool,) = cluster().pools
    return replace(cluster(), pools=(pool, replace(pool, name="p4d-b")))


def test_each_pool_has_a_test_of_its_own(two_pools):
    """A node of the pool must answer, not any node with a GPU."""
    found = {
        (item.owner["metadata"]["name"], item.spec["nodeSelector"]["megatron-eks/pool"])
        for item in rendered.pods(validation(two_pools))
    }
    names = ("all-reduce", "efa-check", "nvidia-smi", "sample-training", "storage")
    assert found == {(f"{name}-{pool}", pool) for name in names for pool in ("p4d", "p4d-b")}


def test_a_further_pool_changes_no_other_test(two_pools):
    """Each test is rendered from its own pool alone."""
    assert validation()[0] == validation(two_pools)[0]


def test_the_platform_starts_no_gpu_job():
    """`kubectl apply -f dist/platform/` takes no GPU."""
    for item in rendered.pods(rendered.platform()):
        limits = item.container.get("resources", {}).get("limits", {})
        assert "nvidia.com/gpu" not in limits


def test_tests_of_a_pool_do_not_wait_for_each_other():
    """Two that need several nodes would each hold some of them; only one does."""
    several = [
        item["metadata"]["name"]
        for item in validation()
        if "Worker" in item.get("spec", {}).get("pytorchReplicaSpecs", {})
    ]
    assert several == ["all-reduce-p4d"]


def test_all_tests_of_a_pool_end_by_themselves():
    """Also where no node ever comes."""
    for item in validation():
        if item["kind"] in {"Job", "PyTorchJob"}:
            policy = item["spec"].get("runPolicy", item["spec"])
            assert 0 < policy["activeDeadlineSeconds"] <= 3600
            assert policy["ttlSecondsAfterFinished"] > 0
