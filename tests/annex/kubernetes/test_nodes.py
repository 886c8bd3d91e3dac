"""Simulated nodes look like those of a node group, of whatever type."""

from dataclasses import replace

import pytest

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes.quantity import quantity
from megatron_eks.plan.jobs.resources import gpu_resources
from tests.charts.rendered import cluster

LAYERS = "topology.k8s.aws/network-node-layer-"
(POOL,) = cluster().pools


def network_nodes(number: int) -> list[str]:
    """Return a node's place in the network, from the top down."""
    labels = gpu_node(POOL, number)["metadata"]["labels"]
    return [labels[f"{LAYERS}{layer}"] for layer in (1, 2, 3)]


def test_a_node_carries_what_eks_and_the_node_group_give_it():
    """What selectors, affinities and topology-aware schedulers look at."""
    node = gpu_node(POOL, 0)
    assert node["metadata"]["labels"].items() >= {
        ("megatron-eks/pool", "p4d"),
        ("eks.amazonaws.com/nodegroup", "p4d"),
        ("eks.amazonaws.com/capacityType", "ON_DEMAND"),
        ("node.kubernetes.io/instance-type", "p4d.24xlarge"),
        ("topology.kubernetes.io/region", "us-east-2"),
        ("topology.kubernetes.io/zone", "us-east-2b"),
        ("nvidia.com/gpu.present", "true"),
        ("kubernetes.io/hostname", "p4d-0"),
    }
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    assert node["spec"]["taints"] == [taint]


def test_nodes_stand_in_a_tree_of_three_layers():
    """Who shares a lower network node shares all above it; identifiers have EC2's form."""
    first, near, far = network_nodes(0), network_nodes(15), network_nodes(16)
    assert first == near
    assert first[:2] == far[:2]
    assert first[2] != far[2]
    assert len({tuple(network_nodes(number)) for number in range(1000)}) == 63
    assert len({network_nodes(number)[0] for number in range(1000)}) == 4
    for name in (*first, *far):
        assert name.startswith("nn-")
        assert len(name) == 20


@pytest.mark.parametrize(
    ("name", "layers"),
    [("p5.48xlarge", 3), ("p5.4xlarge", 0), ("p6-b200.48xlarge", 4), ("g5.48xlarge", 0)],
)
def test_a_type_has_the_layers_that_ec2_tells_of(name, layers):
    """None for types whose topology EC2 does not describe."""
    pool = replace(POOL, instance=INSTANCES[name])
    labels = gpu_node(pool, 0)["metadata"]["labels"]
    assert len([label for label in labels if label.startswith(LAYERS)]) == layers


@pytest.mark.parametrize("name", INSTANCES)
def test_a_pod_of_its_type_fits_a_node(name):
    """With every resource that the plan asks for, huge pages and EFA included."""
    instance = INSTANCES[name]
    node = gpu_node(replace(POOL, instance=instance), 0)
    pod = gpu_resources(instance, instance.gpus, nodes=2, shm_gib=128)
    asked = {
        "cpu": f"{pod.cpu_millis}m",
        "memory": f"{pod.memory_mib}Mi",
        "nvidia.com/gpu": str(pod.gpus),
        "vpc.amazonaws.com/efa": str(pod.efa),
        "hugepages-2Mi": f"{pod.hugepages_mib}Mi",
    }
    for resource, amount in asked.items():
        has, needs = quantity(node["status"]["allocatable"].get(resource, "0")), quantity(amount)
        assert has is not None
        assert needs is not None
        assert has >= needs, resource


def test_a_type_without_nvme_offers_its_root_volume(monkeypatch):
    """Scratch and images lie there then."""
    bare = replace(POOL.instance, instance_store_gb=0)
    monkeypatch.setitem(INSTANCES, bare.name, bare)
    node = gpu_node(replace(POOL, root_volume_gib=300), 0)
    assert node["status"]["capacity"]["ephemeral-storage"] == "300G"
