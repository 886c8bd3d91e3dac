"""Nodes that exist in the API only: KWOK plays their kubelets, and no process ever runs there."""

from typing import TYPE_CHECKING

from megatron_eks.local.kubernetes.control_plane import SIMULATED
from megatron_eks.plan.platform import GPU_TAINT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from megatron_eks.local.kubernetes.client import Object
    from megatron_eks.plan.cluster import ClusterPlan
    from megatron_eks.plan.pools import PoolPlan

# How many nodes share a switch of the first, second and third layer. AWS documents the labels and
# not the sizes (EKS User Guide, ml-workload-topology); these give a tree worth testing.
_NODES_PER_SWITCH = (256, 64, 16)

_SYSTEM_PODS = 58
_GIB_PER_VCPU = {"c": 2, "m": 4}
_VCPUS = {"2xlarge": 8, "4xlarge": 16}


def gpu_node(pool: "PoolPlan", number: int) -> "Object":
    """Return one node of a pool as it looks once its device plugins have reported.

    Memory is what the kubelet offers beside the huge pages, as in `plan.job.pod_resources`.
    """
    instance = pool.instance
    memory = instance.allocatable_memory_mib - instance.hugepages_mib
    capacity = {
        "cpu": f"{instance.vcpus}",
        "memory": f"{instance.memory_mib}Mi",
        "ephemeral-storage": f"{instance.instance_store_gb or pool.root_volume_gib}G",
        "pods": f"{pool.max_pods}",
        "hugepages-2Mi": f"{instance.hugepages_mib}Mi",
        "nvidia.com/gpu": f"{instance.gpus}",
    }
    if instance.efa_interfaces:
        capacity["vpc.amazonaws.com/efa"] = f"{instance.efa_interfaces}"
    labels = {
        **_labels(instance.name, pool.zone),
        **_switches(pool.name, number),
        "eks.amazonaws.com/nodegroup": pool.name,
        # From nodeadm, where the AMI has NVIDIA's driver.
        "nvidia.com/gpu.present": "true",
        **pool.labels,
    }
    cpu = f"{instance.allocatable_cpu_millis}m"
    allocatable = {**capacity, "cpu": cpu, "memory": f"{memory}Mi"}
    taints = [{"key": GPU_TAINT, "value": "true", "effect": "NoSchedule"}]
    return _node(f"{pool.name}-{number}", labels, capacity, allocatable, taints)


def system_nodes(plan: "ClusterPlan") -> "list[Object]":
    """Return the nodes for everything that is not a training pod."""
    name = plan.system_nodes.instance_type
    family, size = name.split(".")
    vcpus = _VCPUS[size]
    # A GiB stays with the system: close enough where nothing is full.
    memory = vcpus * _GIB_PER_VCPU[family[0]] - 1
    capacity = {"cpu": f"{vcpus}", "memory": f"{memory}Gi", "pods": f"{_SYSTEM_PODS}"}
    capacity["ephemeral-storage"] = "80G"
    zones = plan.availability_zones
    return [
        _node(
            f"system-{number}",
            {**_labels(name, zones[number % len(zones)]), "role": "system"},
            capacity,
            capacity,
            [],
        )
        for number in range(plan.system_nodes.count)
    ]


def as_process(node: "Object") -> "Object":
    """Return a node for a kubelet of processes to register; KWOK leaves it alone."""
    labels = {key: each for key, each in node["metadata"]["labels"].items() if key != SIMULATED}
    return {**node, "metadata": {**node["metadata"], "labels": labels}}


def is_ready(node: "Object") -> bool:
    """Say whether pods can be scheduled: a new node carries taints until its state is known."""
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    taints = {each["key"] for each in node["spec"].get("taints", ())}
    return conditions.get("Ready") == "True" and not any(
        key.startswith("node.kubernetes.io/") for key in taints
    )


def _labels(instance_type: str, zone: str) -> dict[str, str]:
    return {
        SIMULATED: "true",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/region": zone[:-1],
        "topology.kubernetes.io/zone": zone,
    }


def _switches(pool: str, number: int) -> dict[str, str]:
    return {
        f"topology.k8s.aws/network-node-layer-{layer}": f"nn-{pool}-{layer}-{number // size}"
        for layer, size in enumerate(_NODES_PER_SWITCH, start=1)
    }


def _node(
    name: str,
    labels: "Mapping[str, str]",
    capacity: "Mapping[str, str]",
    allocatable: "Mapping[str, str]",
    taints: "list[Object]",
) -> "Object":
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "spec": {"taints": taints},
        "status": {"capacity": dict(capacity), "allocatable": dict(allocatable)},
    }
