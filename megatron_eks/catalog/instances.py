"""Hardware facts of every GPU instance type this project can build nodes from.

Sources: the tables that Karpenter generates from EC2's DescribeInstanceTypes (v1.14,
reference/instance-types and zz_generated.vpclimits.go), and the EC2 User Guide, "Accelerated
computing: EFA" and "Maximize network bandwidth"; read 2026-11.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.catalog.gpus import GPUS, Gpu

MIB_PER_GIB = 1024

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

    @property
    def first_efa_card(self) -> int:
        """EFA interfaces sit on this card and every later one."""
        return self.network_cards - self.efa_interfaces

    @property
    def hugepages_mib(self) -> int:
        """Memory that a node's huge pages take away from everything else."""
        return HUGEPAGES_PREALLOCATED_MIB if self.efa_interfaces else 0

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


# NVLink: GB/s of each GPU. Cards: network cards, the last of which have an EFA device each; gen is
# EFA's generation, RDMA GPUDirect RDMA. NI: interfaces a card, with IPv4 addresses each. NVMe: GB.
# Block: whether AWS sells Capacity Blocks (EC2 User Guide, "Capacity Blocks for ML"). Mark: of an
# all-reduce of two nodes, which reach 78 GB/s at 2 GiB on p4de, 438 on p5 (whose network p5e and
# p5en have; aws-samples/awsome-distributed-training), and 524 at 8 GiB on p6-b200 (aws-do-eks).
# "-" is unknown, or what a type without EFA does not have.
_TABLE = """
#type            GPU      GPUs NVLink vCPU  GiB Gbit/s cards EFA gen RDMA NI IPv4  NVMe block mark
p4d.24xlarge     A100_40     8    600   96 1152    400     4   4   1  yes 15   50  8000   yes   60
p4de.24xlarge    A100_80     8    600   96 1152    400     4   4   1  yes 15   50  8000   yes   60
p5.4xlarge       H100        1      0   16  256    100     1   1   2  yes  4   30  3800   yes    -
p5.48xlarge      H100        8    900  192 2048   3200    32  32   2  yes  2   50 30400   yes  350
p5e.48xlarge     H200        8    900  192 2048   3200    32  32   2  yes  2   50 30400   yes  350
p5en.48xlarge    H200        8    900  192 2048   3200    16  16   3  yes  4   50 30400   yes  350
p6-b200.48xlarge B200        8   1800  192 2048   3200     8   8   4  yes  4   50 30400   yes  400
p6-b300.48xlarge B300        8   1800  192 4096   6400    17  16   4  yes  4   50 30400   yes    -
g5.xlarge        A10G        1      0    4   16    2.5     1   0   -   no  4   15   250    no    -
g5.2xlarge       A10G        1      0    8   32      5     1   0   -   no  4   15   450    no    -
g5.4xlarge       A10G        1      0   16   64     10     1   0   -   no  8   30   600    no    -
g5.8xlarge       A10G        1      0   32  128     25     1   1   1   no  8   30   900    no    -
g5.12xlarge      A10G        4      0   48  192     40     1   1   1   no 15   50  3800    no    -
g5.16xlarge      A10G        1      0   64  256     25     1   1   1   no  8   30  1900    no    -
g5.24xlarge      A10G        4      0   96  384     50     1   1   1   no 15   50  3800    no    -
g5.48xlarge      A10G        8      0  192  768    100     1   1   1   no  7   50  7600    no    -
g6.xlarge        L4          1      0    4   16    2.5     1   0   -   no  4   15   250    no    -
g6.2xlarge       L4          1      0    8   32      5     1   0   -   no  4   15   450    no    -
g6.4xlarge       L4          1      0   16   64     10     1   0   -   no  8   30   600    no    -
g6.8xlarge       L4          1      0   32  128     25     1   1   -   no  8   30   900    no    -
g6.12xlarge      L4          4      0   48  192     40     1   1   -   no  8   30  3760    no    -
g6.16xlarge      L4          1      0   64  256     25     1   1   -   no 15   50  1880    no    -
g6.24xlarge      L4          4      0   96  384     50     1   1   -   no 15   50  3760    no    -
g6.48xlarge      L4          8      0  192  768    100     1   1   -   no 15   50  7520    no    -
g6e.xlarge       L40S        1      0    4   32    2.5     1   0   -   no  4   15   250    no    -
g6e.2xlarge      L40S        1      0    8   64      5     1   0   -   no  4   15   450    no    -
g6e.4xlarge      L40S        1      0   16  128     20     1   0   -   no  8   30   600    no    -
g6e.8xlarge      L40S        1      0   32  256     25     1   1   2   no  8   30   900    no    -
g6e.12xlarge     L40S        4      0   48  384    100     1   1   2   no 10   30  3800    no    -
g6e.16xlarge     L40S        1      0   64  512     35     1   1   2   no 15   50  1900    no    -
g6e.24xlarge     L40S        4      0   96  768    200     2   2   2   no 10   50  3800    no    -
g6e.48xlarge     L40S        8      0  192 1536    400     4   4   2   no 10   50  7600    no    -
g7e.2xlarge      RTX_6000    1      0    8   64     50     1   0   -   no  4   64  1900    no    -
g7e.4xlarge      RTX_6000    1      0   16  128     50     1   0   -   no  8   64  1900    no    -
g7e.8xlarge      RTX_6000    1      0   32  256    100     1   1   4   no  8   64  1900    no    -
g7e.12xlarge     RTX_6000    2      0   48  512    400     1   1   4  yes 10   64  3800    no    -
g7e.24xlarge     RTX_6000    4      0   96 1024    800     2   2   4  yes 10   64  7600    no    -
g7e.48xlarge     RTX_6000    8      0  192 2048   1600     4   4   4  yes 10   64 15200    no    -
"""


def _read(table: str) -> Iterator[InstanceType]:
    for row in table.strip().splitlines()[1:]:
        name, gpu, count, nvlink, vcpus, memory, gbps, *network, store, block, mark = row.split()
        cards, efa, generation, rdma, interfaces, ipv4 = network
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
        )


INSTANCES: dict[str, InstanceType] = {instance.name: instance for instance in _read(_TABLE)}

# Families that EC2 has and this project cannot use: why not, and what to take instead.
REFUSED_FAMILIES: dict[str, tuple[str, str]] = {
    "p6e-gb200": (
        "it has ARM processors, is rented as UltraServers and needs Dynamic Resource Allocation",
        "p6-b200.48xlarge",
    ),
    "g5g": ("it has ARM processors, and its GPUs have no bf16", "a size of g5"),
    "g7": ("its GPUs need a newer driver than the EKS AMI has", "a size of g7e"),
    "g6f": ("it has a part of a GPU", "a size of g6"),
    **dict.fromkeys(
        ("trn1", "trn1n", "trn2", "inf1", "inf2"),
        ("it has chips of AWS, which run no CUDA", "p4d.24xlarge"),
    ),
    "g4ad": ("its GPUs are AMD's, which run no CUDA", "a size of g5"),
    **dict.fromkeys(("g4dn", "p3", "p3dn"), ("its GPUs have no bf16", "a size of g5")),
}

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
