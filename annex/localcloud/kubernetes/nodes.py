"""Nodes as the API server has them, whether KWOK plays their kubelets or a process of ours."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.catalog.instances import (
    INSTANCES,
    MIB_PER_GIB,
    NETWORK_LABEL,
    InstanceType,
    system_node_size,
)
from megatron_eks.catalog.interfaces import max_pods
from megatron_eks.kubernetes.client import Object
from megatron_eks.localcloud.kubernetes.control_plane import SIMULATED

# How many nodes share a network node of the last layer, and how many of these share one of the
# layer above. AWS publishes neither; these give a tree worth testing.
_NODES_BELOW = 16
_BRANCHES = 4

_OTHER_PODS = 58

# From nodeadm, where the AMI has NVIDIA's driver.
_OF_GPU_NODES = {"nvidia.com/gpu.present": "true"}

# Capacity, and what of it pods may take.
_Offer = tuple[dict[str, str], dict[str, str]]


@dataclass(frozen=True)
class Instance:
    """An instance of a node group; what its type offers stands in the catalogue."""

    name: str
    group: str
    instance_type: str
    zone: str
    labels: Mapping[str, str]
    taints: Sequence[Object]
    root_volume_gib: int = 80
    capacity_type: str = "ON_DEMAND"
    cluster: str = ""
    """Whose group it is, where one account has several."""
    provider_id: str = ""


def eks_node(instance: Instance, number: int) -> Object:
    """Return the node that an instance is, the first of its group being 0.

    It looks as it does once its device plugins have reported.
    """
    name, gpu = instance.instance_type, INSTANCES.get(instance.instance_type)
    labels = {
        SIMULATED: "true",
        "eks.amazonaws.com/capacityType": instance.capacity_type,
        "eks.amazonaws.com/nodegroup": instance.group,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": instance.name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": name,
        "topology.kubernetes.io/region": instance.zone[:-1],
        "topology.kubernetes.io/zone": instance.zone,
        **({**_network_nodes(name, instance.group, number), **_OF_GPU_NODES} if gpu else {}),
        **instance.labels,
    }
    spec: Object = {"taints": list(instance.taints)}
    if instance.provider_id:
        spec["providerID"] = instance.provider_id
    disk_gib = instance.root_volume_gib
    capacity, allocatable = _gpu_offer(gpu, disk_gib) if gpu else _other_offer(name, disk_gib)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": instance.name, "labels": labels},
        "spec": spec,
        "status": {"capacity": capacity, "allocatable": allocatable},
    }


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


def _gpu_offer(instance: InstanceType, disk_gib: int) -> _Offer:
    # The kubelet offers huge pages beside the memory.
    memory = instance.allocatable_memory_mib - instance.hugepages_mib
    capacity = {
        "cpu": f"{instance.vcpus}",
        "memory": f"{instance.memory_mib}Mi",
        "ephemeral-storage": f"{instance.instance_store_gb or disk_gib}G",
        "pods": f"{max_pods(instance)}",
        "hugepages-2Mi": f"{instance.hugepages_mib}Mi",
        "nvidia.com/gpu": f"{instance.gpus}",
    }
    if instance.efa_interfaces:
        capacity["vpc.amazonaws.com/efa"] = f"{instance.efa_interfaces}"
    cpu = f"{instance.allocatable_cpu_millis}m"
    return capacity, {**capacity, "cpu": cpu, "memory": f"{memory}Mi"}


def _other_offer(instance_type: str, disk_gib: int) -> _Offer:
    vcpus, memory_mib = system_node_size(instance_type)
    # A GiB stays with the system: close enough where nothing is full.
    memory = memory_mib // MIB_PER_GIB - 1
    capacity = {"cpu": f"{vcpus}", "memory": f"{memory}Gi", "pods": f"{_OTHER_PODS}"}
    capacity["ephemeral-storage"] = f"{disk_gib}G"
    return capacity, capacity


def _network_nodes(name: str, pool: str, number: int) -> dict[str, str]:
    """Return the node's place in the network: of two nodes, the lower the layer they share."""
    layers = INSTANCES[name].network_layers if name in INSTANCES else 0
    sizes = [_NODES_BELOW * _BRANCHES ** (layers - layer) for layer in range(1, layers + 1)]
    return {
        f"{NETWORK_LABEL}{layer}": _network_node(f"{pool} {layer} {number // size}")
        for layer, size in enumerate(sizes, start=1)
    }


def _network_node(place: str) -> str:
    """Return an identifier in EC2's form, `nn-` and 17 hexadecimal digits."""
    return f"nn-{hashlib.sha256(place.encode()).hexdigest()[:17]}"
