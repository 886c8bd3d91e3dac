"""What the `model` block of a job file can get wrong, and how a run starts from it."""

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.errors import Code, Finding, choices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.config.errors import Path
    from megatron_eks.config.job import TrainingJob


def check_model(model: str | ModelSpec) -> "Iterator[Finding]":
    """Yield why a model has no shape."""
    name = model if isinstance(model, str) else model.preset
    if name is not None:
        path: Path = ("model",) if isinstance(model, str) else ("model", "preset")
        if name not in PRESETS:
            found = f"unknown preset {name!r}"
            yield Finding(Code.UNKNOWN_MODEL, path, found, choices(name, PRESETS))
        return
    given = set() if isinstance(model, str) else set(model.model_dump(exclude_none=True))
    required = [field.name for field in fields(ModelShape) if field.default is MISSING]
    missing = [name for name in required if name not in given]
    if missing:
        found = f"without preset, {', '.join(missing)} are missing"
        yield Finding(Code.UNKNOWN_MODEL, ("model",), found, "add them, or name a preset")


def check_start(job: "TrainingJob") -> "Iterator[Finding]":
    """Yield where the job file contradicts itself about what the run starts from."""
    init = job.model.init if isinstance(job.model, ModelSpec) else None
    path: Path = ("model", "init")
    if init == "pretrained" and job.checkpoint.pretrained is None:
        found = "no weights to start from"
        yield Finding(Code.WEIGHTS, path, found, "name their folder: checkpoint.pretrained")
    if init == "config" and job.checkpoint.pretrained is not None:
        found = "random weights, and checkpoint.pretrained names others"
        yield Finding(Code.WEIGHTS, path, found, "use pretrained, or remove the other")
    if job.checkpoint.pretrained == job.checkpoint.directory:
        found = "base weights and checkpoints stand in the same directory"
        remedy = "save elsewhere: retention would delete the base weights"
        yield Finding(Code.SHARED_PATH, ("checkpoint", "directory"), found, remedy)
