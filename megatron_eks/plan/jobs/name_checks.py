"""Whether folders of weights are named after the model that a job says they hold.

A name proves nothing, so it warns; what other jobs make there stands in `source_checks.py`.
"""

import re
from typing import TYPE_CHECKING

from megatron_eks.catalog.models import PRESETS
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.job import ConvertCheckpointJob, FetchJob, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.config.errors import Path
    from megatron_eks.config.job import AnyJob

_NAMED = re.compile(rf"(?<![a-z0-9.])({'|'.join(map(re.escape, PRESETS))})(?![a-z0-9.])")


def check_names(job: "AnyJob", fetched: str | None) -> "Iterator[Finding]":
    """Yield a folder with the name of another model; `fetched` is the preset that is fetched."""
    for path, place, model in _places(job, fetched):
        # Its own name beside another one: weights that went from one to the other.
        names = set(_NAMED.findall(place.rpartition("/")[2].lower()))
        if model in PRESETS and len(names) == 1 and model not in names:
            found = f"{place} has the name of {names.pop()}, and the model is {model}"
            remedy = "name the weights of this model, or the model of these weights"
            yield Finding(Code.WEIGHTS, path, found, remedy, Level.WARNING)
            return


def _places(job: "AnyJob", fetched: str | None) -> "Iterator[tuple[Path, str, str | None]]":
    """Yield where a job reads or writes weights, and of which model."""
    if isinstance(job, ConvertCheckpointJob):
        yield ("source",), job.source, job.model
        yield ("target",), job.target, job.model
    elif isinstance(job, FetchJob):
        yield ("directory",), job.directory, fetched
    elif isinstance(job, TrainingJob) and job.checkpoint.pretrained is not None:
        model = job.model.preset if isinstance(job.model, ModelSpec) else job.model
        yield ("checkpoint", "pretrained"), job.checkpoint.pretrained, model
