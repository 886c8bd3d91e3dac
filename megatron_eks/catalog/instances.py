"""Hardware facts of every GPU instance type this project can build nodes from.

Sources: EC2 User Guide "Accelerated computing: EFA" and "Maximize network bandwidth", and the
tables that Karpenter generates from EC2's DescribeInstanceTypes (reference/instance-types,
zz_generated.vpclimits.go); read 2026-11.
"""

from dataclasses import dataclass

MIB_PER_GIB = 1024

# The EFA driver of the EKS AMIs preallocates 5128 pages of 2 MiB (EKS User Guide, "Run machine
# learning training on EKS with EFA"); AWS's own manifests take 5120 MiB of them for a pod.
HUGEPAGES_PREALLOCATED_MIB = 5128 * 2
HUGEPAGES_REQUEST_MIB = 5120


@dataclass(frozen=True)
class Gpu:
    """One GPU as the framework sees it."""

    name: str
    memory_mib: int
    """What `nvidia-smi` calls the total; the driver keeps a part of it."""
    usable_memory_mib: int
    """What a process can allocate, the CUDA context not yet counted."""
    cuda_major: int
    """Major compute capability: 8 Ampere, 9 Hopper, 10 Blackwell."""
    tflops_bf16: float
    """Dense peak, the denominator of MFU."""
    tflops_fp8: float | None
    """Dense peak, or None where the tensor cores have no FP8."""


@dataclass(frozen=True)
class InstanceType:
    """One EC2 instance type; a fact nobody could confirm is None, never a guess."""

    name: str
    gpu: Gpu
    gpus: int
    vcpus: int
    memory_mib: int
    network_gbps: int
    network_cards: int
    first_efa_card: int
    """EFA interfaces sit on this card and every later one."""
    interfaces_per_card: int
    ipv4_per_interface: int
    instance_store_count: int
    instance_store_gb: int
    """Size of one NVMe volume."""
    allocatable_cpu_millis: int | None
    allocatable_memory_mib: int | None
    """What the kubelet offers before huge pages are taken out (Karpenter's estimate)."""
    gpu_direct_rdma: bool
    allreduce_min_busbw_gb_s: float | None
    """Pass mark for two nodes and messages of 1 GiB or more: about 75 % of published runs."""

    @property
    def efa_interfaces(self) -> int:
        """How many EFA devices a node offers as `vpc.amazonaws.com/efa`."""
        return self.network_cards - self.first_efa_card


_A100_40 = Gpu("A100-SXM4-40GB", 40960, 40346, 8, 312.0, None)
_A100_80 = Gpu("A100-SXM4-80GB", 81920, 81050, 8, 312.0, None)


def _p4(name: str, gpu: Gpu) -> InstanceType:
    """Describe the two types that share one chassis and differ in GPU memory only."""
    return InstanceType(
        name=name,
        gpu=gpu,
        gpus=8,
        vcpus=96,
        memory_mib=1152 * MIB_PER_GIB,
        network_gbps=400,
        network_cards=4,
        first_efa_card=0,
        interfaces_per_card=15,
        ipv4_per_interface=50,
        instance_store_count=8,
        instance_store_gb=1000,
        allocatable_cpu_millis=95690,
        allocatable_memory_mib=1082712,
        gpu_direct_rdma=True,
        # 2 x p4de.24xlarge reach about 78 GB/s at 2 GiB (aws-samples/awsome-distributed-training).
        allreduce_min_busbw_gb_s=60.0,
    )


INSTANCES: dict[str, InstanceType] = {
    instance.name: instance
    for instance in (_p4("p4d.24xlarge", _A100_40), _p4("p4de.24xlarge", _A100_80))
}

# x86-64 types for the nodes that run add-ons and operators; they need no EFA and no GPU.
SYSTEM_INSTANCE_TYPES: tuple[str, ...] = (
    "c5.2xlarge",
    "c5.4xlarge",
    "c6i.2xlarge",
    "c6i.4xlarge",
    "c7i.2xlarge",
    "c7i.4xlarge",
    "m5.2xlarge",
    "m5.4xlarge",
    "m6i.2xlarge",
    "m6i.4xlarge",
    "m7i.2xlarge",
    "m7i.4xlarge",
)

_VCPUS = {"2xlarge": 8, "4xlarge": 16}
_GIB_PER_VCPU = {"c": 2, "m": 4}


def system_node_size(name: str) -> tuple[int, int]:
    """Return vCPUs and MiB of a system instance type, as its name says both."""
    family, size = name.split(".")
    vcpus = _VCPUS[size]
    return vcpus, vcpus * _GIB_PER_VCPU[family[0]] * MIB_PER_GIB
