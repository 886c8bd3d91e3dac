"""The smoke test: one GPU of each pool, for a minute. The others: that they come, and end."""

from dataclasses import replace

import pytest

from megatron_eks.plan.cluster.cluster import ClusterPlan
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
