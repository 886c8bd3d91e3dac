"""What follows from a family and from a kind of capacity, beyond the templates."""

import pytest

from megatron_eks.catalog.instances import INSTANCES, MIB_PER_GIB
from megatron_eks.config.job import MegatronJob
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.cost import cluster_cost
from megatron_eks.plan.jobs.resources import gpu_resources
from megatron_eks.plan.jobs.table import check_job
from tests.plan.conftest import ROOT

BLOCK = "{type: capacity_block, id: cr-0123456789abcdef0, ends_at: 2026-12-01T11:30:00Z}"
RESERVATION = "{type: reservation, id: cr-0123456789abcdef0}"


def with_capacity(capacity, instance_type="p4d.24xlarge"):
    """Return the changes of the shipped cluster file."""
    return {
        "instance_type: p4d.24xlarge": f"instance_type: {instance_type}",
        "max_nodes: 2": f"max_nodes: 2\n    capacity: {capacity}",
    }


@pytest.mark.parametrize("name", INSTANCES)
def test_a_pod_fits_on_its_node(name):
    """A pod that asks for more than the kubelet offers stays Pending for ever."""
    instance = INSTANCES[name]
    pod = gpu_resources(instance, instance.gpus, nodes=2, shm_gib=1)
    left = instance.allocatable_memory_mib - instance.hugepages_mib
    assert MIB_PER_GIB <= pod.memory_mib < left
    assert 1000 <= pod.cpu_millis < instance.allocatable_cpu_millis
    assert (pod.gpus, pod.efa) == (instance.gpus, instance.efa_interfaces)
    assert pod.hugepages_mib <= instance.hugepages_mib


@pytest.mark.parametrize(
    ("capacity", "instance_type", "hourly", "notes"),
    [
        ("{type: on_demand}", "p5.48xlarge", 2 * 55.04, []),
        (
            "{type: on_demand}",
            "p5e.48xlarge",
            None,
            [
                "unknown: this release has no price in us-east-2 for p5e.48xlarge (p4d).",
            ],
        ),
        (
            RESERVATION,
            "p5.48xlarge",
            2 * 55.04,
            ["p5.48xlarge (p4d): a reservation is billed whether its nodes run or not."],
        ),
        (
            BLOCK,
            "p5.48xlarge",
            None,
            [
                "p5.48xlarge (p4d): unknown here; a Capacity Block was paid when it was bought.",
            ],
        ),
        (
            "{type: spot}",
            "g5.xlarge",
            None,
            [
                "g5.xlarge (p4d): unknown; spot prices change, and never exceed the on-demand one.",
            ],
        ),
    ],
)
def test_prices_are_those_of_the_capacity(cluster, capacity, instance_type, hourly, notes):
    """List prices where they apply; otherwise unknown, and why."""
    cost = cluster_cost(cluster(with_capacity(capacity, instance_type)))
    [nodes] = cost.gpu_nodes
    assert nodes.total == (None if hourly is None else pytest.approx(hourly))
    assert list(cost.notes) == notes


@pytest.mark.parametrize("nodes", [1, 2, 64])
def test_max_nodes_has_no_say_in_the_placement_group(cluster, nodes):
    """Raising it must not change a launch template, which would replace nodes in use."""
    assert cluster({"max_nodes: 2": f"max_nodes: {nodes}"}).pools[0].placement_group


def findings_of_job(cluster_changes, job_changes=None):
    """Check the shipped job on the shipped cluster, with changes."""
    texts = [
        (ROOT / "cluster.yaml").read_text(),
        (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text(),
    ]
    for index, changes in enumerate((cluster_changes, job_changes or {})):
        for old, new in changes.items():
            assert old in texts[index]
            texts[index] = texts[index].replace(old, new, 1)
    config, _ = parse_cluster(read_mapping(texts[0], "c"))
    job, _ = parse_job(read_mapping(texts[1], "j"))
    assert config is not None
    assert isinstance(job, MegatronJob)
    return [str(finding) for finding in check_job(job, config)]


def test_several_nodes_on_spot_are_warned_of():
    """One node taken stops them all; a single node on spot loses only itself."""
    spot = with_capacity("{type: spot}")
    [found] = findings_of_job(spot)
    assert found == (
        "warning MEKS-0231  nodes: 2 nodes on spot: EC2 takes one with two minutes' notice, and "
        "all restart; a checkpoint takes about 6 minutes; 100 steps between checkpoints take 80 "
        "minutes - use another kind of capacity, or storage.lustre.capacity_gib: 4800 with "
        "checkpoint.interval: 37 at most"
    )
    followed = {**spot, "capacity_gib: 1200": "capacity_gib: 4800"}
    seldom = "2 nodes on spot: EC2 takes one with two minutes' notice, and all restart"
    [found] = findings_of_job(followed)
    assert found == (
        f"warning MEKS-0231  nodes: {seldom}; 100 steps between checkpoints take 80 minutes - use "
        "another kind of capacity, or checkpoint.interval: 37 at most"
    )
    assert findings_of_job(followed, {"\n  interval: 100": "\n  interval: 36"}) == []
    assert findings_of_job(spot, {"nodes: 2": "nodes: 1"}) == []


def test_tensor_parallelism_over_pcie_is_warned_of():
    """It runs, and it waits for PCIe in every layer."""
    pool = {"instance_type: p4d.24xlarge": "instance_type: g6e.48xlarge"}
    [found] = findings_of_job(pool)
    assert found == (
        "warning MEKS-0232  parallelism.tensor: the GPUs of a g6e.48xlarge share PCIe, and every "
        "layer waits for tensor ranks - prefer pipeline stages where the model fits; "
        "docs/parallelism.md"
    )
