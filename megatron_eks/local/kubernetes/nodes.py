"""Nodes as the API server has them, whether KWOK plays their kubelets or a process of ours."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from megatron_eks.catalog.instances import INSTANCES, MIB_PER_GIB, InstanceType, system_node_size
from megatron_eks.catalog.interfaces import max_pods
from megatron_eks.kubernetes.client import Object
from megatron_eks.local.kubernetes.control_plane import SIMULATED
from megatron_eks.plan.cluster.platform import GPU_TAINT

if TYPE_CHECKING:
    from megatron_eks.plan.cluster.cluster import ClusterPlan
    from megatron_eks.plan.cluster.pools import PoolPlan

# Layers of the network that EC2 tells of, by instance family; of others, such as g5 and g6, it
# tells nothing, and their nodes have no such label (EC2 User Guide, "Prerequisites for Amazon EC2
# topology"; EKS User Guide, "Place distributed AI/ML workloads with network topology labels").
_LAYERS = {
    **dict.fromkeys(("g6e", "g7e", "p4d", "p4de", "p5", "p5e", "p5en", "p6e-gb200"), 3),
    **dict.fromkeys(("p6-b200", "p6-b300"), 4),
    # The one size of its family that the list leaves out.
    "p5.4xlarge": 0,
}
# How many nodes share a network node of the last layer, and how many of these share one of the
# layer above. AWS publishes neither; these give a tree worth testing.
_NODES_BELOW = 16
_BRANCHES = 4

_COMPASS = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}

_SYSTEM_PODS = 58

# From nodeadm, where the AMI has NVIDIA's driver.
_OF_GPU_NODES = {"nvidia.com/gpu.present": "true"}

# Capacity, and what of it pods may take.
_Offer = tuple[dict[str, str], dict[str, str]]


def gpu_node(pool: "PoolPlan", number: int) -> Object:
    """Return one node of a pool as it looks once its device plugins have reported.

    Memory is what the kubelet offers beside the huge pages, as in `plan.resources`.
    """
    labels = {
        **_labels(pool.instance.name, pool.zone),
        **_network_nodes(pool.instance.name, pool.name, number),
        **_group(pool.name, pool.capacity.node_group_type),
        **_OF_GPU_NODES,
        **pool.labels,
    }
    taints = [{"key": GPU_TAINT, "value": "true", "effect": "NoSchedule"}]
    offer = _gpu_offer(pool.instance, pool.root_volume_gib)
    return _node(f"{pool.name}-{number}", labels, offer, taints)


def eks_node(told: Mapping[str, Any], number: int) -> Object:
    """Return the node that an instance of a node group is, the first of its group being 0.

    `told` is what the local AWS knows of it; what the type offers stands in the catalogue.
    """
    name, gpu = told["instance_type"], INSTANCES.get(told["instance_type"])
    labels = {
        **_labels(name, told["zone"]),
        **(_network_nodes(name, told["group"], number) if gpu else {}),
        **_group(told["group"], told["capacity_type"]),
        **(_OF_GPU_NODES if gpu else {}),
        **told["labels"],
    }
    offer = _gpu_offer(gpu, told["root_volume_gib"]) if gpu else _system_offer(name)
    node = _node(told["name"], labels, offer, told["taints"])
    return {**node, "spec": {**node["spec"], "providerID": told["provider_id"]}}


def system_nodes(plan: "ClusterPlan") -> list[Object]:
    """Return the nodes for everything that is not a training pod."""
    name = plan.system_nodes.instance_type
    zones = plan.availability_zones
    return [
        _node(
            f"system-{number}",
            {**_labels(name, zones[number % len(zones)]), "role": "system"},
            _system_offer(name),
            [],
        )
        for number in range(plan.system_nodes.count)
    ]


def as_process(node: Object) -> Object:
    """Return a node for a kubelet of processes to register; KWOK leaves it alone."""
    labels = {key: each for key, each in node["metadata"]["labels"].items() if key != SIMULATED}
    return {**node, "metadata": {**node["metadata"], "labels": labels}}


def is_ready(node: Object) -> bool:
    """Say whether pods can be scheduled: a new node carries taints until its state is known."""
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    taints = {each["key"] for each in node["spec"].get("taints", ())}
    return conditions.get("Ready") == "True" and not any(
        key.startswith("node.kubernetes.io/") for key in taints
    )


def _gpu_offer(instance: InstanceType, root_volume_gib: int) -> _Offer:
    memory = instance.allocatable_memory_mib - instance.hugepages_mib
    capacity = {
        "cpu": f"{instance.vcpus}",
        "memory": f"{instance.memory_mib}Mi",
        "ephemeral-storage": f"{instance.instance_store_gb or root_volume_gib}G",
        "pods": f"{max_pods(instance)}",
        "hugepages-2Mi": f"{instance.hugepages_mib}Mi",
        "nvidia.com/gpu": f"{instance.gpus}",
    }
    if instance.efa_interfaces:
        capacity["vpc.amazonaws.com/efa"] = f"{instance.efa_interfaces}"
    cpu = f"{instance.allocatable_cpu_millis}m"
    return capacity, {**capacity, "cpu": cpu, "memory": f"{memory}Mi"}


def _system_offer(instance_type: str) -> _Offer:
    vcpus, memory_mib = system_node_size(instance_type)
    # A GiB stays with the system: close enough where nothing is full.
    memory = memory_mib // MIB_PER_GIB - 1
    capacity = {"cpu": f"{vcpus}", "memory": f"{memory}Gi", "pods": f"{_SYSTEM_PODS}"}
    capacity["ephemeral-storage"] = "80G"
    return capacity, capacity


def _group(name: str, capacity_type: str) -> dict[str, str]:
    return {
        "eks.amazonaws.com/nodegroup": name,
        "eks.amazonaws.com/capacityType": capacity_type,
    }


def _labels(instance_type: str, zone: str) -> dict[str, str]:
    return {
        SIMULATED: "true",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": instance_type,
        "topology.k8s.aws/zone-id": _zone_id(zone),
        "topology.kubernetes.io/region": zone[:-1],
        "topology.kubernetes.io/zone": zone,
    }


def _network_nodes(name: str, pool: str, number: int) -> dict[str, str]:
    """Return the node's place in the network: of two nodes, the lower the layer they share."""
    layers = _LAYERS.get(name, _LAYERS.get(name.partition(".")[0], 0))
    sizes = [_NODES_BELOW * _BRANCHES ** (layers - layer) for layer in range(1, layers + 1)]
    return {
        f"topology.k8s.aws/network-node-layer-{layer}": _network_node(
            f"{pool} {layer} {number // size}"
        )
        for layer, size in enumerate(sizes, start=1)
    }


def _network_node(place: str) -> str:
    """Return an identifier in EC2's form, `nn-` and 17 hexadecimal digits."""
    return f"nn-{hashlib.sha256(place.encode()).hexdigest()[:17]}"


def _zone_id(zone: str) -> str:
    """Return an identifier in AWS's form: `use2-az2`.

    Which letter means which identifier differs between accounts; here it is the alphabet's order.
    """
    area, *directions, last = zone.split("-")
    short = "".join(_COMPASS.get(word, word[0]) for word in directions)
    return f"{area}{short}{last[:-1]}-az{ord(last[-1]) - ord('a') + 1}"


def _node(
    name: str,
    labels: Mapping[str, str],
    offer: _Offer,
    taints: list[Object],
) -> Object:
    capacity, allocatable = offer
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "spec": {"taints": taints},
        "status": {"capacity": dict(capacity), "allocatable": dict(allocatable)},
    }
