"""What the file format knows and nothing renders yet; an entry goes when its feature comes."""

from collections.abc import Iterator, Mapping
from operator import attrgetter

from pydantic import BaseModel

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.job import TorchRun

# By key, the value that is rendered today, or those that are.
_CLUSTER: dict[str, object] = {
    "observability.metrics": ("amp", "own"),
}
_TORCH: dict[str, object] = {"training.precision": "bf16"}


def rendered_values() -> Iterator[tuple[str, str, str]]:
    """Yield file, key and the value that is rendered today, for the reference page."""
    tables = {"cluster file": _CLUSTER, "job file, fsdp or ddp": _TORCH}
    for file, table in tables.items():
        for key, value in table.items():
            yield file, key, _yaml(value)


def cluster_unsupported(config: ClusterConfig) -> Iterator[Finding]:
    """Refuse cluster settings that would silently do nothing."""
    yield from _unsupported(config, _CLUSTER)


def torch_unsupported(job: TorchRun) -> Iterator[Finding]:
    """Refuse what only the programs of FSDP and DDP do not render."""
    yield from _unsupported(job, _TORCH)


def _unsupported(model: BaseModel, table: Mapping[str, object]) -> Iterator[Finding]:
    for key, rendered in table.items():
        value = attrgetter(key)(model)
        several = rendered if isinstance(rendered, tuple) and rendered else (rendered,)
        if value not in several:
            plain = value is None or isinstance(value, (bool, int, float, str))
            found = f"{_yaml(value) if plain else 'this key'} is not supported yet"
            remedy = f"use {_yaml(rendered)} for now"
            yield Finding(Code.NOT_SUPPORTED_YET, tuple(key.split(".")), found, remedy)


def _yaml(value: object) -> str:
    """Write a value the way the user would."""
    if isinstance(value, tuple):
        return " or ".join(map(_yaml, value)) or "[]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
