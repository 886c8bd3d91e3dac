"""Rules over containers that start Megatron-LM, by the options on their command line."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.hardware import instance_types
from megatron_eks.rules.workloads import EFA, GPU

if TYPE_CHECKING:
    from megatron_eks.rules.workloads import Container, Manifest, Pod

_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
_SPLIT = re.compile(r"--(tensor-model|context)-parallel-size[= ]+(?P<size>[0-9]+)\b")
_FSDP = re.compile(r"--use-(torch-fsdp2|megatron-fsdp)\b")
_OVERLAP = "--overlap-moe-expert-parallel-comm"
_BLACKWELL = 10


def splits_layers(container: "Container") -> bool | None:
    """Tell whether Megatron shares each layer among GPUs; None where nothing says so."""
    sizes = [int(match["size"]) for match in _SPLIT.finditer(container.line)]
    return max(sizes) > 1 if sizes and _OVERLAP not in container.line else None


def uses_fsdp(container: "Container") -> bool:
    """Tell whether Megatron gathers weights while kernels run."""
    return _FSDP.search(container.line) is not None


def queues(manifest: "Manifest") -> Iterator[Finding]:
    """Warn of tensor or context parallelism without the one queue that Megatron demands for it.

    Megatron-LM `megatron/training/arguments.py`, validate_args (core_v0.19): it stops on GPUs
    before Blackwell unless the variable is 1. The image may set it, so this is a warning.
    """
    for pod in manifest.pods:
        types = instance_types(pod) or _by_amounts(pod)
        if not types or any(each.gpu.cuda_major >= _BLACKWELL for each in types):
            continue
        for container in pod.containers:
            named = any(each.name == _QUEUES for each in container.variables)
            elsewhere = named or container.body.get("envFrom") or _QUEUES in container.line
            if splits_layers(container) and not uses_fsdp(container) and not elsewhere:
                found = f"tensor or context parallelism, and no {_QUEUES}: Megatron stops at once"
                remedy = f'set {_QUEUES} to "1", here or in the image; Blackwell needs none'
                path = (*container.path, "env")
                yield Finding(Code.VARIABLE_MISSING, path, found, remedy, Level.WARNING)


def _by_amounts(pod: "Pod") -> list[InstanceType]:
    """Return the types with NVLink that have as many GPUs and EFA devices as a pod asks for."""
    asked = [sum(each.requested(name) for each in pod.containers) for name in (GPU, EFA)]
    if not all(asked):
        return []
    every = [each for each in INSTANCES.values() if each.nvlink_gb_s]
    return [each for each in every if [each.gpus, each.efa_interfaces] == asked]
