"""What the file format knows and nothing renders yet; an entry goes when its feature comes."""

from collections.abc import Iterator, Mapping
from operator import attrgetter

from pydantic import BaseModel

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.job import TorchRun

# By key, the values that are rendered today.
_CLUSTER = {"observability.metrics": ("amp", "own")}
_TORCH = {"training.precision": ("bf16",)}


def rendered_values() -> Iterator[tuple[str, str, str]]:
    """Yield file, key and the values that are rendered today, for the reference page."""
    for file, table in (("cluster file", _CLUSTER), ("job file, fsdp or ddp", _TORCH)):
        yield from ((file, key, " or ".join(values)) for key, values in table.items())


def cluster_unsupported(config: ClusterConfig) -> Iterator[Finding]:
    """Refuse cluster settings that would silently do nothing."""
    yield from _unsupported(config, _CLUSTER)


def torch_unsupported(job: TorchRun) -> Iterator[Finding]:
    """Refuse what only the programs of FSDP and DDP do not render."""
    yield from _unsupported(job, _TORCH)


def _unsupported(model: BaseModel, table: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    for key, rendered in table.items():
        value = attrgetter(key)(model)
        if value not in rendered:
            found, remedy = f"{value} is not supported yet", f"use {' or '.join(rendered)} for now"
            yield Finding(Code.NOT_SUPPORTED_YET, tuple(key.split(".")), found, remedy)
