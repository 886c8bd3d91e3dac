"""The smoke test: one GPU of each pool, for a minute. The others: that they come, and end."""

from dataclasses import replace

import pytest

from megatron_eks.catalog import pins
from megatron_eks.plan.cluster import ClusterPlan
from tests.charts import rendered
from tests.charts.pod_security import violations
from tests.charts.rendered import Manifest, cluster, only, pod, validation


@pytest.fixture
def two_pools() -> ClusterPlan:
    """Return a plan with a second pool."""
    (pool,) = cluster().pools
    return replace(cluster(), pools=(pool, replace(pool, name="p4d-b")))


def smoke_test() -> Manifest:
    """Return the test of the default pool that asks for one GPU."""
    return only(validation(), "Job", "nvidia-smi-p4d")


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


def test_it_takes_one_gpu_and_prints_it():
    """More would not fit beside anything else on the node."""
    job = smoke_test()
    container = pod(job).container
    assert container["command"] == ["nvidia-smi"]
    assert container["image"] == pins.CUDA_IMAGE
    limits = container["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == 1
    assert container["resources"]["requests"]["nvidia.com/gpu"] == 1
    assert "vpc.amazonaws.com/efa" not in limits


def test_it_obeys_the_namespace_of_jobs():
    """It runs where jobs run, so it passes the same level."""
    job = smoke_test()
    assert job["metadata"]["namespace"] == cluster().platform.namespace
    assert violations(pod(job).spec, "restricted") == []


def test_it_tolerates_the_taint_of_gpu_nodes():
    """Otherwise it would stay Pending beside a healthy node."""
    job = smoke_test()
    expected = {"key": cluster().platform.gpu_taint, "operator": "Exists", "effect": "NoSchedule"}
    assert expected in pod(job).spec["tolerations"]


def test_it_ends_by_itself():
    """Without a node it gives up, and afterwards it goes, so that it can run again."""
    spec = smoke_test()["spec"]
    assert pod(smoke_test()).spec["restartPolicy"] == "Never"
    assert 0 < spec["activeDeadlineSeconds"] <= 3600
    assert spec["ttlSecondsAfterFinished"] > 0


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
