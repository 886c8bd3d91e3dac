"""What a job should know of its pool: how its nodes are bought, and how their GPUs are joined."""

from collections.abc import Iterator

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.config.cluster import GpuPool
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning


def check_capacity(pool: GpuPool, restarts: int) -> Iterator[Finding]:
    """Yield what ends a job before its time."""
    if pool.capacity.type == "spot" and not restarts:
        found = "EC2 takes nodes of spot back, and the job may not start again"
        remedy = "use 3 or more"
        yield warning(Code.SPOT_GANG, ("runtime", "gang_restarts"), found, remedy)


def check_tensor_parallelism(instance: InstanceType, tensor: int) -> Iterator[Finding]:
    """Yield what costs a layout its speed, though it would run."""
    if tensor > 1 and instance.gpus > 1 and not instance.nvlink_gb_s:
        found = f"the GPUs of a {instance.name} share PCIe, and every layer waits for tensor ranks"
        remedy = "prefer pipeline stages where the model fits; docs/parallelism.md"
        yield warning(
            Code.TENSOR_PARALLEL_OVER_PCIE,
            ("parallelism", "tensor"),
            found,
            remedy,
        )


def check_workers(instance: InstanceType, workers: int) -> Iterator[Finding]:
    """Yield more processes that load data than the cores of a GPU's share can run."""
    share = instance.vcpus // instance.gpus
    if workers > share:
        found = f"{workers} processes for each GPU, and a {instance.name} has {share} vCPUs for it"
        remedy = f"use at most {share}; indexed data need 2 to 8"
        yield warning(Code.DATA_WORKERS, ("data", "num_workers"), found, remedy)
