"""What the file format knows and nothing renders yet; an entry goes when its feature comes."""

from collections.abc import Iterator
from operator import attrgetter

from pydantic import BaseModel

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, dotted
from megatron_eks.config.job import AnyJob, TorchRun

# A path, and the values that are rendered today.
_CLUSTER: tuple[tuple[Path, tuple[object, ...]], ...] = (
    (("platform", "kueue"), (False,)),
    (("platform", "trainer_v2"), (False,)),
    (("observability", "enabled"), (False,)),
    (("observability", "alarm_email"), (None,)),
    (("observability", "monthly_budget_usd"), (None,)),
)
_JOB: tuple[tuple[Path, tuple[object, ...]], ...] = ((("runtime", "queue"), (None,)),)
_TORCH: tuple[tuple[Path, tuple[object, ...]], ...] = ((("training", "precision"), ("bf16",)),)


def rendered_values() -> Iterator[tuple[str, str, str]]:
    """Yield file, key and the values that are rendered today, for the reference page."""
    tables = (("cluster file", _CLUSTER), ("job file", _JOB), ("job file, fsdp or ddp", _TORCH))
    for file, table in tables:
        for path, values in table:
            yield file, dotted(path), " or ".join(map(_yaml, values))


def cluster_unsupported(config: ClusterConfig) -> Iterator[Finding]:
    """Refuse cluster settings that would silently do nothing."""
    yield from _unsupported(config, _CLUSTER)


def job_unsupported(job: AnyJob) -> Iterator[Finding]:
    """Refuse job settings that would silently do nothing."""
    yield from _unsupported(job, _JOB)


def torch_unsupported(job: TorchRun) -> Iterator[Finding]:
    """Refuse what only the programs of FSDP and DDP do not render."""
    yield from _unsupported(job, _TORCH)


def _unsupported(
    model: BaseModel, table: tuple[tuple[Path, tuple[object, ...]], ...]
) -> Iterator[Finding]:
    for path, rendered in table:
        value = attrgetter(dotted(path))(model)
        if value not in rendered:
            found = f"{_yaml(value)} is not supported yet"
            remedy = f"use {' or '.join(map(_yaml, rendered))} for now"
            yield Finding(Code.NOT_SUPPORTED_YET, path, found, remedy)


def _yaml(value: object) -> str:
    """Write a value the way the user would."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
