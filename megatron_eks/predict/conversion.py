"""What it takes to convert weights: memory of the host, the size of the result, and time."""

from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.parameters import parameters

_WEIGHT_BYTES = 2
"""bf16, in Hugging Face's form as in Megatron's."""

# The model that is read into, and what is written of it: `low_memory_save` of Megatron-Bridge frees
# each parameter as it is written, and an export streams (auto_bridge.py, import_ckpt; 0.6.2).
_COPIES = 2
_PROGRAM_BYTES = 8 * 1024**3
"""Python, torch, transformers and the buffers of one tensor."""

# The source is read, the result written; to compare them both are read once more.
_PASSES = 4
# SHA-256 and copies of one process: a figure of the right order, not a measurement of a node.
_PROCESS_BYTES_PER_SECOND = 0.5e9
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Conversion:
    """One conversion of a model's weights, by one process on CPUs."""

    parameters: int
    memory_bytes: int
    """What the pod needs."""
    capacity_bytes: int
    """What its node has for pods."""
    result_bytes: int
    seconds: float
    """About so long."""


def memory_bytes(model: ModelShape) -> int:
    """Return what converting a model needs of the host."""
    return _COPIES * _WEIGHT_BYTES * parameters(model) + _PROGRAM_BYTES


def conversion(
    model: ModelShape, *, capacity_bytes: int, storage_bytes_per_second: float
) -> Conversion:
    """Return what converting a model takes, in either direction, with this shared storage."""
    count = parameters(model)
    size = count * _WEIGHT_BYTES
    rate = min(storage_bytes_per_second, _PROCESS_BYTES_PER_SECOND)
    return Conversion(
        parameters=count,
        memory_bytes=memory_bytes(model),
        capacity_bytes=capacity_bytes,
        result_bytes=size,
        seconds=_START_SECONDS + _PASSES * size / rate,
    )
