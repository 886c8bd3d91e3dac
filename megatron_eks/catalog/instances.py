"""Hardware facts of every GPU instance type this project can build nodes from.

The types, with the sources, stand in instances.txt.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.catalog.gpus import GPUS, Gpu
from megatron_eks.catalog.tables import by_name, sections

MIB_PER_GIB = 1024

_TABLE = sections("instances.txt")

# The EFA driver of the EKS AMIs preallocates 5128 pages of 2 MiB (EKS User Guide, "Run machine
# learning training on EKS with EFA"); AWS's own manifests take 5120 MiB of them for a pod.
HUGEPAGES_PREALLOCATED_MIB = 5128 * 2
HUGEPAGES_REQUEST_MIB = 5120

# Karpenter's default for what the hypervisor and the kernel take of an instance's memory.
_VM_OVERHEAD = 0.075
_EVICTION_MIB = 100
# What nodeadm keeps of each further range of cores: 6 % of the first, 1 % of the second, and so on.
_CPU_RESERVED = ((1, 60), (1, 10), (2, 5), (10**6, 2.5))


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """One EC2 instance type; a fact nobody could confirm is None, never a guess."""

    name: str
    gpu: Gpu
    gpus: int
    nvlink_gb_s: int = 0
    """What a GPU sends and receives over NVLink together; 0 where GPUs share PCIe, or are alone."""
    vcpus: int
    memory_mib: int
    network_gbps: float
    """What the network cards carry together, without bursts."""
    network_cards: int = 1
    efa_interfaces: int
    """What a node offers as `vpc.amazonaws.com/efa`: one a card, on the last cards."""
    efa_generation: int | None = None
    interfaces_per_card: int
    ipv4_per_interface: int
    instance_store_gb: int
    """All NVMe volumes together."""
    gpu_direct_rdma: bool
    """Whether EFA reads and writes the GPU's memory itself."""
    capacity_blocks: bool
    """Whether AWS sells Capacity Blocks of it."""
    allreduce_min_busbw_gb_s: float | None = None
    """Pass mark for two nodes and messages of 1 GiB or more: about 75 % of published runs."""
    network_layers: int
    """How many layers of the network above a node EC2 tells of, and labels name; often none."""

    @property
    def first_efa_card(self) -> int:
        """EFA interfaces sit on this card and every later one."""
        return self.network_cards - self.efa_interfaces

    @property
    def hugepages_mib(self) -> int:
        """Memory that a node's huge pages take away from everything else."""
        return HUGEPAGES_PREALLOCATED_MIB if self.efa_interfaces else 0

    def efa_beside(self, gpus: int) -> int:
        """Return how many EFA interfaces belong to so many of its GPUs: one at least, if any."""
        return max(self.efa_interfaces * gpus // self.gpus, min(1, self.efa_interfaces))

    @property
    def primary_card_pods(self) -> int:
        """Pods that the first card could address if all its interfaces were ordinary ones."""
        return self.interfaces_per_card * (self.ipv4_per_interface - 1) + 2

    @property
    def allocatable_cpu_millis(self) -> int:
        """CPU that the kubelet offers (amazon-eks-ami, nodeadm, `getCPUMillicoresToReserve`)."""
        left, reserved = self.vcpus, 0.0
        for cores, millis in _CPU_RESERVED:
            reserved += min(left, cores) * millis
            left = max(0, left - cores)
        return self.vcpus * 1000 - int(reserved)

    @property
    def allocatable_memory_mib(self) -> int:
        """Memory that the kubelet offers before huge pages are taken out: Karpenter's estimate.

        nodeadm reserves 255 MiB and 11 for each pod (`getMemoryMebibytesToReserve`).
        """
        kube_reserved = 255 + 11 * self.primary_card_pods
        return int(self.memory_mib * (1 - _VM_OVERHEAD)) - kube_reserved - _EVICTION_MIB


def _read() -> Iterator[InstanceType]:
    for row in _TABLE["types"].strip().splitlines():
        name, gpu, count, nvlink, vcpus, memory, gbps, *network, store, block, mark = row.split()
        cards, efa, generation, rdma, interfaces, ipv4, layers = network
        yield InstanceType(
            name=name,
            gpu=GPUS[gpu],
            gpus=int(count),
            nvlink_gb_s=int(nvlink),
            vcpus=int(vcpus),
            memory_mib=int(memory) * MIB_PER_GIB,
            network_gbps=float(gbps),
            network_cards=int(cards),
            efa_interfaces=int(efa),
            efa_generation=None if generation == "-" else int(generation),
            gpu_direct_rdma=rdma == "yes",
            interfaces_per_card=int(interfaces),
            ipv4_per_interface=int(ipv4),
            instance_store_gb=int(store),
            capacity_blocks=block == "yes",
            allreduce_min_busbw_gb_s=None if mark == "-" else float(mark),
            network_layers=int(layers),
        )


INSTANCES: dict[str, InstanceType] = {instance.name: instance for instance in _read()}

REFUSED_FAMILIES = {name: said.split(" | ") for name, said in by_name(_TABLE["refused"]).items()}
"""Families that EC2 has and this project cannot use: why not, and what to take instead."""

# x86-64 types for the nodes that run add-ons and operators; they need no EFA and no GPU.
_VCPUS = {"2xlarge": 8, "4xlarge": 16}
_GIB_PER_VCPU = {"c": 2, "m": 4}
SYSTEM_INSTANCE_TYPES: tuple[str, ...] = tuple(
    f"{family}.{size}" for family in ("c5", "c6i", "c7i", "m5", "m6i", "m7i") for size in _VCPUS
)


def system_node_size(name: str) -> tuple[int, int]:
    """Return vCPUs and MiB of a system instance type, as its name says both."""
    family, size = name.split(".")
    vcpus = _VCPUS[size]
    return vcpus, vcpus * _GIB_PER_VCPU[family[0]] * MIB_PER_GIB


NETWORK_LABEL = "topology.k8s.aws/network-node-layer-"
"""On nodes, with a number: which part of the network they are in; 1 is the widest.

EKS User Guide, "Place distributed AI/ML workloads with network topology labels".
"""
